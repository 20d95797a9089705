package integrations_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var tableRow = regexp.MustCompile(`\[(\w+\.go)\]\(\w+\.go\) \| (\d+) \|`)

// TestReadmeCountsLines checks the table: every file once, with the lines inside its
// functions.
func TestReadmeCountsLines(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	listed := map[string]int{}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		lines, err := strconv.Atoi(row[2])
		require.NoError(t, err)
		listed[row[1]] = lines
	}
	counted := map[string]int{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if file != "doc.go" && !strings.HasSuffix(file, "_test.go") {
			counted[file] = countLines(t, file)
		}
	}
	require.Equal(t, counted, listed)
}

// countLines counts the lines with code inside the functions of a file.
func countLines(t *testing.T, name string) int {
	t.Helper()
	source, err := os.ReadFile(name)
	require.NoError(t, err)
	files := token.NewFileSet()
	syntax, err := parser.ParseFile(files, name, source, 0)
	require.NoError(t, err)
	file := files.File(syntax.Pos())
	lines := map[int]bool{}
	var scan scanner.Scanner
	scan.Init(file, source, nil, 0)
	for pos, tok, _ := scan.Scan(); tok != token.EOF; pos, tok, _ = scan.Scan() {
		if isInBody(syntax, pos) {
			lines[file.Line(pos)] = true
		}
	}
	return len(lines)
}

func isInBody(syntax *ast.File, pos token.Pos) bool {
	for _, declaration := range syntax.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Body.Lbrace < pos && pos < f.Body.Rbrace {
			return true
		}
	}
	return false
}
