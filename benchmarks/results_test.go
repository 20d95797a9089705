package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableFromRawOutput holds a table to two rounds of a benchmark and an attribute.
func TestTableFromRawOutput(t *testing.T) {
	raw := `goos: linux
cpu: Abacus
BenchmarkPace/slow/up_hill      	  10	 100 ns/op	 0 %wrong
BenchmarkPace/quick/up_hill     	  10	  50 ns/op	 2.5 %wrong
BenchmarkPace/quick/down_hill-8 	  10	  10 ns/op	 0 %wrong
BenchmarkPace/slow/up_hill      	  10	 200 ns/op	 0 %wrong
BenchmarkPace/quick/up_hill     	  10	 150 ns/op	 0 %wrong
=== RUN   TestColour/quick
=== ATTR  TestColour/quick first_look rather red
--- PASS: TestColour/quick
`
	all, err := parse(strings.NewReader(raw))
	require.NoError(t, err)
	require.Equal(t, "Abacus", all.machine)
	pace := table{number: "9", title: "Pace", note: "Of two.", bench: "Pace", test: "TestColour", views: []view{
		{unit: "ns/op", caption: "Time", base: "slow", compare: ratio, format: "%.2f"},
	}}
	var written strings.Builder
	pace.write(&written, all)
	require.Equal(t, `
### 9. Pace

Of two.

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
	*numbers = "1,8"
	_, err := askedTables()
	require.ErrorContains(t, err, `no table "8": choose among 1 to 7`)
}
