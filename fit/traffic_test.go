package fit_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/fit"
	"github.com/stretchr/testify/require"
)

// busy returns traffic of three keys: a sends 5 requests at once, b 3, c 1.
func busy(t *testing.T, keep bool) *fit.Traffic {
	traffic := fit.NewTraffic(0)
	if keep {
		traffic.Keep()
	}
	for key, n := range map[string]int{"a": 5, "b": 3, "c": 1} {
		for range n {
			require.NoError(t, traffic.Add(key, fit.Arrival{Cost: 1}))
		}
	}
	return traffic
}

func TestKeepAfterAddDoesNothing(t *testing.T) {
	traffic := busy(t, false)
	traffic.Keep()
	require.NoError(t, traffic.Add("a", fit.Arrival{Cost: 1}))
	require.NoError(t, traffic.Add("d", fit.Arrival{Cost: 1}))
	_, err := traffic.Capacity(1, 0.3)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	require.ErrorContains(t, err, "call Keep before Add")
}

func TestAShareJustBelowOneRefusesNotAll(t *testing.T) {
	traffic := busy(t, true)
	share := math.Nextafter(1, 0)
	of, err := traffic.CapacityOfKeys(1, share)
	require.NoError(t, err)
	require.Equal(t, 1.0, of, "c is served")
	of, err = traffic.Capacity(1, share)
	require.NoError(t, err)
	require.Equal(t, 1.0, of)
}

func TestEachKeyHasItsOwnBucket(t *testing.T) {
	traffic := busy(t, true)
	require.Equal(t, 3, traffic.Len())
	require.Equal(t, 9, traffic.Count())
	for _, row := range []struct{ share, want float64 }{{0, 5}, {0.1, 5}, {0.12, 4}, {0.3, 3}, {0.5, 2}} {
		got, err := traffic.Capacity(1, row.share)
		require.NoError(t, err)
		require.Equal(t, row.want, got, "share %v", row.share)
	}
}

func TestCapacityOfKeysSparesSome(t *testing.T) {
	traffic := busy(t, false)
	for _, row := range []struct{ refusedKeys, want float64 }{{0, 5}, {0.33, 5}, {0.34, 3}, {0.67, 1}} {
		got, err := traffic.CapacityOfKeys(1, row.refusedKeys)
		require.NoError(t, err)
		require.Equal(t, row.want, got, "share %v", row.refusedKeys)
	}
	require.Equal(t, []fit.Need{{Key: "a", Capacity: 5}, {Key: "b", Capacity: 3}}, traffic.Neediest(1, 2))
	require.Equal(t, 3.0, traffic.NeedOf("b", 1))
	require.Zero(t, traffic.NeedOf("unknown", 1))
	require.Empty(t, traffic.Neediest(1, -1))
}

func TestTrafficRejectsQuestionsItCannotAnswer(t *testing.T) {
	traffic := fit.NewTraffic(0.5)
	_, err := traffic.Capacity(1, 0)
	require.ErrorIs(t, err, fit.ErrNoArrivals)
	require.NoError(t, traffic.Add("a", fit.Arrival{Cost: 1}))
	_, err = traffic.Capacity(0.4, 0)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	_, err = traffic.Capacity(1, 0.1)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	require.ErrorIs(t, traffic.Add("a", fit.Arrival{Cost: -1}), tokenbucket.ErrInvalidCost)
	require.Equal(t, 1, traffic.Count())
}

// Times cut to whole seconds shift a capacity by at most the refill of one second.
func TestWholeSecondsShiftACapacityByOneSecondsRefill(t *testing.T) {
	var exact, whole []fit.Arrival
	for i := range 10 {
		at := time.Duration(i) * 100 * time.Millisecond
		exact = append(exact, fit.Arrival{At: at, Cost: 1})
		whole = append(whole, fit.Arrival{At: at.Truncate(sec), Cost: 1})
	}
	const refill = 10
	got, err := fit.Capacity(slices.Values(exact), refill, 0)
	require.NoError(t, err)
	require.Equal(t, 1.0, got)
	got, err = fit.Capacity(slices.Values(whole), refill, 0)
	require.NoError(t, err)
	require.Equal(t, 10.0, got)
}

// After one pass, the capacities of all refills from the least upwards equal those of
// brute force.
func TestOnePassAnswersForEveryRefill(t *testing.T) {
	for seed := range 300 {
		random := rand.New(rand.NewPCG(uint64(seed), 3))
		arrivals := randomArrivals(random)
		traffic := fit.NewTraffic(0.5)
		for _, a := range arrivals {
			require.NoError(t, traffic.Add("k", a))
		}
		for _, refill := range []float64{0.5, 0.75, 1, 1.5, 2, 3, 8} {
			got, err := traffic.Capacity(refill, 0)
			require.NoError(t, err)
			require.Equal(t, bruteForce(arrivals, refill, 0), got, "seed %d, refill %v: %v", seed, refill, arrivals)
		}
	}
}

func TestTrialDecidesAsTakeDoes(t *testing.T) {
	limit := tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.5}
	trial, err := fit.NewTrial(limit)
	require.NoError(t, err)
	state := limit.Full(0)
	for _, a := range readme {
		var d tokenbucket.Decision
		state, d = limit.Take(state, a.At, a.Cost)
		admitted, err := trial.Add("k", a)
		require.NoError(t, err)
		require.Equal(t, d.OK, admitted, "at %v", a.At)
	}
	require.Equal(t, 8, trial.Requests())
	require.Equal(t, 3, trial.Refused())
	require.Equal(t, []fit.KeyRefusals{{Key: "k", Requests: 8, Refused: 3}}, trial.Keys())
	first, ok := trial.First()
	require.True(t, ok)
	require.Equal(t, fit.Refusal{Key: "k", Cost: 1, Wait: 2 * sec}, first)
	require.Equal(t, sec, trial.Wait(0.5))
	require.Equal(t, 2*sec, trial.Wait(1))
	require.Equal(t, trial.Wait(0), trial.Wait(math.NaN()))
}

func TestInstantsBeforeTheLatestCountAsTheLatest(t *testing.T) {
	for seed := range 300 {
		random := rand.New(rand.NewPCG(uint64(seed), 7))
		var arrivals, inOrder []fit.Arrival // inOrder counts from another origin
		latest := time.Duration(math.MinInt64)
		for range 1 + random.IntN(12) {
			a := fit.Arrival{At: time.Duration(random.IntN(20)-10) * sec, Cost: float64(random.IntN(3))}
			latest = max(latest, a.At)
			arrivals, inOrder = append(arrivals, a), append(inOrder, fit.Arrival{At: latest + 10*sec, Cost: a.Cost})
		}
		for _, refused := range []float64{0, 0.3} {
			want, wantErr := fit.Capacity(slices.Values(inOrder), 1, refused)
			got, err := fit.Capacity(slices.Values(arrivals), 1, refused)
			require.Equal(t, wantErr, err)
			require.Equal(t, want, got, "seed %d, share %v: %v", seed, refused, arrivals)
		}
		trial, err := fit.NewTrial(tokenbucket.Limit{Capacity: 3, RefillPerSec: 1})
		require.NoError(t, err)
		inOrderTrial, err := fit.NewTrial(trial.Limit())
		require.NoError(t, err)
		for i, a := range arrivals {
			want, err := inOrderTrial.Add("k", inOrder[i])
			require.NoError(t, err)
			got, err := trial.Add("k", a)
			require.NoError(t, err)
			require.Equal(t, want, got, "seed %d, arrival %d of %v", seed, i, arrivals)
		}
	}
}

func TestTrialRejectsBadInput(t *testing.T) {
	_, err := fit.NewTrial(tokenbucket.Limit{})
	require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit)
	trial, err := fit.NewTrial(tokenbucket.PerSecond(1))
	require.NoError(t, err)
	_, err = trial.Add("k", fit.Arrival{Cost: -1})
	require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
	require.Zero(t, trial.Requests())
	_, refused := trial.First()
	require.False(t, refused)
	require.Zero(t, trial.Wait(1))
}

// BenchmarkTraffic reports the memory for each of 100,000 keys that come ten times a day.
func BenchmarkTraffic(b *testing.B) {
	const keys, visits = 100_000, 10
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("10.0.", i/250, ".", i%250)
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		random := rand.New(rand.NewPCG(1, 1))
		traffic := fit.NewTraffic(1.0 / 60)
		for i := range keys * visits {
			at := time.Duration(i) * 86400 * time.Second / (keys * visits)
			if err := traffic.Add(names[random.IntN(keys)], fit.Arrival{At: at, Cost: 1}); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(traffic.Len()), "B/key")
		runtime.KeepAlive(traffic)
	}
}

// BenchmarkCapacity measures one refill and share of a million arrivals.
func BenchmarkCapacity(b *testing.B) {
	for _, share := range []float64{0, 0.001, 0.01} {
		for name, largest := range map[string]int{"equal": 1, "unequal": 5} {
			b.Run(fmt.Sprintf("%s/%v", name, share), func(b *testing.B) {
				random := rand.New(rand.NewPCG(1, 1))
				arrivals, at := make([]fit.Arrival, 1_000_000), time.Duration(0)
				for i := range arrivals {
					at += time.Duration(random.ExpFloat64() * 20e6)
					arrivals[i] = fit.Arrival{At: at, Cost: float64(1 + random.IntN(largest))}
				}
				refill := 30 * float64(1+largest)
				for b.Loop() {
					if _, err := fit.Capacity(slices.Values(arrivals), refill, share); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
