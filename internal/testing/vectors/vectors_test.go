package vectors_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/vectors"
)

var update = flag.Bool("update", false, "write testdata/limits.json again")

const (
	ms   = time.Millisecond
	sec  = time.Second
	hour = time.Hour
)

func TestVectorsAreThere(t *testing.T) {
	require.Equal(t, 71, len(vectors.Single()))
	require.Equal(t, 48, len(vectors.Several()))
	for _, v := range vectors.All() {
		require.NotEmpty(t, v.Steps, v.Name)
	}
}

// These types are the form of the file. Its values are numbers, or fractions in quotes.
type (
	exactLimit struct {
		Capacity     string `json:"capacity"`
		RefillPerSec string `json:"refill_per_sec"`
	}
	exactSequence struct {
		Name    string            `json:"name"`
		Why     string            `json:"why"`
		Limits  []exactLimit      `json:"limits"`
		Columns []string          `json:"columns"`
		Steps   []json.RawMessage `json:"steps"`
	}
)

// The sequences with one limit were computed by another program. So the model, which
// computes those with several limits, is first compared with them: in exact fractions,
// without tolerance.
func TestModelAgreesWithTheVectorsOfOneLimit(t *testing.T) {
	var sequences []struct {
		exactLimit
		Steps [][]json.RawMessage
	}
	data, err := os.ReadFile("testdata/bucket.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &sequences))
	for i, v := range vectors.Single() {
		bucket := newModel(sequences[i].exactLimit)
		for j, step := range v.Steps {
			wait, ok := bucket.Take(step.At, rat(strings.Trim(string(sequences[i].Steps[j][1]), `"`)))
			require.Equal(t, step.OK, ok, "%s, step %d", v.Name, j)
			require.Equal(t, step.Wait, wait, "%s, step %d", v.Name, j)
			tokens, _ := bucket.At(step.At).Least().Float64()
			require.Equal(t, step.Tokens, tokens, "%s, step %d", v.Name, j)
		}
	}
}

// The model has computed the sequences with several limits. This test checks that the
// file still has the model's results.
func TestModelAgreesWithTheVectorsOfSeveralLimits(t *testing.T) {
	const file = "testdata/limits.json"
	want := encode(generate())
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "write it anew with: go test ./internal/testing/vectors -update")
}

func encode(sequences []exactSequence) []byte {
	var out bytes.Buffer
	for i, sequence := range sequences {
		line, err := json.Marshal(sequence)
		if err != nil {
			panic(err)
		}
		out.WriteString([]string{"[\n", ",\n"}[min(i, 1)])
		out.Write(line)
	}
	out.WriteString("\n]\n")
	return out.Bytes()
}

func generate() []exactSequence {
	two := []exactLimit{{"30", "1/2"}, {"300", "1/12"}}
	sequences := []exactSequence{
		work("minute-and-hour", "30 a minute and 300 an hour, greedy: the hour binds in the end", two, greedy(1100, "1")),
		work("within", "at most 29 in any minute and 299 in any hour", []exactLimit{{"20", "9/60"}, {"28", "271/3600"}}, greedy(100, "1")),
		work("second-and-day", "10 a second and 100 a day", []exactLimit{{"10", "10"}, {"100", "1/864"}}, greedy(320, "1")),
		work("mixed-costs", "the wait is the longest of both, which are not bound by the same", []exactLimit{{"10", "1"}, {"20", "1/3"}}, greedy(60, "5", "1", "3", "1/2")),
		work("alike", "on a tie the first binds, and both are spent from", []exactLimit{{"2", "1/2"}, {"2", "1/2"}}, greedy(30, "1")),
		work("one-capped", "one is full long before the other pays", []exactLimit{{"4", "7"}, {"6", "1/7"}}, greedy(40, "2", "1")),
		work("refused-by-one", "a refusal by one takes nothing from the others", []exactLimit{{"3", "1"}, {"100", "1/60"}, {"10", "1/4"}}, poll(80, 100*ms, "1", "3")),
		work("above-one", "what is above one capacity can never be met, and takes nothing", []exactLimit{{"5/2", "3"}, {"10", "10/13"}}, poll(30, 370*ms, "5", "2", "0")),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		limits := randomLimits(random, 2+i%2)
		sequences = append(sequences, work(fmt.Sprintf("random-%d", i), "a random sequence", limits, randomly(random, limits)))
	}
	return sequences
}

// client returns the next request, and how long after the last one it comes. It gets the
// wait of the last request.
type client func(wait time.Duration) (after time.Duration, cost string, more bool)

// greedy sends its requests at once. After a refusal, it comes back a nanosecond too
// early, and then exactly after the wait.
func greedy(requests int, costs ...string) client {
	asked, early := 0, false
	cost := costs[0]
	return func(wait time.Duration) (time.Duration, string, bool) {
		asked++
		if wait == 0 {
			cost, early = costs[asked%len(costs)], false
		} else if early = !early && wait > 1; early {
			wait--
		}
		return wait, cost, asked <= requests
	}
}

// poll sends requests at regular intervals, whatever the answers.
func poll(requests int, every time.Duration, costs ...string) client {
	asked := 0
	return func(time.Duration) (time.Duration, string, bool) {
		asked++
		return every, costs[asked%len(costs)], asked <= requests
	}
}

// randomly sends random requests. A few of them can never be admitted.
func randomly(random *rand.Rand, limits []exactLimit) client {
	costs := []string{"1", "1", "1", "1/2", "3/10", "2", "2", "5", "0"}
	cost := func() string { return costs[random.IntN(len(costs))] }
	full, asked := newModel(limits...), 0
	return func(wait time.Duration) (time.Duration, string, bool) {
		asked++
		after := []time.Duration{
			0, time.Duration(random.Int64N(int64(3 * sec))), time.Duration(random.Int64N(1000)) * ms, wait, wait - 1,
		}[random.IntN(5)]
		if after < 0 || after > hour {
			after = 250 * ms
		}
		next := cost()
		for full.Wait(rat(next)) == tokenbucket.Never && random.IntN(20) > 0 {
			next = cost()
		}
		return after, next, asked <= 60
	}
}

// randomLimits returns limits. Some have refills and capacities that no float64 can
// represent.
func randomLimits(random *rand.Rand, n int) []exactLimit {
	capacities := []string{"1", "3/2", "2", "5", "5", "10", "10", "30", "300", "17/10"}
	refills := []string{"1/60", "1/12", "1/3", "1/2", "1", "10/13", "2", "7", "60", "1000"}
	limits := make([]exactLimit, n)
	for i := range limits {
		limits[i] = exactLimit{capacities[random.IntN(len(capacities))], refills[random.IntN(len(refills))]}
	}
	return limits
}

func work(name, why string, limits []exactLimit, next client) exactSequence {
	sequence := exactSequence{Name: name, Why: why, Limits: limits, Columns: []string{"t_ns", "cost", "ok", "wait_ns", "tokens_after"}}
	bucket := newModel(limits...)
	var now, wait time.Duration
	for {
		after, cost, more := next(wait)
		if !more {
			return sequence
		}
		if after < hour*1000 { // there is no waiting for never
			now += after
		}
		var ok bool
		wait, ok = bucket.Take(now, rat(cost))
		sequence.Steps = append(sequence.Steps, row(now, cost, ok, wait, bucket.At(now).Least()))
	}
}

func row(now time.Duration, cost string, ok bool, wait time.Duration, tokens *big.Rat) json.RawMessage {
	level, _ := tokens.Float64()
	waits := "null"
	if wait != tokenbucket.Never {
		waits = fmt.Sprint(int64(wait))
	}
	return json.RawMessage(fmt.Sprintf("[%d,%q,%t,%s,%v]", now, cost, ok, waits, level))
}

// newModel uses the exact fractions, not the closest float64s.
func newModel(limits ...exactLimit) *model.Bucket {
	exact := make([]model.Limit, len(limits))
	for i, l := range limits {
		exact[i] = model.Limit{Capacity: rat(l.Capacity), RefillPerSec: rat(l.RefillPerSec)}
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
