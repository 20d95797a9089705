package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// results holds all that the test binary printed, by benchmark or test.
type results struct {
	grids     map[string]*grid
	machines  []string // what writeMachine wrote, without repetitions
	processor string
}

// grid holds the results of one benchmark or test: a row for each peer, and its columns.
type grid struct {
	rows, columns []string           // in the order of the output
	values        map[cell][]float64 // of each round
	texts         map[cell]string
}

type cell struct{ row, column, unit string }

func (r *results) of(name string) *grid {
	g := r.grids[name]
	if g == nil {
		g = &grid{values: map[cell][]float64{}, texts: map[cell]string{}}
		r.grids[name] = g
	}
	return g
}

func (g *grid) at(row, column, unit string) cell {
	g.rows = appendNew(g.rows, row)
	g.columns = appendNew(g.columns, column)
	return cell{row, column, unit}
}

func appendNew(names []string, name string) []string {
	if slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

// columnsOf returns the columns that contain part and have a value in a unit.
func (g *grid) columnsOf(unit, part string) []string {
	return slices.DeleteFunc(slices.Clone(g.columns), func(column string) bool {
		return !strings.Contains(column, part) || !slices.ContainsFunc(g.rows, func(row string) bool {
			return g.values[cell{row, column, unit}] != nil
		})
	})
}

// parse reads benchmarks in their usual format, and the attributes of tests.
func parse(raw io.Reader) (*results, error) {
	r := &results{grids: map[string]*grid{}}
	var copied bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(raw, &copied))
	for lines.Scan() {
		r.addAttribute(lines.Text())
		if machine, ok := strings.CutPrefix(lines.Text(), machineLine); ok {
			r.machines = appendNew(r.machines, machine)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	reader := benchfmt.NewReader(&copied, "benchmarks")
	for reader.Scan() {
		if result, ok := reader.Result().(*benchfmt.Result); ok {
			r.addBenchmark(result)
		}
	}
	return r, reader.Err()
}

// addAttribute adds a line such as "=== ATTR  Test/row column text".
func (r *results) addAttribute(line string) {
	rest, ok := strings.CutPrefix(line, "=== ATTR  ")
	if !ok {
		return
	}
	fields := strings.SplitN(rest, " ", 3)
	test, row, ok := strings.Cut(fields[0], "/")
	if !ok || len(fields) < 3 {
		return
	}
	g := r.of(test)
	g.texts[g.at(row, fields[1], "")] = fields[2]
}

// addBenchmark adds a result of Benchmark/row/column-cpu.
func (r *results) addBenchmark(result *benchfmt.Result) {
	r.processor = result.GetConfig("cpu")
	base, parts := result.Name.Parts()
	row, column := "", ""
	procs := "1"
	for i, part := range parts {
		switch {
		case i == 0:
			row = string(part[1:])
		case part[0] == '-':
			procs = string(part[1:])
		default:
			column += string(part[1:]) + " "
		}
	}
	g := r.of("Benchmark" + string(base))
	for _, v := range result.Values {
		unit, value := v.Unit, v.Value
		if v.OrigUnit != "" {
			unit, value = v.OrigUnit, v.OrigValue
		}
		c := g.at(row, column+"@"+procs, unit)
		g.values[c] = append(g.values[c], value)
	}
}

// compareEach compares the values of each round.
func compareEach(values, bases []float64, compare func(value, base float64) float64) []float64 {
	compared := make([]float64, min(len(values), len(bases)))
	for i := range compared {
		compared[i] = compare(values[i], bases[i])
	}
	return compared
}

// spread writes the median and, if they differ from it, the least and the largest.
func spread(values []float64, format string) string {
	if len(values) == 0 {
		return "–"
	}
	text := fmt.Sprintf(format, median(values))
	least, most := fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values))
	if least == most {
		return text
	}
	return fmt.Sprintf("%s (%s–%s)", text, least, most)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func largest(values []float64) float64 {
	most := math.Inf(-1)
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// rounds returns the number of rounds.
func (r *results) rounds() int {
	most := 0
	for _, g := range r.grids {
		for _, values := range g.values {
			most = max(most, len(values))
		}
	}
	return most
}

// writeMachines writes when, where and with which versions the rounds were measured.
func (r *results) writeMachines(w io.Writer) {
	for _, m := range r.machines {
		fmt.Fprintf(w, "%s.\n", m)
	}
	fmt.Fprintf(w, "\n%d rounds, on %s.\n", r.rounds(), strings.TrimSpace(r.processor))
}

// machineLine begins the first line of a run's raw output. The rest of the line says when,
// where and with which versions the run was measured.
const machineLine = "=== MACHINE "

// writeMachine writes the first line of a run's raw output.
func writeMachine(w io.Writer) error {
	list := exec.Command("go", "list", "-m", "-f", "{{if not (or .Main .Indirect .Replace)}}{{.Path}} {{.Version}}{{end}}", "all")
	modules, err := list.Output()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s, %s, %s/%s, %d processors; %s\n", machineLine, time.Now().Format("2 January 2006"),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.Join(strings.Split(strings.TrimSpace(string(modules)), "\n"), ", "))
	return err
}
