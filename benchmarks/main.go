// Command benchmarks measures tokenbucket beside the limiters that are used most, in
// one run, and prints tables in Markdown.
//
//	go run .                            # all tables: some minutes
//	go run . -tables 1,3 -rounds 10
//
// Each round runs every peer once, one after the other, so that what else the machine
// does hits all alike. Ratios are taken within a round; a table shows their median
// and, in brackets, the least and the largest. What is measured stands in the tests
// of this module, a file for each table; this program only runs them and counts.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

var (
	numbers = flag.String("tables", "1,2,3,4,5,6,7,8", "which tables, by number")
	rounds  = flag.Int("rounds", 6, "how often each peer is measured")
	logFile = flag.String("log", "", "a file to add this run's output to; the tables show all rounds in it")
)

func main() {
	log.SetFlags(log.Ltime)
	flag.Parse()
	if err := measure(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// measure runs the tables that were asked for, and writes them.
func measure(w io.Writer) error {
	asked, err := askedTables()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binary := filepath.Join(folder, "benchmarks.test")
	if err := run(os.Stderr, "go", "test", "-c", "-o", binary, "."); err != nil {
		return err
	}
	raw, err := runTables(binary, asked)
	if err != nil {
		return err
	}
	results, err := parse(raw)
	if err != nil {
		return err
	}
	if err := results.writeMachine(w); err != nil {
		return err
	}
	for _, t := range asked {
		t.write(w, results)
	}
	return nil
}

func askedTables() ([]table, error) {
	var asked []table
	for _, number := range strings.Split(*numbers, ",") {
		i := slices.IndexFunc(tables, func(t table) bool { return t.number == number })
		if i < 0 {
			return nil, fmt.Errorf("no table %q: choose among 1 to %d, with commas between", number, len(tables))
		}
		asked = append(asked, tables[i])
	}
	return asked, nil
}

// runTables returns what is in the log file, and what the test binary printed then.
func runTables(binary string, asked []table) (io.Reader, error) {
	var raw bytes.Buffer
	w, done, err := openLog(&raw)
	if err != nil {
		return nil, err
	}
	for round := range *rounds {
		for _, t := range asked {
			log.Printf("round %d of %d, table %s", round+1, *rounds, t.number)
			if err := t.run(w, binary, round); err != nil {
				return nil, errors.Join(fmt.Errorf("table %s: %w\n%s", t.number, err, raw.Bytes()), done())
			}
		}
	}
	return &raw, done()
}

// openLog reads the log file, if there is to be one, and returns what writes to both.
func openLog(raw *bytes.Buffer) (w io.Writer, done func() error, err error) {
	if *logFile == "" {
		return raw, func() error { return nil }, nil
	}
	f, err := os.OpenFile(*logFile, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if _, err := raw.ReadFrom(f); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return io.MultiWriter(raw, f), f.Close, nil
}

// run runs a round of a table; what comes out alike each time, in the first.
func (t table) run(w io.Writer, binary string, round int) error {
	if t.test != "" && round == 0 {
		if err := run(w, binary, "-test.v", "-test.run=^"+t.test+"$"); err != nil {
			return err
		}
	}
	for _, p := range t.passes {
		err := run(w, binary, "-test.run=^$", "-test.bench=^Benchmark"+t.bench+"$/"+p.match,
			"-test.benchtime="+p.benchtime, "-test.cpu="+p.cpu)
		if err != nil {
			return err
		}
	}
	return nil
}

func run(w io.Writer, name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Stdout, command.Stderr = w, os.Stderr
	return command.Run()
}
