// Package vectors holds sequences of requests worked out in exact rational
// arithmetic, which everything that decides is held to.
package vectors

import (
	"embed"
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Sequence is a bucket, full at 0, and the requests it gets.
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
	Wait   time.Duration // tokenbucket.Never if it can never be admitted
	Tokens float64       // the least of the levels afterwards
}

//go:embed testdata
var files embed.FS

// Single returns the sequences with one limit each. It panics where the file is
// not as it should be, since that is part of the program.
func Single() []Sequence {
	data, err := files.ReadFile("testdata/bucket.json")
	if err != nil {
		panic(err)
	}
	var raws []struct {
		Name         string
		Capacity     json.RawMessage
		RefillPerSec json.RawMessage `json:"refill_per_sec"`
		Steps        [][]json.RawMessage
	}
	if err := json.Unmarshal(data, &raws); err != nil {
		panic(err)
	}
	sequences := make([]Sequence, len(raws))
	for i, raw := range raws {
		limit := tokenbucket.Limit{Capacity: number(raw.Capacity), RefillPerSec: number(raw.RefillPerSec)}
		sequences[i] = Sequence{raw.Name, []tokenbucket.Limit{limit}, steps(raw.Steps)}
	}
	return sequences
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
