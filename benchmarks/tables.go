package main

import (
	"fmt"
	"io"
	"strings"
)

// table is the benchmarks of a round that make a table of README.md, and its columns.
type table struct {
	number, title string
	note          string
	test          string // reports rows as attributes, the same in each run
	bench         string // the benchmark, after "Benchmark"
	passes        []pass
	views         []view
}

// pass is a part of a benchmark, and how it is run.
type pass struct {
	match     string // below the peer
	benchtime string
	cpu       string
}

// view is one unit of a benchmark's results, compared with one of the rows.
type view struct {
	unit    string
	caption string
	base    string // shown unchanged; no comparison if empty
	compare func(value, base float64) float64
	format  string
	columns string // only those that contain this
}

func ratio(value, base float64) float64      { return value / base }
func difference(value, base float64) float64 { return value - base }

var tables = []table{
	{
		number: "1", title: "One limiter",
		note:  "Rows in brackets are the limits of the machine; (call) is the harness itself. go-limiter, throttled, ulule and tollbooth have one key. @ is GOMAXPROCS. failsafe, go-limiter and ulule count in windows; tailscale knows neither costs nor waits.",
		bench: "One",
		passes: []pass{
			{"./.*/serial", "30ms", "1"},
			{"./.*/parallel", "30ms", "2,8"},
		},
		views: []view{
			{unit: "ns/op", caption: "Time per decision: x-time-rate in ns, the others as a ratio to it", base: "x-time-rate", compare: ratio, format: "%.2f"},
			{unit: "ns/op", caption: "The same beside one clock read and one compare-and-swap", base: "(time.Since,CAS)", compare: ratio, format: "%.2f", columns: "draining serial"},
		},
	},
	{
		number: "2", title: "One limiter for each key",
		note:  "idiom is a map of x/time/rate's limiters behind one mutex. rare: the clients ask in turn, on a clock that advances by 1 us for each decision, and each finds its bucket full again; only these two read such a clock.",
		bench: "Keyed",
		passes: []pass{
			{".", "300ms", "2"},
		},
		views: []view{
			{unit: "ns/op", caption: "Time per decision: idiom in ns, the others as a ratio to it", base: "idiom", compare: ratio, format: "%.2f"},
			{unit: "B/key", caption: "Bytes per key besides the key itself", format: "%.0f", columns: "1M-uniform"},
			{unit: "objects/key", caption: "Objects per key", format: "%.2f", columns: "1M-uniform"},
		},
	},
	{
		number: "3", title: "HTTP middleware",
		note:   "Over a bare handler with a recorder, which makes a header for each request and copies it, as net/http's server does; by the client's address, but x-time-rate, which is one limiter for all, by hand, without fields. (fields) limits nothing, and sets what tokenbucket does from constants, with no allocation of its own: five fields, and on a refusal Retry-After and the body as well. That is what these cost in any code; the rest is the cost of the limiter.",
		test:   "TestHTTPFields",
		bench:  "HTTP",
		passes: []pass{{".", "50ms", "2"}},
		views: []view{
			{unit: "ns/op", caption: "Nanoseconds: the bare handler's own, and what each adds", base: "(bare)", compare: difference, format: "%.0f"},
			{unit: "ns/op", caption: "The same beside (fields)", base: "(fields)", compare: difference, format: "%.0f"},
			{unit: "B/op", caption: "Bytes allocated", base: "(bare)", compare: difference, format: "%.0f"},
			{unit: "allocs/op", caption: "Allocations", base: "(bare)", compare: difference, format: "%.0f"},
		},
	},
	{
		number: "4", title: "Waiting",
		note:  "The bucket holds the tokens of 10 ms and starts empty. More than 1 is wrong: tokens came before their time. failsafe spaces evenly.",
		bench: "Wait",
		passes: []pass{
			{"./^1000_per_s", "1000x", "2"},
			{"./^100000_per_s", "20000x", "2"},
		},
		views: []view{
			{unit: "of-rate", caption: "Achieved rate, of the configured one", format: "%.4f"},
			{unit: "cpu-ns/token", caption: "Processor time per token: x-time-rate in ns, the others as a ratio to it", base: "x-time-rate", compare: ratio, format: "%.2f"},
		},
	},
	{
		number: "5", title: "Redis",
		note:   "One server on the same machine; every decision is admitted. All are written, but those from a lease of 100 tokens.",
		bench:  "Redis",
		passes: []pass{{".", "100ms", "2"}},
		views: []view{
			{unit: "decisions/s", caption: "Decisions a second: PINGs a second, the others as a share of them", base: "(PING)", compare: ratio, format: "%.2f"},
			{unit: "decisions/s", caption: "The same beside redis_rate", base: "redis_rate", compare: ratio, format: "%.2f"},
			{unit: "trips/decision", caption: "Round trips per decision", format: "%.3f"},
		},
	},
	{
		number: "6", title: "Exactness",
		note: "Sequences in exact rational arithmetic, through every peer whose clock can be set. A peer gets only the sequences that it can express: whole capacities and costs, one limit. A sequence ends with its first wrong decision. running-level is the textbook formula.",
		test: "TestExactness",
	},
	{
		number: "7", title: "Fairness",
		note: "On a virtual clock, 10 tokens a second, none there. At best 5 tokens take 500 ms among others' tries for one, 20 a second; and one token 100 ms, when a waiter for 5 ahead of it gives up after 100 ms. throttled has no queue: a refused request is sent again after the reported wait.",
		test: "TestFairness",
	},
	{
		number: "8", title: "Bytes per second",
		note:   "Copies in memory, from a full bucket and then for a second, in buffers of a second or 1 MiB. x-time-rate waits by hand for the same chunks as tokenbucket, from the same capacity; juju has that capacity and writes whole buffers. rclone and restic are their ways with x/time/rate: a capacity of 4 MiB (1/64 s of the rate, if that is more) and of a second.",
		bench:  "Bytes",
		passes: []pass{{".", "1x", "2"}},
		views: []view{
			{unit: "of-rate", caption: "Rate reached after what the full bucket held, of the configured one; more than 1 is wrong", format: "%.4f"},
			{unit: "ms-ahead", caption: "Largest window: how far it ran ahead of the rate, in ms", format: "%.1f"},
			{unit: "cpu-ms/GB", caption: "Processor time: x-time-rate in ms per gigabyte, the others as a ratio to it", base: "x-time-rate", compare: ratio, format: "%.2f"},
		},
	},
	{
		number: "9", title: "gRPC interceptors",
		note:   "Unary calls: the interceptor alone, whose trailers go nowhere, and a call over loopback TCP with its client, in one process. go-grpc-middleware has one limiter of x/time/rate for all, and does not say when to come back; tokenbucket has one for each address, -no-fields without ratelimit and ratelimit-policy. (figures) limits nothing, and sends what tokenbucket does from constants: what that costs is gRPC's own.",
		test:   "TestGRPCRefusals",
		bench:  "GRPC",
		passes: []pass{{".", "200ms", "2"}},
		views: []view{
			{unit: "allocs/op", caption: "Allocations: the bare handler's own, and what each adds", base: "(bare)", compare: difference, format: "%.0f"},
			{unit: "ns/op", caption: "Time of a call: the bare server's in ns, the others as a ratio to it", base: "(bare)", compare: ratio, format: "%.2f", columns: "call"},
			{unit: "ns/op", caption: "Time of the interceptor alone, in ns", format: "%.0f", columns: "interceptor"},
		},
	},
}

// state is the pass that measures the state of the machine: how much two processors delay
// each other.
func (t table) state() pass { return pass{"^table_" + t.number + "$", "30ms", "1,2"} }

// write writes a table and all its views.
func (t table) write(w io.Writer, all *results) {
	fmt.Fprintf(w, "\n### %s. %s\n\n%s\n", t.number, t.title, t.note)
	t.writeState(w, all.of("BenchmarkMachine"))
	for _, v := range t.views {
		v.write(w, all.of("Benchmark"+t.bench))
	}
	if t.test != "" {
		writeAttributes(w, all.of(t.test))
	}
}

// writeState says how the machine was meanwhile, if that was measured.
func (t table) writeState(w io.Writer, g *grid) {
	times := func(column string) []float64 { return g.values[cell{"table_" + t.number, column, "ns/op"}] }
	if both := compareEach(times("@2"), times("@1"), ratio); len(both) > 0 {
		fmt.Fprintf(w, "\nThe machine: with 2 goroutines, one clock read and one compare-and-swap of the same word took %s times as long as with 1.\n", spread(both, "%.2f"))
	}
}

func (v view) write(w io.Writer, g *grid) {
	columns := g.columnsOf(v.unit, v.columns)
	fmt.Fprintf(w, "\n%s:\n\n", v.caption)
	writeHead(w, headings(columns))
	for _, row := range g.rows {
		cells := make([]string, len(columns))
		for i, column := range columns {
			cells[i] = v.cell(g, row, column)
		}
		writeRow(w, row, cells)
	}
}

func (v view) cell(g *grid, row, column string) string {
	values := g.values[cell{row, column, v.unit}]
	if values == nil {
		return "–"
	}
	if v.base != "" && row != v.base {
		values = compareEach(values, g.values[cell{v.base, column, v.unit}], v.compare)
	}
	text := spread(values, v.formatOf(row))
	if wrong := largest(g.values[cell{row, column, "%wrong"}]); wrong > 0 {
		text += fmt.Sprintf(", **up to %.2g %% wrong**", wrong)
	}
	return text
}

// formatOf returns how a row's numbers are written: a base's are whole.
func (v view) formatOf(row string) string {
	if row == v.base {
		return "%.0f"
	}
	return v.format
}

func writeAttributes(w io.Writer, g *grid) {
	fmt.Fprintln(w)
	writeHead(w, g.columns)
	for _, row := range g.rows {
		cells := make([]string, len(g.columns))
		for i, column := range g.columns {
			cells[i] = g.texts[cell{row, column, ""}]
		}
		writeRow(w, row, cells)
	}
}

// headings leaves out how many processors there were where that is always the same.
func headings(columns []string) []string {
	short := make([]string, len(columns))
	procs := map[string]bool{}
	for i, column := range columns {
		short[i], _, _ = strings.Cut(column, " @")
		procs[column[len(short[i]):]] = true
	}
	if len(procs) > 1 {
		return columns
	}
	return short
}

func writeHead(w io.Writer, columns []string) {
	fmt.Fprintf(w, "| | %s |\n|%s\n", strings.ReplaceAll(strings.Join(columns, " | "), "_", " "), strings.Repeat(" --- |", len(columns)+1))
}

func writeRow(w io.Writer, row string, cells []string) {
	fmt.Fprintf(w, "| %s | %s |\n", row, strings.Join(cells, " | "))
}
