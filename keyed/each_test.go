package keyed_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

var requestsAndTokens = []tokenbucket.Limit{tokenbucket.PerMinute(3), tokenbucket.PerMinute(1000)}

func TestTakeEachDecidesForAllLimits(t *testing.T) {
	for _, c := range []struct {
		then   func(b *keyed.Buckets[string])
		levels []float64
	}{
		{func(b *keyed.Buckets[string]) { require.True(t, b.TakeEach("key", 0, 200).OK) }, []float64{1, 0}},
		{func(b *keyed.Buckets[string]) {
			require.NoError(t, b.RefundEach("key", 0, 250))
			require.True(t, b.TakeEach("key", 1, 400).OK)
		}, []float64{0, 50}},
		{func(b *keyed.Buckets[string]) { require.NoError(t, b.ChargeEach("key", 0, 300)) }, []float64{1, -100}},
	} {
		b := newBuckets[string](t, new(waittest.Clock), requestsAndTokens)
		for range 2 {
			require.True(t, b.TakeEach("key", 1, 400).OK)
		}
		d := b.TakeEach("key", 1, 400)
		require.False(t, d.OK)
		require.Equal(t, 12*sec, d.Wait)
		require.Equal(t, 1, d.LimitIndex)
		c.then(b)
		require.Equal(t, c.levels[0], b.PeekEach("key", 3, 0).Tokens)
		require.Equal(t, c.levels[1], b.PeekEach("key", 0, 1000).Tokens)
	}
}

func TestEachWithWrongCosts(t *testing.T) {
	b := newBuckets[string](t, new(waittest.Clock), requestsAndTokens, keyed.WithMaxKeys(3))
	b.TryAcquire("known", 1)
	b.Pause("attended", time.Hour)
	b.TryAcquire("third", 1)
	ctx := context.Background()
	for _, key := range []string{"known", "attended", "without room"} {
		for _, costs := range [][]float64{{1}, {1, 2, 3}, nil, {-1, 1}, {1, math.NaN()}} {
			wait, ok := b.TryAcquireEach(key, costs...)
			require.False(t, ok)
			require.Equal(t, tokenbucket.Never, wait)
			require.False(t, b.TakeEach(key, costs...).OK)
			require.Equal(t, tokenbucket.Never, b.PeekEach(key, costs...).Wait)
			require.ErrorIs(t, b.WaitEach(ctx, key, costs...), tokenbucket.ErrInvalidCost)
			require.ErrorIs(t, b.RefundEach(key, costs...), tokenbucket.ErrInvalidCost)
			require.ErrorIs(t, b.ChargeEach(key, costs...), tokenbucket.ErrInvalidCost)
		}
		require.Equal(t, -1, b.TakeEach(key, 1).LimitIndex)
		require.ErrorIs(t, b.WaitEach(ctx, key, 1, 1001), tokenbucket.ErrCostExceedsCapacity)
		done, stop := context.WithCancel(ctx)
		stop()
		require.ErrorIs(t, b.WaitEach(done, key, 1, 1), context.Canceled)
	}
	require.Equal(t, 2.0, b.Tokens("known"))
	require.Equal(t, 3.0, b.Tokens("without room"))
	require.Equal(t, 3, b.Len())
}

// Wait and WaitEach share one queue.
func TestWaitEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[string](t, nil, requestsAndTokens)
		ctx, begin := context.Background(), time.Now()
		require.NoError(t, b.WaitEach(ctx, "key", 1, 1000))
		left := make(chan time.Duration)
		go func() { _ = b.WaitEach(ctx, "key", 1, 500); left <- time.Since(begin) }()
		synctest.Wait()
		require.False(t, b.Take("key", 1).OK, "behind a queue")
		go func() { _ = b.Wait(ctx, "key", 1); left <- time.Since(begin) }()
		require.Equal(t, 30*sec, <-left)
		require.Equal(t, 30*sec+60*time.Millisecond, <-left)
	})
}

// The model has one Bucket per key and never forgets a key.
func TestEachIsHeldToAModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	clock := new(waittest.Clock)
	limits := []tokenbucket.Limit{limit(10, 1), limit(20, 0.3), limit(5, 3)}
	b := newBuckets[int](t, clock, limits)
	model := map[int]*tokenbucket.Bucket{}
	var now time.Duration
	for range 20_000 {
		now += time.Duration(random.Int64N(int64(sec / 10)))
		clock.Set(now)
		key := int(random.ExpFloat64() * 100)
		if model[key] == nil {
			model[key] = newModel(t, clock, limits)
		}
		m, costs := model[key], []float64{float64(random.IntN(8)), float64(random.IntN(25)), float64(random.IntN(4))}
		switch random.IntN(12) {
		case 0:
			require.Equal(t, m.RefundEach(costs...), b.RefundEach(key, costs...))
		case 1:
			require.Equal(t, m.ChargeEach(costs...), b.ChargeEach(key, costs...))
		case 2:
			d := time.Duration(random.IntN(2)) * sec
			m.Pause(d)
			b.Pause(key, d)
		case 3:
			wantWait, want := m.TryAcquireEach(costs...)
			wait, ok := b.TryAcquireEach(key, costs...)
			require.Equal(t, want, ok)
			require.Equal(t, wantWait, wait)
		case 4, 5:
			same(t, b, m, key, random)
		case 6, 7:
			requireAlike(t, m.PeekEach(costs...), b.PeekEach(key, costs...))
			requireAlike(t, m.Peek(costs[0]), b.Peek(key, costs[0]))
		default:
			requireAlike(t, m.TakeEach(costs...), b.TakeEach(key, costs...))
		}
	}
	require.Less(t, b.Len(), len(model), "some have been forgotten")
}

// requireAlike compares decisions, whose tokens may differ in their last digits.
func requireAlike(t *testing.T, want, got tokenbucket.Decision) {
	t.Helper()
	want.Tokens, got.Tokens = math.Round(want.Tokens*1e9), math.Round(got.Tokens*1e9)
	require.Equal(t, want.Remaining(), got.Remaining())
	require.Equal(t, want.LimitIndex, got.LimitIndex)
	require.Equal(t, [4]any{want.OK, want.Wait, want.Tokens, want.Limit}, [4]any{got.OK, got.Wait, got.Tokens, got.Limit})
}

func TestPeekChangesNothing(t *testing.T) {
	clock := new(waittest.Clock)
	for _, limits := range [][]tokenbucket.Limit{{limit(10, 1)}, {limit(10, 1), limit(20, 1)}} {
		b := newBuckets[string](t, clock, limits, keyed.WithMaxKeys(2))
		for range 2 {
			d := b.Peek("unknown", 4)
			require.True(t, d.OK)
			require.Equal(t, 6.0, d.Tokens)
			require.Zero(t, b.Len())
		}
		require.True(t, b.Take("known", 4).OK)
		for range 2 {
			require.Equal(t, 3.0, b.Peek("known", 3).Tokens)
			require.Equal(t, sec, b.Peek("known", 7).Wait)
		}
		b.Pause("paused", sec)
		require.Equal(t, 2*sec, b.Peek("paused", 1).Wait)
		require.Equal(t, 2, b.Len())
	}
}

// If there is no room, Peek looks for room, as Take does, and finds keys that have become
// full.
func TestPeekLooksForRoom(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(1))
	require.True(t, b.Take("a", 1).OK)
	require.True(t, b.Take("b", 9).OK, "shared")
	require.Equal(t, 0.0, b.Peek("b", 1).Tokens, "shared")
	clock.Set(sec)
	require.Equal(t, 9.0, b.Peek("b", 1).Tokens, "its own")
	require.Zero(t, b.Len())
}

// A reading that counts as a later one makes the wait longer, as for Take.
func TestPeekWhileTheClockIsBehind(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)})
	clock.Set(5 * sec)
	require.True(t, b.Take("key", 10).OK)
	clock.Set(3 * sec)
	require.Equal(t, 3*sec, b.Peek("key", 1).Wait)
	require.Equal(t, 3*sec, b.PeekEach("key", 1).Wait)
}

func TestAllocationsOfEach(t *testing.T) {
	b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(1e9, 1), limit(1e9, 1), limit(1e9, 1)})
	b.TryAcquire("known", 1)
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.TryAcquireEach("known", 1, 2, 3)
		b.TakeEach("known", 1, 2, 3)
		_ = b.WaitEach(ctx, "known", 1, 2, 3)
		_ = b.ChargeEach("known", 1, 2, 3)
		_ = b.RefundEach("known", 1, 2, 3)
		b.Peek("known", 1)
		b.PeekEach("known", 1, 2, 3)
		b.Peek("unknown", 1)
	}))
}
