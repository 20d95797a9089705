package redisbucket_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

func TestLeasesAreBoundedInNumber(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1e-3)), b.machine([]tokenbucket.Limit{limit(10, 1e-3)})
		level := func(key int) float64 {
			d, err := plain.Take(background, fmt.Sprint(key), 0)
			require.NoError(t, err)
			return d.Tokens
		}
		take := func(key int) {
			_, ok, err := m.TryAcquire(background, fmt.Sprint(key), 1)
			require.NoError(t, err)
			require.True(t, ok)
		}
		for key := range redisbucket.MaxLeases + 1 {
			take(key)
			take(key)
		}
		require.Equal(t, 5.0, level(0), "leased at once")
		require.Equal(t, 4.0, level(10), "leased when it was asked for again")
		require.Equal(t, 8.0, level(redisbucket.MaxLeases), "no room: the others stay")
		b.to(2 * maxAge)
		require.InDelta(t, 8.0, level(0), 1e-3)
		take(redisbucket.MaxLeases)
		take(redisbucket.MaxLeases)
		require.InDelta(t, 3.0, level(redisbucket.MaxLeases), 1e-3, "there is room again: leased at once")
	})
}

// roundTrips returns the round trips per decision, for keys that next yields, one request
// each millisecond.
func roundTrips(f *frail, decisions int, next func() int) float64 {
	f.t.Helper()
	f.connect()
	before := f.Runs()
	for range decisions {
		_, ok, err := f.buckets.TryAcquire(background, fmt.Sprint(next()), 1)
		require.NoError(f.t, err)
		require.True(f.t, ok)
		f.to(f.now() + ms)
	}
	require.NoError(f.t, f.buckets.Close())
	return float64(f.Runs()-before) / float64(decisions)
}

func TestColdKeysDoNotPayForLeases(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.buckets = newHastyBuckets(t, f.client, []tokenbucket.Limit{limit(1e6, 1000)}, redisbucket.WithLease(100, sec))
		key := 0
		trips := roundTrips(f, 10_000, func() int { key++; return key })
		t.Logf("%.3f round trips a decision", trips)
		require.LessOrEqual(t, trips, 1.05)
	})
}

func TestPopularKeysDoNotPayForColdOnes(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.buckets = newHastyBuckets(t, f.client, []tokenbucket.Limit{limit(1e6, 1000)}, redisbucket.WithLease(100, 10*sec))
		popular := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 9999)
		trips := roundTrips(f, 30_000, func() int { return int(popular.Uint64()) })
		t.Logf("%.3f round trips a decision", trips)
		require.LessOrEqual(t, trips, 0.35)
	})
}
