package main

import (
	"fmt"
	"io"
	"strings"
)

// table describes a table of README.md: the benchmarks of a round, and the columns.
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
	match     string // a pattern for the rest of a benchmark's name: peer/...
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
		note:  "Rows in brackets measure the machine, and (call) measures the benchmark itself. go-limiter, throttled, ulule and tollbooth have one key. @ is GOMAXPROCS. failsafe, go-limiter and ulule count in windows; tailscale has no costs and reports no waits.",
		bench: "One",
		passes: []pass{
			{"./.*/serial", "30ms", "1"},
			{"./.*/parallel", "30ms", "2,8"},
		},
		views: []view{
			{unit: "ns/op", caption: "Time per decision: x-time-rate in ns, the others as a ratio to it", base: "x-time-rate", compare: ratio, format: "%.2f"},
			{unit: "ns/op", caption: "The same: (time.Since,CAS) in ns, the others as a ratio to it", base: "(time.Since,CAS)", compare: ratio, format: "%.2f", columns: "draining serial"},
		},
	},
	{
		number: "2", title: "One limiter for each key",
		note:  "idiom is a map of x/time/rate's limiters behind one mutex. In the columns named rare, the clients send requests in turn, on a clock that advances by 1 us for each decision, and each finds its bucket full. Only idiom and tokenbucket can use such a clock.",
		bench: "Keyed",
		passes: []pass{
			{".", "300ms", "2"},
		},
		views: []view{
			{unit: "ns/op", caption: "Time per decision: idiom in ns, the others as a ratio to it", base: "idiom", compare: ratio, format: "%.2f"},
			{unit: "B/key", caption: "Bytes per key, without the key itself", format: "%.0f", columns: "1M-uniform"},
			{unit: "objects/key", caption: "Objects per key", format: "%.2f", columns: "1M-uniform"},
		},
	},
	{
		number: "3", title: "HTTP middleware",
		note:   "Figures are in addition to those of a bare handler with a recorder, which makes a header for each request and copies it, as net/http's server does. The key is the client's address. x-time-rate is the exception: it has one limiter for all clients, is called by hand and sets no fields. (fields) limits nothing: it sets the fields of tokenbucket to constants, without allocations of its own. These are five fields and, on a refusal, Retry-After and the body. So (fields) is the cost of the fields in any code, and the rest is the cost of the limiter.",
		test:   "TestHTTPFields",
		bench:  "HTTP",
		passes: []pass{{".", "50ms", "2"}},
		views: []view{
			{unit: "ns/op", caption: "Nanoseconds: the bare handler's own, and what each adds", base: "(bare)", compare: difference, format: "%.0f"},
			{unit: "ns/op", caption: "The same: (fields) with the bare handler in ns, the others as a difference from it", base: "(fields)", compare: difference, format: "%.0f"},
			{unit: "B/op", caption: "Bytes allocated", base: "(bare)", compare: difference, format: "%.0f"},
			{unit: "allocs/op", caption: "Allocations", base: "(bare)", compare: difference, format: "%.0f"},
		},
	},
	{
		number: "4", title: "Waiting",
		note:  "The capacity is the tokens of 10 ms, and the bucket starts empty. A rate above 1 is wrong: tokens came too early. failsafe spaces requests evenly.",
		bench: "Wait",
		passes: []pass{
			{"./^1000_per_s", "1000x", "2"},
			{"./^100000_per_s", "20000x", "2"},
		},
		views: []view{
			{unit: "of-rate", caption: "Achieved rate, as a share of the configured rate", format: "%.4f"},
			{unit: "cpu-ns/token", caption: "Processor time per token: x-time-rate in ns, the others as a ratio to it", base: "x-time-rate", compare: ratio, format: "%.2f"},
		},
	},
	{
		number: "5", title: "Redis",
		note:   "The server runs on the same machine. Every request is admitted. Every decision writes to the server, except those from a lease of 100 tokens.",
		bench:  "Redis",
		passes: []pass{{".", "100ms", "2"}},
		views: []view{
			{unit: "decisions/s", caption: "PINGs a second, and the decisions a second of the others as a share of that", base: "(PING)", compare: ratio, format: "%.2f"},
			{unit: "decisions/s", caption: "The same: redis_rate in decisions a second, the others as a ratio to it", base: "redis_rate", compare: ratio, format: "%.2f"},
			{unit: "trips/decision", caption: "Round trips per decision", format: "%.3f"},
		},
	},
	{
		number: "6", title: "Exactness",
		note: "Every peer whose clock can be set decides sequences whose right answers were computed in exact rational arithmetic. A peer gets only the sequences that it can express: whole capacities and costs, one limit. A sequence ends at its first wrong decision. running-level is the textbook formula.",
		test: "TestExactness",
	},
	{
		number: "7", title: "Fairness",
		note: "On a virtual clock, an empty bucket refills 10 tokens a second. First, a request for 5 tokens waits while others try to take one token, 20 times a second: at best it waits 500 ms. Then a request for one token waits behind a waiter for 5 tokens that gives up after 100 ms: at best it waits 100 ms. throttled has no queue: a refused request is sent again after the reported wait.",
		test: "TestFairness",
	},
	{
		number: "8", title: "Bytes per second",
		note:   "A copy in memory takes the tokens of a full bucket and then runs for a second. Its buffers hold the bytes of a second, but at most 1 MiB. x-time-rate is called by hand for the same chunks as tokenbucket, with the same capacity. juju has that capacity and writes whole buffers. rclone and restic use x/time/rate as the programs of these names do. The capacity of rclone is 4 MiB, or 1/64 s of the rate if that is more. The capacity of restic is a second of the rate.",
		bench:  "Bytes",
		passes: []pass{{".", "1x", "2"}},
		views: []view{
			{unit: "of-rate", caption: "Rate after the tokens of the full bucket, as a share of the configured rate; more than 1 is wrong", format: "%.4f"},
			{unit: "ms-ahead", caption: "The largest excess over rate × time in any window, in ms of the rate", format: "%.1f"},
			{unit: "cpu-ms/GB", caption: "Processor time: x-time-rate in ms per gigabyte, the others as a ratio to it", base: "x-time-rate", compare: ratio, format: "%.2f"},
		},
	},
	{
		number: "9", title: "gRPC interceptors",
		note:   "Unary calls: first the interceptor alone, without sending its trailers, then a whole call over loopback TCP, with server and client in one process. go-grpc-middleware has one limiter of x/time/rate for all, and its refusals report no wait. tokenbucket has a bucket for each address; -no-fields omits ratelimit and ratelimit-policy. In the columns full and draining the calls are admitted. In the column full, all calls have the same figures. In the column draining, each call has other figures. (figures) limits nothing, and sends the figures of tokenbucket as constants: that is gRPC's own cost.",
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

// writeState writes the state of the machine during the measurement, if that was
// measured.
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

// formatOf returns the format of a row's numbers: those of a base are whole.
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

// headings leaves out the number of processors if it is the same in all columns.
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
