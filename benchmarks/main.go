// Command benchmarks measures tokenbucket beside the limiters that are used most, in
// one run, and prints tables in Markdown.
//
//	go run .                            # all tables: some minutes
//	go run . -tables 1,3 -rounds 10
//	go run . -update                    # into README.md and results
//
// Each round runs every peer once, one after the other, so that other load on the machine
// affects all alike. Ratios are taken within a round; a table shows their median and, in
// brackets, the least and the largest. The measurements are in the tests of this module,
// one file for each table. This program only runs them and makes the tables.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

var (
	numbers = flag.String("tables", allNumbers(), "which tables, by number")
	rounds  = flag.Int("rounds", 6, "how often each peer is measured; 0 makes the tables again from the raw output")
	folder  = flag.String("results", "", "a folder for the raw output, one file for each table: this run adds its rounds, and the tables show all rounds in the folder")
	update  = flag.Bool("update", false, "measure for README.md: replace the raw output in results, and write all tables to README.md")
)

func main() {
	log.SetFlags(log.Ltime)
	flag.Parse()
	if err := measure(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// measure runs the tables that the flags name, and writes them.
func measure(w io.Writer) error {
	asked, err := askedTables()
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	switch {
	case *update:
		*folder = "results"
		if err := discard(asked); err != nil {
			return err
		}
	case *folder == "":
		*folder = temporary
	}
	if err := runTables(filepath.Join(temporary, "benchmarks.test"), asked); err != nil {
		return err
	}
	if *update {
		return updateReadme("README.md")
	}
	return writeTables(w, asked)
}

func allNumbers() string {
	var all []string
	for _, t := range tables {
		all = append(all, t.number)
	}
	return strings.Join(all, ",")
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

// rawFile returns the path of a table's raw output.
func (t table) rawFile() string { return filepath.Join(*folder, "table-"+t.number+".txt") }

// discard removes the raw output of the tables that are measured again.
func discard(asked []table) error {
	for _, t := range asked {
		if *rounds == 0 {
			break
		}
		if err := os.Remove(t.rawFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// runTables runs all rounds, and adds what the test binary prints to the raw output.
func runTables(binary string, asked []table) error {
	if *rounds == 0 {
		return nil
	}
	if err := run(os.Stderr, "go", "test", "-c", "-o", binary, "."); err != nil {
		return err
	}
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	for round := range *rounds {
		for _, t := range asked {
			log.Printf("round %d of %d, table %s", round+1, *rounds, t.number)
			if err := t.addRound(binary, round); err != nil {
				return fmt.Errorf("table %s: %w: its output is in %s", t.number, err, t.rawFile())
			}
		}
	}
	return nil
}

func (t table) addRound(binary string, round int) error {
	f, err := os.OpenFile(t.rawFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(t.run(f, binary, round), f.Close())
}

// writeTables writes tables from their raw output.
func writeTables(w io.Writer, asked []table) error {
	var raw bytes.Buffer
	for _, t := range asked {
		output, err := os.ReadFile(t.rawFile())
		if err != nil {
			return fmt.Errorf("%w: measure table %s first", err, t.number)
		}
		raw.Write(output)
	}
	results, err := parse(&raw)
	if err != nil {
		return err
	}
	results.writeMachines(w)
	for _, t := range asked {
		t.write(w, results)
	}
	return nil
}

// updateReadme replaces the tables, at the end of the page, by those of all raw output.
func updateReadme(path string) error {
	const heading = "## The tables\n"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, ok := strings.Cut(string(text), heading)
	if !ok {
		return fmt.Errorf("%s has no heading %q", path, heading)
	}
	var written bytes.Buffer
	fmt.Fprintf(&written, "%s%s\n", before, heading)
	if err := writeTables(&written, tables); err != nil {
		return err
	}
	return os.WriteFile(path, written.Bytes(), 0o644)
}

// run runs a round of a table. It runs tests, whose results are always the same, only in
// the first round.
func (t table) run(w io.Writer, binary string, round int) error {
	if round == 0 {
		if err := writeMachine(w); err != nil {
			return err
		}
	}
	if t.test != "" && round == 0 {
		if err := run(w, binary, "-test.v", "-test.run=^"+t.test+"$"); err != nil {
			return err
		}
	}
	if t.bench != "" {
		if err := t.state().run(w, binary, "Machine"); err != nil {
			return err
		}
	}
	for _, p := range t.passes {
		if err := p.run(w, binary, t.bench); err != nil {
			return err
		}
	}
	return nil
}

func (p pass) run(w io.Writer, binary, bench string) error {
	return run(w, binary, "-test.run=^$", "-test.bench=^Benchmark"+bench+"$/"+p.match,
		"-test.benchtime="+p.benchtime, "-test.cpu="+p.cpu)
}

func run(w io.Writer, name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Stdout, command.Stderr = w, os.Stderr
	return command.Run()
}
