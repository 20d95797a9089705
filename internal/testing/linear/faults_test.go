package linear

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// faults are changes that break the code of the bucket, but only for concurrent calls.
var faults = []struct{ name, file, right, wrong string }{
	{
		"a refusal does not check that nothing was spent since its reading of the clock", "epoch.go",
		"case word == before:", "case step == refuse:",
	},
	{
		"a refusal is answered from one by an earlier word", "refusal.go",
		"r.next.Load() != word+1 || ", "",
	},
	{
		"an epoch does not end for a call that has read the clock", "epoch.go",
		"e.word.Swap(epochOver)", "e.word.Load()",
	},
}

// TestFaultsAreFound tests the test. It compiles the bucket with one fault at a time,
// using go's -overlay, and expects TestBucketsAreLinearizable to fail.
func TestFaultsAreFound(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(root, f.file))
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(source), f.right), f.right)
			overlay := writeOverlay(t, filepath.Join(root, f.file), strings.Replace(string(source), f.right, f.wrong, 1))

			test := exec.Command("go", "test", "-overlay", overlay, "-run", "^TestBucketsAreLinearizable$", ".", "-lasts", "1m")
			out, err := test.CombinedOutput()
			require.Error(t, err, "the fault was not found")
			require.Contains(t, string(out), "not linearizable")
		})
	}
}

// writeOverlay returns the path of an overlay that replaces the text of one file.
func writeOverlay(t *testing.T, file, text string) string {
	folder := t.TempDir()
	wrong, overlay := filepath.Join(folder, "wrong.go"), filepath.Join(folder, "overlay.json")
	files, err := json.Marshal(map[string]map[string]string{"Replace": {file: wrong}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(wrong, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(overlay, files, 0o600))
	return overlay
}
