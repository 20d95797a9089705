package fit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket/fit"
	"github.com/stretchr/testify/require"
)

// rising returns arrivals whose gaps shrink, so that nearly each of them is a vertex of the
// hull: in equal steps, at random, or with pauses in which a bucket fills.
func rising(random *rand.Rand, kind int) (arrivals []fit.Arrival) {
	at, n := time.Duration(0), 300+random.IntN(900)
	for gap := n; gap > 0; gap-- {
		quarters := gap
		switch {
		case kind == 1:
			quarters = gap/2 + random.IntN(gap)
		case kind == 2 && random.IntN(200) == 0:
			quarters *= 100
		}
		at += time.Duration(quarters) * 250 * time.Millisecond
		for range 1 + random.IntN(2)*random.IntN(2) {
			arrivals = append(arrivals, fit.Arrival{At: at, Cost: float64(1 + random.IntN(3))})
		}
	}
	return arrivals
}

// A long hull is extended in batches, and a question may come in the middle of one.
func TestCapacityWhileTheRateRises(t *testing.T) {
	refills := []float64{0.25, 0.5, 1, 2, 4, 8}
	for seed := range 60 {
		random := rand.New(rand.NewPCG(uint64(seed), 5))
		traffic := fit.NewTraffic([]float64{0, 0.001, 0.25}[seed%3])
		owed, need := make([]float64, len(refills)), make([]float64, len(refills))
		latest := time.Duration(0)
		for i, a := range rising(random, seed%3) {
			require.NoError(t, traffic.Add("k", a))
			for j, refill := range refills {
				owed[j] = max(0, owed[j]-(a.At-latest).Seconds()*refill) + a.Cost
				need[j] = max(need[j], owed[j])
				if i%97 == 0 {
					got, err := traffic.Capacity(refill, 0)
					require.NoError(t, err)
					require.Equal(t, need[j], got, "seed %d, arrival %d, refill %v", seed, i, refill)
				}
			}
			latest = a.At
		}
	}
}

// BenchmarkRisingRate adds a million arrivals of one bucket, whose rate rises twentyfold over a day.
func BenchmarkRisingRate(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	arrivals, at := make([]fit.Arrival, 1_000_000), 0.0
	for i := range arrivals {
		at += random.ExpFloat64() / (1 + 20*at/86400)
		arrivals[i] = fit.Arrival{At: time.Duration(at*1e3) * time.Millisecond, Cost: 1}
	}
	for b.Loop() {
		traffic := fit.NewTraffic(1.0 / 60)
		for _, a := range arrivals {
			if err := traffic.Add("", a); err != nil {
				b.Fatal(err)
			}
		}
	}
}
