package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableFromRawOutput makes a table from two rounds of a benchmark and an attribute.
func TestTableFromRawOutput(t *testing.T) {
	raw := `=== MACHINE Monday, an abacus
goos: linux
cpu: Abacus
BenchmarkMachine/table_9        	  10	  40 ns/op
BenchmarkMachine/table_9-2      	  10	  50 ns/op
BenchmarkPace/slow/up_hill      	  10	 100 ns/op	 0 %wrong
BenchmarkPace/quick/up_hill     	  10	  50 ns/op	 2.5 %wrong
BenchmarkPace/quick/down_hill-8 	  10	  10 ns/op	 0 %wrong
BenchmarkPace/slow/up_hill      	  10	 200 ns/op	 0 %wrong
BenchmarkPace/quick/up_hill     	  10	 150 ns/op	 0 %wrong
=== MACHINE Tuesday, an abacus
=== MACHINE Monday, an abacus
=== RUN   TestColour/quick
=== ATTR  TestColour/quick first_look rather red
--- PASS: TestColour/quick
`
	all, err := parse(strings.NewReader(raw))
	require.NoError(t, err)
	var machines strings.Builder
	all.writeMachines(&machines)
	require.Equal(t, "Monday, an abacus.\nTuesday, an abacus.\n\n2 rounds, on Abacus.\n", machines.String())
	pace := table{number: "9", title: "Pace", note: "Of two.", bench: "Pace", test: "TestColour", views: []view{
		{unit: "ns/op", caption: "Time", base: "slow", compare: ratio, format: "%.2f"},
	}}
	var written strings.Builder
	pace.write(&written, all)
	require.Equal(t, `
### 9. Pace

Of two.

The machine: with 2 goroutines, one clock read and one compare-and-swap of the same word took 1.25 times as long as with 1.

Time:

| | up hill @1 | down hill @8 |
| --- | --- | --- |
| slow | 150 (100–200) | – |
| quick | 0.62 (0.50–0.75), **up to 2.5 % wrong** | – |

| | first look |
| --- | --- |
| quick | rather red |
`, written.String())
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
}

func TestAskedTablesSayWhichThereAre(t *testing.T) {
	defer func(before string) { *numbers = before }(*numbers)
	*numbers = "1,99"
	_, err := askedTables()
	require.ErrorContains(t, err, fmt.Sprintf(`no table "99": choose among 1 to %d`, len(tables)))
}

// TestReadmeFromResults writes README.md's tables from the output of all of them.
func TestReadmeFromResults(t *testing.T) {
	defer func(before string) { *folder = before }(*folder)
	*folder = t.TempDir()
	readme := filepath.Join(*folder, "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("Before.\n\n## The tables\n\nSTALE"), 0o600))
	require.ErrorContains(t, updateReadme(readme), "measure table 1 first")
	for _, x := range tables {
		require.NoError(t, os.WriteFile(x.rawFile(), []byte("Benchmark"+x.bench+"/x-time-rate/fast 1 7 ns/op\n"), 0o600))
	}
	require.NoError(t, updateReadme(readme))
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	require.Regexp(t, `(?s)^Before\.\n\n## The tables\n\n.*\n### 1\. .*\| x-time-rate \| 7 \|`, string(text))
	require.NotContains(t, string(text), "STALE")
}
