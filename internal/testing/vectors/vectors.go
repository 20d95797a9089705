// Package vectors holds sequences of requests with their right answers, computed in exact
// rational arithmetic. Tests check all code that makes decisions against these answers.
package vectors

import (
	"embed"
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Sequence is a bucket that is full at instant 0, and requests to it.
type Sequence struct {
	Name   string
	Limits []tokenbucket.Limit
	Steps  []Step
}

// Step is a request and its right answer.
type Step struct {
	At     time.Duration
	Cost   float64
	OK     bool
	Wait   time.Duration // tokenbucket.Never if the cost is above a capacity
	Tokens float64       // the lowest level of all limits after the step
}

//go:embed testdata
var files embed.FS

// Single returns the sequences with one limit. Single, Several and All panic if their
// file is damaged, since the file is compiled into the program.
func Single() []Sequence { return load("testdata/bucket.json") }

// Several returns the sequences with two or three limits.
func Several() []Sequence { return load("testdata/limits.json") }

// All returns the sequences of Single and Several.
func All() []Sequence { return append(Single(), Several()...) }

type rawLimit struct {
	Capacity     json.RawMessage
	RefillPerSec json.RawMessage `json:"refill_per_sec"`
}

func load(file string) []Sequence {
	data, err := files.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var raws []struct {
		Name string
		rawLimit
		Limits []rawLimit // instead of the one limit
		Steps  [][]json.RawMessage
	}
	if err := json.Unmarshal(data, &raws); err != nil {
		panic(err)
	}
	sequences := make([]Sequence, len(raws))
	for i, raw := range raws {
		if raw.Limits == nil {
			raw.Limits = []rawLimit{raw.rawLimit}
		}
		sequences[i] = Sequence{raw.Name, limits(raw.Limits), steps(raw.Steps)}
	}
	return sequences
}

func limits(raws []rawLimit) []tokenbucket.Limit {
	limits := make([]tokenbucket.Limit, len(raws))
	for i, raw := range raws {
		limits[i] = tokenbucket.Limit{Capacity: number(raw.Capacity), RefillPerSec: number(raw.RefillPerSec)}
	}
	return limits
}

// steps reads the columns t_ns, cost, ok, wait_ns (null for Never), tokens_after.
func steps(rows [][]json.RawMessage) []Step {
	steps := make([]Step, len(rows))
	for i, row := range rows {
		steps[i] = Step{
			At:     time.Duration(number(row[0])),
			Cost:   number(row[1]),
			OK:     string(row[2]) == "true",
			Wait:   tokenbucket.Never,
			Tokens: number(row[4]),
		}
		if string(row[3]) != "null" {
			steps[i].Wait = time.Duration(number(row[3]))
		}
	}
	return steps
}

// number reads a number, or a fraction in quotes, to the nearest float64.
func number(raw json.RawMessage) float64 {
	text := string(raw)
	if text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(fmt.Sprintf("vectors: %q is not a number", text))
	}
	nearest, _ := exact.Float64()
	return nearest
}
