package grpclimit_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// A client in another language reads the figures, and its own retry waits long enough.
func TestJavaScriptClient(t *testing.T) {
	folder := installJavaScript(t)
	decisions := []tokenbucket.Decision{
		{OK: true, Limit: tokenbucket.PerSecond(1)},
		{Wait: 2*sec + 1, Limit: tokenbucket.PerSecond(1)},
		{Wait: 200 * ms, Limit: tokenbucket.PerSecond(1)},
		{OK: true, Limit: tokenbucket.PerSecond(1)},
	}
	var n notes
	limiter := limiterFunc(func(string, float64) (tokenbucket.Decision, error) {
		n.note()
		return decisions[len(n.all())-1], nil
	})
	s := &setup{limiter: limiter}
	address := s.connect(t, true).Target()

	client := exec.CommandContext(t.Context(), "node", "client.js", address, unaryMethod)
	client.Dir, client.Stderr = folder, os.Stderr
	output, err := client.Output()
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(output, &got), "%s", output)
	require.Equal(t, map[string]any{
		"first": 0.0, "code": 8.0, "retryInfo": []any{2.0, 1.0}, "pushback": []any{"2001"},
		"rateLimit": []any{`"default";r=0;t=3`}, "policy": []any{`"default";q=1;w=1`}, "third": 0.0,
	}, got)
	at := n.all()
	require.Len(t, at, 4, "the first retry succeeds")
	require.GreaterOrEqual(t, at[3]-at[2], 200*ms)
}

// installJavaScript installs the client in a temporary folder. Without node, or without a
// registry, the test is skipped, unless TOKENBUCKET_REQUIRE_NODE is set.
func installJavaScript(t *testing.T) (folder string) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	folder = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "client.js"} {
		content, err := os.ReadFile(filepath.Join("testdata", "js", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o644))
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	install.Dir = folder
	if output, err := install.CombinedOutput(); err != nil {
		require.Empty(t, os.Getenv("TOKENBUCKET_REQUIRE_NODE"), "npm ci: %v: %s", err, output)
		t.Skipf("npm ci: %v", err)
	}
	return folder
}
