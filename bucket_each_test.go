package tokenbucket_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// twoLimits returns a bucket of B(5,1) and B(10,2) with levels.
func twoLimits(t *testing.T, clock *waittest.Clock, levels ...float64) *tokenbucket.Bucket {
	bucket := newBucket(t, clock, Limit{5, 1}, Limit{10, 2})
	require.NoError(t, bucket.ChargeEach(5-levels[0], 10-levels[1]))
	return bucket
}

func TestOneQueueForOneCostAndForDifferentCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{5, 1}, tokenbucket.WithLimit(Limit{10, 2}))
		require.True(t, bucket.TakeEach(5, 10).OK)
		start, left := time.Now(), make(chan time.Duration, 3)
		for _, costs := range [][]float64{{0, 6}, {1, 1}, {4, 0}} { // at 3 s, at 3.5 s, at 5 s
			go func() {
				if err := bucket.WaitEach(t.Context(), costs...); err != nil {
					t.Error(err)
				}
				left <- time.Since(start)
			}()
			synctest.Wait()
		}
		wait, ok := bucket.TryAcquire(1)
		require.False(t, ok, "nobody overtakes")
		require.Equal(t, 6*sec, wait)
		for _, at := range []time.Duration{3 * sec, 3500 * ms, 5 * sec} {
			require.Equal(t, at, <-left)
		}
	})
}

// TestWaitEachNeverPassesMoreInAnyWindow is for a fault of two separate buckets: Wait on
// a bucket of requests and then on a bucket of tokens lets 19 requests pass in one
// minute.
func TestWaitEachNeverPassesMoreInAnyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(tokenbucket.Within(10, time.Minute, 5), tokenbucket.WithLimit(tokenbucket.PerMinute(10_000)))
		start := time.Now()
		var mu sync.Mutex
		var requests []grant
		var group sync.WaitGroup
		for worker := range uint64(40) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(worker, 19))
				for range 10 {
					tokens := 1 + random.IntN(400) // sometimes one limit binds, sometimes the other
					if random.IntN(20) == 0 {
						tokens = 10_000
					}
					if err := bucket.WaitEach(t.Context(), 1, float64(tokens)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					requests = append(requests, grant{time.Since(start), 1})
					mu.Unlock()
					time.Sleep(time.Duration(random.Int64N(int64(2 * time.Minute))))
				}
			})
		}
		group.Wait()
		require.Len(t, requests, 400)
		require.LessOrEqual(t, mostInWindow(requests, time.Minute), 10.0)
	})
}

func TestCostOfZeroAmongOthers(t *testing.T) {
	clock := new(waittest.Clock)
	bucket := twoLimits(t, clock, -100, 10)
	require.Equal(t, Decision{OK: true, Tokens: 6, Limit: Limit{10, 2}, LimitIndex: 1}, bucket.TakeEach(0, 4), "the debt of the first is not asked")

	bucket.Pause(sec)
	wait, ok := bucket.TryAcquireEach(0, 4)
	require.False(t, ok)
	require.Equal(t, 3*sec, wait, "a pause holds the request, and refilling begins after it")
	require.True(t, bucket.TakeEach(0, 0).OK)

	bucket.Fill()
	_, err := bucket.ReserveEach(5, 10)
	require.NoError(t, err)
	r, err := bucket.ReserveEach(5, 0) // at 5 s
	require.NoError(t, err)
	require.Equal(t, 5*sec, r.Delay())
	wait, ok = bucket.TryAcquireEach(0, 1)
	require.False(t, ok)
	require.Equal(t, 5*sec, wait, "a queue holds the request")
	require.True(t, bucket.TakeEach(0, 0).OK)
	require.NoError(t, bucket.WaitEach(t.Context(), 0, 0))
}

func TestOrderOfChecksOfEach(t *testing.T) {
	bucket := tokenbucket.MustNew(Limit{5, 1}, tokenbucket.WithLimit(Limit{10, 2}), tokenbucket.WithMaxWaiters(0))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	soon, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	require.NoError(t, bucket.Charge(5))
	for _, row := range []struct {
		name  string
		ctx   context.Context
		costs []float64
		want  error
	}{
		{"the number of costs", done, []float64{1}, tokenbucket.ErrInvalidCost},
		{"the context", done, []float64{-1, 1}, context.Canceled},
		{"an invalid cost before one above its capacity", soon, []float64{6, math.NaN()}, tokenbucket.ErrInvalidCost},
		{"above the capacity of its limit", soon, []float64{1, 11}, tokenbucket.ErrCostExceedsCapacity},
		{"infinite", soon, []float64{math.Inf(1), 1}, tokenbucket.ErrCostExceedsCapacity},
		{"the number of waiters", soon, []float64{1, 10}, tokenbucket.ErrTooManyWaiters},
	} {
		require.ErrorIs(t, bucket.WaitEach(row.ctx, row.costs...), row.want, row.name)
		if row.ctx != done {
			_, err := bucket.ReserveEach(row.costs...)
			require.ErrorIs(t, err, row.want, row.name)
		}
	}
	require.NoError(t, bucket.ChargeEach(0, 1e9))
	var late *tokenbucket.DeadlineError
	require.ErrorAs(t, bucket.WaitEach(soon, 1, 10), &late)
}

func TestWrongNumberOfCostsForABucket(t *testing.T) {
	bucket := twoLimits(t, new(waittest.Clock), 5, 10)
	before := bucket.Peek(1)
	for _, costs := range [][]float64{{}, {1}, {1, 2, 3}} {
		wait, ok := bucket.TryAcquireEach(costs...)
		require.Equal(t, Never, wait)
		require.False(t, ok)
		require.Equal(t, Decision{Wait: Never, LimitIndex: -1}, bucket.TakeEach(costs...))
		require.Equal(t, Decision{Wait: Never, LimitIndex: -1}, bucket.PeekEach(costs...))
		_, err := bucket.ReserveEach(costs...)
		for _, err := range []error{err, bucket.WaitEach(t.Context(), costs...), bucket.RefundEach(costs...), bucket.ChargeEach(costs...)} {
			require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
			require.ErrorContains(t, err, "costs for 2 limits: pass one for each")
		}
	}
	require.Equal(t, before, bucket.Peek(1))
}

func TestPeekTakesNothing(t *testing.T) {
	clock := new(waittest.Clock)
	bucket := twoLimits(t, clock, 5, 10)
	peek := func(costs ...float64) {
		t.Helper()
		first := bucket.PeekEach(costs...)
		require.Equal(t, first, bucket.PeekEach(costs...))
		require.Equal(t, first, bucket.TakeEach(costs...))
	}
	peek(1, 2)
	peek(5, 1)  // refused
	peek(0, 11) // never
	require.Equal(t, bucket.Peek(4), bucket.Take(4))
	_, err := bucket.Reserve(3)
	require.NoError(t, err)
	peek(1, 2)
	require.Equal(t, bucket.Peek(1), bucket.Take(1))
	require.Equal(t, 1, bucket.Waiting())
	bucket.Pause(sec)
	peek(1, 2)
	clock.Set(sec / 2)
	require.Equal(t, bucket.Peek(1), bucket.Take(1))
}

// TestResetCountsFromWhenTheQueueIsServed is for a fault in which Reset was 5 s: the bucket
// does not fill before the queue is served.
func TestResetCountsFromWhenTheQueueIsServed(t *testing.T) {
	bucket := twoLimits(t, new(waittest.Clock), 5, -100)
	_, err := bucket.Reserve(5) // at 52.5 s
	require.NoError(t, err)
	require.Equal(t, 57500*ms, bucket.Take(5).Reset())
	require.Equal(t, 57500*ms, bucket.Peek(5).Reset())
	require.Equal(t, 57500*ms, bucket.TakeEach(0, 1).Reset())
}

func TestSetLimitsTurnsAwayOneCostOfSeveral(t *testing.T) {
	bucket := twoLimits(t, new(waittest.Clock), 0, 0)
	first, err := bucket.ReserveEach(1, 10)
	require.NoError(t, err)
	second, err := bucket.ReserveEach(4, 1)
	require.NoError(t, err)
	require.NoError(t, bucket.SetLimits(Limit{5, 1}, Limit{9, 2}))
	require.Equal(t, Never, first.Delay())
	require.Equal(t, 4*sec, second.Delay())
}

// TestCostsAreCopied reuses the slice of a queued request.
func TestCostsAreCopied(t *testing.T) {
	bucket := twoLimits(t, new(waittest.Clock), 0, 0)
	costs := []float64{1, 10}
	r, err := bucket.ReserveEach(costs...)
	require.NoError(t, err)
	costs[1] = 2
	require.NoError(t, bucket.ChargeEach(0, 0))
	require.Equal(t, 5*sec, r.Delay())
}

func TestEachAllocatesNothing(t *testing.T) {
	bucket := tokenbucket.MustNew(Limit{1 << 40, 1}, tokenbucket.WithLimit(Limit{1 << 40, 2}))
	ctx, limits := context.Background(), Limits(bucket.Limits())
	states := full(limits)
	cost := 2.0
	for _, calls := range []string{"admitted", "refused"} {
		for method, call := range map[string]func(){
			"TryAcquireEach":        func() { bucket.TryAcquireEach(1, cost) },
			"TakeEach":              func() { bucket.TakeEach(1, cost) },
			"TakeEach, equal costs": func() { bucket.TakeEach(cost, cost) },
			"PeekEach":              func() { bucket.PeekEach(1, cost) },
			"RefundEach":            func() { _ = bucket.RefundEach(0, 0.5) },
			"ChargeEach":            func() { _ = bucket.ChargeEach(0, 0.5) },
			"Limits.TakeEach":       func() { limits.TakeEach(states, 0, 1, cost) },
			"WaitEach": func() {
				if calls == "admitted" {
					_ = bucket.WaitEach(ctx, 1, cost)
				}
			},
		} {
			require.Zero(t, testing.AllocsPerRun(100, call), "%s: %s", calls, method)
		}
		require.NoError(t, bucket.Charge(1<<40))
	}
}
