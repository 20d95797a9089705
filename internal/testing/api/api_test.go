package api_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/api"
)

var update = flag.Bool("update", false, "write the files in the folder api")

const repository = "../../.."

// TestAPIFiles compares each module that others import with its file in the folder api.
func TestAPIFiles(t *testing.T) {
	forEachModule(t, func(t *testing.T, folder, name string) {
		lines, err := api.List(folder, name)
		require.NoError(t, err)
		require.NotEmpty(t, lines)
		compare(t, filepath.Join(repository, "api", name+".txt"), strings.Join(lines, "\n")+"\n")
	})
}

func forEachModule(t *testing.T, run func(t *testing.T, folder, name string)) {
	for _, module := range []string{"", "fit", "grpclimit", "redisbucket"} {
		t.Run("module "+module, func(t *testing.T) {
			folder := filepath.Join(repository, module)
			if _, err := os.Stat(filepath.Join(folder, "go.mod")); err != nil {
				t.Skip("not in a clone of the repository")
			}
			run(t, folder, name(module))
		})
	}
}

// newFolder returns an empty folder, and a function that writes a file in it.
func newFolder(t *testing.T) (folder string, write func(name, text string)) {
	folder = t.TempDir()
	return folder, func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), fs.ModePerm))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
}

func name(module string) string {
	if module == "" {
		return "tokenbucket"
	}
	return module
}

func compare(t *testing.T, file, found string) {
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(found), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), found, "exported names have changed: go test ./internal/testing/api -update writes %s", file)
}

// TestList lists a package with one declaration of each kind.
func TestList(t *testing.T) {
	folder, write := newFolder(t)
	write("a.go", `package a
import "io"
const Limit time.Duration = 5
const hidden = 1
var ErrOne, ErrTwo = f()
type Pair[K comparable, V any] struct {
	Key K // the key
	value V
	io.Reader
}
type Asker interface {
	Ask(name string) (
		answer string, err error)
	secret()
}
type Handler func(string)
type Same = Handler
func (h hider) Get() {}
func (p *Pair[K, V]) Get(k K) V { return p.value }
func (p *Pair[K, V]) set(v V) {}
func New[K comparable](k K, rest ...int) *Pair[K, int] { return nil }
`)
	write("a_test.go", "package a\nfunc Tested() {}\n")
	write("cmd/b/main.go", "package main\nfunc Main() {}\n")
	write("internal/c/c.go", "package c\nfunc Inner() {}\n")
	write("nested/go.mod", "module nested\n")
	write("nested/d.go", "package d\nfunc Nested() {}\n")
	write("e/e.go", "package e\nfunc E() {}\n")

	lines, err := api.List(folder, "a")
	require.NoError(t, err)
	require.Equal(t, []string{
		"a/e: func E()",
		"a: Asker.Ask(name string) ( answer string, err error)",
		"a: Pair embeds io.Reader",
		"a: Pair.Key K",
		"a: const Limit time.Duration",
		"a: func (*Pair[K, V]) Get(k K) V",
		"a: func New[K comparable](k K, rest ...int) *Pair[K, int]",
		"a: type Asker interface",
		"a: type Handler func(string)",
		"a: type Pair[K comparable, V any] struct",
		"a: type Same = Handler",
		"a: var ErrOne",
		"a: var ErrTwo",
	}, lines)
}
