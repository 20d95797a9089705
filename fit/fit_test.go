package fit_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/fit"
	"github.com/stretchr/testify/require"
)

const sec = time.Second

// readme is the trace of the root's README: requests of 1 token.
var readme = costs(1, 0, 0, 0, 0, 1*sec, 2*sec, 3*sec, 4*sec)

func costs(cost float64, instants ...time.Duration) (arrivals []fit.Arrival) {
	for _, at := range instants {
		arrivals = append(arrivals, fit.Arrival{At: at, Cost: cost})
	}
	return arrivals
}

// refusals replays a trace through Limit.Take.
func refusals(arrivals []fit.Arrival, limit tokenbucket.Limit) (refused int) {
	state := limit.Full(0)
	for _, a := range arrivals {
		var d tokenbucket.Decision
		if state, d = limit.Take(state, a.At, a.Cost); !d.OK {
			refused++
		}
	}
	return refused
}

func TestCapacityOfTheReadmesTrace(t *testing.T) {
	for _, row := range []struct{ refill, want float64 }{{0.25, 7}, {0.5, 6}, {1, 4}, {2, 4}} {
		got, err := fit.Capacity(slices.Values(readme), row.refill, 0)
		require.NoError(t, err)
		require.Equal(t, row.want, got, "refill %v", row.refill)
	}
	for capacity, want := range []int{1: 5, 4, 3, 2, 1, 0} {
		if capacity > 0 {
			require.Equal(t, want, refusals(readme, tokenbucket.Limit{Capacity: float64(capacity), RefillPerSec: 0.5}))
		}
	}
	got, err := fit.Capacity(slices.Values(readme), 0.5, 0.25)
	require.NoError(t, err)
	require.Equal(t, 4.0, got)
}

func TestUnequalCostsAreScanned(t *testing.T) {
	arrivals := []fit.Arrival{{0, 3}, {0, 1}, {0, 1}}
	const refill = 1e-9
	for capacity, want := range []int{1: 2, 1, 2, 1, 0} {
		if capacity > 0 {
			require.Equal(t, want, refusals(arrivals, tokenbucket.Limit{Capacity: float64(capacity), RefillPerSec: refill}))
		}
	}
	for _, row := range []struct{ share, want float64 }{{0, 5}, {0.34, 4}, {0.67, 1}} {
		got, err := fit.Capacity(slices.Values(arrivals), refill, row.share)
		require.NoError(t, err)
		require.Equal(t, row.want, got, "share %v", row.share)
	}
}

func TestCapacityRejectsWhatIsOutOfRange(t *testing.T) {
	for _, row := range []struct {
		name          string
		arrivals      []fit.Arrival
		refill, share float64
		want          error
	}{
		{"refill 0", readme, 0, 0, tokenbucket.ErrInvalidLimit},
		{"refill below 0", readme, -1, 0, tokenbucket.ErrInvalidLimit},
		{"refill NaN", readme, math.NaN(), 0, tokenbucket.ErrInvalidLimit},
		{"refill infinite", readme, math.Inf(1), 0, tokenbucket.ErrInvalidLimit},
		{"share below 0", readme, 1, -0.1, tokenbucket.ErrInvalidOption},
		{"share 1", readme, 1, 1, tokenbucket.ErrInvalidOption},
		{"share NaN", readme, 1, math.NaN(), tokenbucket.ErrInvalidOption},
		{"cost below 0", costs(-1, 0), 1, 0, tokenbucket.ErrInvalidCost},
		{"cost NaN", costs(math.NaN(), 0), 1, 0, tokenbucket.ErrInvalidCost},
		{"cost above 2^42", costs(1<<43, 0), 1, 0, tokenbucket.ErrCostExceedsCapacity},
		{"more than 2^42 needed", costs(1<<42, 0, 0), 1, 0, tokenbucket.ErrInvalidLimit},
		{"no arrivals", nil, 1, 0, fit.ErrNoArrivals},
		{"free arrivals", costs(0, 0, 1), 1, 0.5, fit.ErrNoArrivals},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := fit.Capacity(slices.Values(row.arrivals), row.refill, row.share)
			require.ErrorIs(t, err, row.want)
		})
	}
}

func TestArrivalsLateInOrderCountAsSimultaneous(t *testing.T) {
	got, err := fit.Capacity(slices.Values(costs(1, 5*sec, 0, 5*sec)), 1, 0)
	require.NoError(t, err)
	require.Equal(t, 3.0, got)
}

// bruteForce returns the least capacity, on a grid of quarters, such that it and every larger one refuse
// at most the share.
func bruteForce(arrivals []fit.Arrival, refill, share float64) (capacity float64) {
	total := 0.0
	for _, a := range arrivals {
		total += a.Cost
	}
	for capacity = total; capacity > 0.25; capacity -= 0.25 {
		limit := tokenbucket.Limit{Capacity: capacity - 0.25, RefillPerSec: refill}
		if float64(refusals(arrivals, limit)) > share*float64(len(arrivals)) {
			break
		}
	}
	return capacity
}

func TestCapacityEqualsBruteForce(t *testing.T) {
	traces := 10_000
	if testing.Short() {
		traces = 500
	}
	for seed := range traces {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		arrivals := randomArrivals(random)
		refill := []float64{0.25, 0.5, 1, 2, 4}[random.IntN(5)]
		share := []float64{0, 0, 0.1, 0.25, 0.5}[random.IntN(5)]
		got, err := fit.Capacity(slices.Values(arrivals), refill, share)
		require.NoError(t, err)
		require.Equal(t, bruteForce(arrivals, refill, share), got, "seed %d, refill %v, share %v, %v", seed, refill, share, arrivals)
	}
}

// randomArrivals returns up to thirty arrivals at whole seconds, whose needs are quarters.
func randomArrivals(random *rand.Rand) (arrivals []fit.Arrival) {
	alike, at := random.IntN(2) == 0, time.Duration(0)
	for range 1 + random.IntN(30) {
		at += time.Duration(random.IntN(4)/2*random.IntN(6)) * sec
		cost := 1.0
		if !alike {
			cost = float64(1 + random.IntN(4))
		}
		arrivals = append(arrivals, fit.Arrival{At: at, Cost: cost})
	}
	return arrivals
}

// At any refill, Take admits everything at the capacity found, and not a millionth below it.
func TestCapacityIsLeastForAnyNumbers(t *testing.T) {
	for seed := range 500 {
		random := rand.New(rand.NewPCG(uint64(seed), 2))
		var arrivals []fit.Arrival
		at := time.Duration(0)
		for range 1 + random.IntN(200) {
			at += time.Duration(random.ExpFloat64() * 1e9)
			arrivals = append(arrivals, fit.Arrival{At: at, Cost: random.Float64() + 0.001})
		}
		refill := 0.01 + random.Float64()
		got, err := fit.Capacity(slices.Values(arrivals), refill, 0)
		require.NoError(t, err)
		require.Zero(t, refusals(arrivals, tokenbucket.Limit{Capacity: got * (1 + 1e-12), RefillPerSec: refill}), "seed %d", seed)
		require.NotZero(t, refusals(arrivals, tokenbucket.Limit{Capacity: got * (1 - 1e-6), RefillPerSec: refill}), "seed %d", seed)
	}
}
