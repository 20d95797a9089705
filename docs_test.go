package tokenbucket_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// TestDocsShowCompiledCode finds each Go block of the README and of docs, line by line,
// in a Go file of this repository. An example may set a mock clock that the block leaves out.
func TestDocsShowCompiledCode(t *testing.T) {
	skipWithoutNestedModules(t)
	code := goFiles(t)
	blocks := 0
	for _, document := range documents(t) {
		for _, block := range goBlocks(t, document) {
			blocks++
			require.True(t, containsBlock(code, block), "%s: no Go file contains this block:\n%s", document, block)
		}
	}
	require.Greater(t, blocks, 5)
}

// TestDocsLinksExist opens the files of this repository to which the README and the
// documents link.
func TestDocsLinksExist(t *testing.T) {
	skipWithoutNestedModules(t)
	code := regexp.MustCompile("(?s)```.*?```")
	link := regexp.MustCompile(`(?:\]\(|src=")([^)"#]+)`)
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, found := range link.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			if target := string(found[1]); !strings.Contains(target, "://") {
				require.FileExists(t, filepath.Join(filepath.Dir(document), target), document)
			}
		}
	}
}

// The README shows this test. Inside a bubble, time is virtual.
func TestWaitInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.5}, tokenbucket.WithTokens(0))
		require.NoError(t, bucket.Wait(t.Context(), 1))
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

// The root module as a proxy serves it has no nested modules, which the documents link to.
func skipWithoutNestedModules(t *testing.T) {
	if _, err := os.Stat("redisbucket"); err != nil {
		t.Skip("not in a clone of the repository")
	}
}

func documents(t *testing.T) []string {
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob(".github/*.md")
	require.NoError(t, err)
	return append(append(documents, more...), "README.md", "CHANGELOG.md")
}

func goBlocks(t *testing.T, document string) (blocks []string) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, normalized(string(found[1])))
	}
	return blocks
}

func goFiles(t *testing.T) (texts []string) {
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, normalized(string(text)))
		return err
	}))
	return texts
}

func containsBlock(code []string, block string) bool {
	for _, text := range code {
		if strings.Contains(text, block) {
			return true
		}
	}
	return false
}

// normalized trims each line, and leaves out options that set a mock clock.
func normalized(code string) string {
	code = regexp.MustCompile(`, (tokenbucket|keyed|httplimit)\.With(Transport)?Clock\(\w+(\.NewMock\(\))?\)`).ReplaceAllString(code, "")
	lines := new(strings.Builder)
	lines.WriteString("\n")
	for line := range strings.Lines(code) {
		lines.WriteString(strings.TrimSpace(line) + "\n")
	}
	return lines.String()
}
