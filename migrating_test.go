package tokenbucket_test

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is a row of the tables in docs/migrating.md: statements, an expression, and the
// printed value of the expression.
type line struct {
	before     []string
	expression string
	prints     string
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

func spans(cell string) (texts []string) {
	for _, match := range codeSpan.FindAllStringSubmatch(cell, -1) {
		texts = append(texts, match[1])
	}
	return texts
}

// documentedLines returns the rows that have an output.
func documentedLines(t *testing.T) (lines []line) {
	t.Helper()
	text, err := os.ReadFile("docs/migrating.md")
	require.NoError(t, err)
	for row := range strings.Lines(string(text)) {
		cells := strings.Split(row, "|")
		if len(cells) < 6 || len(spans(cells[3])) == 0 {
			continue
		}
		code := spans(cells[2])
		last := len(code) - 1
		lines = append(lines, line{code[:last:last], code[last], spans(cells[3])[0]})
	}
	return lines
}

// compiledLines returns the lines that the examples print, in the order of the source,
// with the statements since the previous print.
func compiledLines(t *testing.T) (lines []line) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "example_migrating_test.go", nil, parser.ParseComments)
	require.NoError(t, err)
	source := func(node any) string {
		var text bytes.Buffer
		require.NoError(t, printer.Fprint(&text, files, node))
		return text.String()
	}
	examples := doc.Examples(file)
	slices.SortFunc(examples, func(a, b *doc.Example) int { return a.Order - b.Order })
	for _, example := range examples {
		outputs := strings.Split(strings.TrimSpace(example.Output), "\n")
		var before []string
		for _, statement := range example.Code.(*ast.BlockStmt).List {
			text := source(statement)
			expression, isPrint := strings.CutPrefix(text, "fmt.Println(")
			if !isPrint {
				before = append(before, text)
				continue
			}
			lines = append(lines, line{before, strings.TrimSuffix(expression, ")"), outputs[0]})
			before, outputs = nil, outputs[1:]
		}
		require.Empty(t, outputs, example.Name)
	}
	return lines
}

func TestMigratingShowsCompiledLines(t *testing.T) {
	documented, compiled := documentedLines(t), compiledLines(t)
	require.Equal(t, len(compiled), len(documented), "docs/migrating.md has a row for each line that an example prints")
	for i, want := range compiled {
		got := documented[i]
		require.Equal(t, want.expression, got.expression)
		require.Equal(t, want.prints, got.prints, got.expression)
		require.Subset(t, want.before, got.before, got.expression)
	}
}
