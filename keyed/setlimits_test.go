package keyed_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

func TestSetLimits(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(4))
	require.True(t, b.Take("drained", 10).OK)
	require.True(t, b.Take("filled", 2).OK)
	b.Pause("paused", 10*sec)
	b.Pause("was paused", sec)
	require.True(t, b.Take("without room", 3).OK)
	clock.Set(3 * sec)
	require.NoError(t, b.SetLimits(limit(20, 100)))
	require.Equal(t, []tokenbucket.Limit{limit(20, 100)}, b.Limits())
	require.Equal(t, 3.0, b.Tokens("drained"), "by the old refill")
	require.Equal(t, 20.0, b.Tokens("filled"), "full, swept or not")
	require.Equal(t, 2.0, b.Tokens("was paused"))
	require.Equal(t, 7*sec+sec/100, b.Take("paused", 1).Wait)
	require.Equal(t, 20.0, b.Tokens("without room"), "the overflow bucket was full as well")
	require.Equal(t, limit(20, 100), b.Take("unknown", 1).Limit)

	require.NoError(t, b.SetLimits(limit(2, 1)))
	require.Equal(t, 2.0, b.Tokens("drained"), "no more than the new capacity")
	require.ErrorIs(t, b.SetLimits(), tokenbucket.ErrInvalidLimit)
	require.ErrorIs(t, b.SetLimits(limit(1, 1), limit(1, 1)), tokenbucket.ErrInvalidLimit)
	require.ErrorIs(t, b.SetLimits(limit(-1, 1)), tokenbucket.ErrInvalidLimit)
	require.Equal(t, []tokenbucket.Limit{limit(2, 1)}, b.Limits())
}

// Callers cannot change the limits through their slices.
func TestSetLimitsCopies(t *testing.T) {
	b := newBuckets[string](t, new(waittest.Clock), []tokenbucket.Limit{limit(10, 1)})
	limits := []tokenbucket.Limit{limit(5, 1)}
	require.NoError(t, b.SetLimits(limits...))
	limits[0] = limit(7, 1)
	b.Limits()[0] = limit(8, 1)
	require.Equal(t, 5.0, b.Tokens("key"))
}

// Keys that fill earlier under the new limits are forgotten earlier.
func TestSetLimitsSetsTheSweepBack(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(10, 1e-6)}, keyed.WithMaxKeys(200))
	for key := range 100 {
		b.TryAcquire(key, 10)
	}
	require.NoError(t, b.SetLimits(limit(10, 10)))
	clock.Set(sec)
	for key := range 100 {
		b.Tokens(1000 + key)
	}
	require.Zero(t, b.Len())
}

func TestSetLimitsMovesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(1))
		begin := time.Now()
		var group sync.WaitGroup
		for _, key := range []string{"a", "without room"} {
			require.True(t, b.Take(key, 10).OK)
			group.Go(func() {
				assert.ErrorIs(t, b.Wait(context.Background(), key, 8), tokenbucket.ErrCostExceedsCapacity)
				assert.Equal(t, sec, time.Since(begin))
			})
			synctest.Wait()
			group.Go(func() {
				assert.NoError(t, b.Wait(context.Background(), key, 5))
				assert.Equal(t, 3*sec, time.Since(begin))
			})
			synctest.Wait()
		}
		time.Sleep(sec)
		require.NoError(t, b.SetLimits(limit(5, 2)))
		group.Wait()
	})
}

// The model is a Bucket for each key. A key that is full when the limits change gets a
// new Bucket; for the others, SetLimits is called.
func TestSetLimitsIsHeldToAModel(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		clock := new(waittest.Clock)
		n := 1 + int(seed%2)
		limits := randomLimits(random, n)
		b := newBuckets[int](t, clock, limits)
		model := map[int]*tokenbucket.Bucket{}
		var now time.Duration
		for range 24_000 {
			now += time.Duration(random.Int64N(int64(sec / 10)))
			clock.Set(now)
			if random.IntN(200) == 0 {
				limits = randomLimits(random, n)
				require.NoError(t, b.SetLimits(limits...))
				changeModel(t, model, limits)
			}
			key := int(random.ExpFloat64() * 100)
			if model[key] == nil {
				model[key] = newModel(t, clock, limits)
			}
			same(t, b, model[key], key, random)
		}
		require.Less(t, b.Len(), len(model), "some have been forgotten")
	}
}

func randomLimits(random *rand.Rand, n int) (limits []tokenbucket.Limit) {
	for range n {
		limits = append(limits, limit(float64(12+random.IntN(20)), 0.1+2*random.Float64()))
	}
	return limits
}

func changeModel(t *testing.T, model map[int]*tokenbucket.Bucket, limits []tokenbucket.Limit) {
	for key, m := range model {
		if isFull(m) {
			delete(model, key)
		} else {
			require.NoError(t, m.SetLimits(limits...))
		}
	}
}

// isFull reports whether a bucket is full and not paused.
func isFull(b *tokenbucket.Bucket) bool {
	_, states := b.State()
	latest := b.Latest()
	for _, s := range states {
		if s.Anchor > latest {
			return false
		}
	}
	return tokenbucket.Limits(b.Limits()).IsFull(states, latest)
}

// Time stands still and the capacity only grows. So a key has its capacity at the first
// request, minus the tokens taken: nothing is lost or minted while the limits change, and
// while keys move to their own buckets and back.
func TestNothingIsLostWhileLimitsChange(t *testing.T) {
	const keys, least, most = 50, 10, 40
	b := newBuckets[int](t, waittest.NewClock(time.Now()), []tokenbucket.Limit{limit(least, 1e-9)})
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	var taken [keys]atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 3000 {
				key := random.IntN(keys)
				ok := false
				switch random.IntN(4) {
				case 0:
					ok = b.Wait(ctx, key, 1) == nil // or the deadline is too near
				case 1:
					ok = b.Take(key, 1).OK
				default:
					_, ok = b.TryAcquire(key, 1)
				}
				if ok {
					taken[key].Add(1)
				}
			}
		})
	}
	for capacity := least + 1; capacity <= most; capacity++ {
		require.NoError(t, b.SetLimits(limit(float64(capacity), 1e-9)))
		require.Equal(t, float64(capacity), b.Tokens(-1), "calls that begin afterwards")
	}
	group.Wait()
	for key := range keys {
		first := float64(taken[key].Load()) + b.Tokens(key)
		require.GreaterOrEqual(t, first, float64(least), key)
		require.LessOrEqual(t, first, float64(most), key)
		require.Equal(t, float64(int(first)), first, key)
	}
}
