package integrations_test

import (
	"context"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// TestMigratingIsRightAboutRate runs the claims of docs/migrating.md about
// golang.org/x/time/rate.
func TestMigratingIsRightAboutRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(2, 10)
		require.True(t, limiter.AllowN(time.Now(), 10))
		first := limiter.Reserve()
		behind := limiter.ReserveN(time.Now(), 5)
		require.Equal(t, 3*time.Second, behind.Delay())
		first.Cancel()
		require.Equal(t, 3*time.Second, behind.Delay(), "those behind a cancelled reservation keep their times")
		limiter.SetLimit(4)
		require.Equal(t, 3*time.Second, behind.Delay(), "and after SetLimit as well")

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.NotErrorIs(t, limiter.Wait(ctx), context.DeadlineExceeded)
		require.True(t, rate.NewLimiter(rate.Inf, 0).AllowN(time.Now(), 1<<30))
		zero := rate.NewLimiter(0, 3)
		require.True(t, zero.AllowN(time.Now(), 3))
		time.Sleep(1000 * time.Hour)
		require.False(t, zero.Allow())
		require.False(t, new(rate.Limiter).Allow())
	})
}

func TestMigratingHasEveryName(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	for _, name := range exportedNames(t, "golang.org/x/time/rate") {
		require.Contains(t, string(text), "`"+name+"`")
	}
}

// exportedNames returns the names of a package, with the type in front of a method's and
// otherwise the package.
func exportedNames(t *testing.T, path string) (names []string) {
	t.Helper()
	folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "*.go"))
	require.NoError(t, err)
	positions, parsed := token.NewFileSet(), []*ast.File(nil)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			syntax, err := parser.ParseFile(positions, file, nil, parser.ParseComments)
			require.NoError(t, err)
			parsed = append(parsed, syntax)
		}
	}
	pkg, err := doc.NewFromFiles(positions, parsed, path)
	require.NoError(t, err)
	add := func(prefix string, functions []*doc.Func) {
		for _, f := range functions {
			names = append(names, prefix+"."+f.Name)
		}
	}
	values := pkg.Consts
	add(pkg.Name, pkg.Funcs)
	for _, typ := range pkg.Types {
		names = append(names, pkg.Name+"."+typ.Name)
		add(pkg.Name, typ.Funcs)
		add(typ.Name, typ.Methods)
		values = append(values, typ.Consts...)
	}
	for _, value := range append(values, pkg.Vars...) {
		for _, name := range value.Names {
			names = append(names, pkg.Name+"."+name)
		}
	}
	return names
}
