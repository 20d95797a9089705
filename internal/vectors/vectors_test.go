package vectors_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/model"
	"github.com/aa014e13/tokenbucket/internal/vectors"
)

var update = flag.Bool("update", false, "write testdata/limits.json anew")

type fraction string // "1/2"

type exactLimit struct {
	Capacity     fraction `json:"capacity"`
	RefillPerSec fraction `json:"refill_per_sec"`
}

type exactSequence struct {
	Name   string            `json:"name"`
	Limits []exactLimit      `json:"limits"`
	Steps  []json.RawMessage `json:"steps"`
}

// The sequences of several limits are worked out by the exact model from seeded
// random requests, and kept: this is the test that they still are what it says.
func TestSeveralLimitsWorkedOutExactly(t *testing.T) {
	const file = "testdata/limits.json"
	want := generate()
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "write it anew with: go test ./internal/vectors -update")
}

func TestVectorsAreThere(t *testing.T) {
	require.Len(t, vectors.Single(), 71)
	require.Len(t, vectors.Several(), 40)
	for _, sequence := range vectors.All() {
		require.NotEmpty(t, sequence.Steps, sequence.Name)
	}
}

func generate() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	out.WriteString("[")
	for i := range 40 {
		if i > 0 {
			out.WriteString(",")
		}
		sequence := work(fmt.Sprintf("random-%d", i), randomLimits(random, 2+i%2), random)
		line, err := json.Marshal(sequence)
		if err != nil {
			panic(err)
		}
		out.WriteString("\n" + string(line))
	}
	out.WriteString("\n]\n")
	return out.Bytes()
}

// Powers of two, so that a capacity's float64 is the fraction itself, and refills
// that float64 has to round.
func randomLimits(random *rand.Rand, n int) []exactLimit {
	capacities := []fraction{"1", "3/2", "2", "5", "10", "30", "300", "1000"}
	refills := []fraction{"1/60", "1/12", "1/3", "1/2", "1", "10/13", "2", "7", "60", "1000"}
	limits := make([]exactLimit, n)
	for i := range limits {
		limits[i] = exactLimit{capacities[random.IntN(len(capacities))], refills[random.IntN(len(refills))]}
	}
	return limits
}

func work(name string, limits []exactLimit, random *rand.Rand) exactSequence {
	sequence := exactSequence{Name: name, Limits: limits}
	bucket := newModel(limits)
	costs := []string{"1", "1", "1", "1/2", "2", "5", "0"}
	var now time.Duration
	for range 60 {
		cost := costs[random.IntN(len(costs))]
		wait, ok := bucket.Take(now, rat(cost))
		sequence.Steps = append(sequence.Steps, row(now, cost, ok, wait, bucket.Least()))
		switch random.IntN(4) {
		case 0: // at once
		case 1:
			now += time.Duration(random.Int64N(int64(3 * time.Second)))
		case 2:
			now += time.Duration(random.Int64N(1000)) * time.Millisecond
		case 3: // the very instant, or the nanosecond before
			if !ok && wait < time.Hour {
				now += wait - time.Duration(random.IntN(2))
			}
		}
	}
	return sequence
}

// newModel takes the fractions themselves, not the float64s next to them.
func newModel(limits []exactLimit) *model.Bucket {
	var exact []model.Limit
	for _, l := range limits {
		exact = append(exact, model.Limit{Capacity: rat(string(l.Capacity)), RefillPerSec: rat(string(l.RefillPerSec))})
	}
	return model.NewExact(exact...)
}

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	return r
}

func row(now time.Duration, cost string, ok bool, wait time.Duration, tokens *big.Rat) json.RawMessage {
	level, _ := tokens.Float64()
	waits := "null"
	if wait != tokenbucket.Never {
		waits = fmt.Sprint(int64(wait))
	}
	return json.RawMessage(fmt.Sprintf("[%d,%q,%t,%s,%v]", now, cost, ok, waits, level))
}
