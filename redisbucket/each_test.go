package redisbucket_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// model is a language model's limits: 3 requests and 1000 tokens a minute.
var model = []tokenbucket.Limit{limit(3, 3.0/60), limit(1000, 1000.0/60)}

func (s *scene) requireLevels(b *redisbucket.Buckets, want ...float64) {
	s.t.Helper()
	for i := range want {
		only := make([]float64, len(want))
		only[i] = b.Limits()[i].Capacity
		d, err := b.PeekEach(background, "key", only...)
		require.NoError(s.t, err)
		require.True(s.t, d.OK || d.LimitIndex == i)
		if !d.OK {
			require.InDelta(s.t, want[i], d.Tokens, 1e-9)
		}
	}
}

func TestEachCostIsForItsLimit(t *testing.T) {
	s := newScene(t)
	b := s.buckets(model...)
	for range 2 {
		d, err := b.TakeEach(background, "key", 1, 400)
		require.NoError(t, err)
		require.True(t, d.OK)
	}
	for range 3 {
		d, err := b.TakeEach(background, "key", 1, 400)
		require.NoError(t, err)
		require.False(t, d.OK)
		require.Equal(t, 12*sec, d.Wait)
		require.Equal(t, 1, d.LimitIndex)
		require.Equal(t, model[1], d.Limit)
		require.Equal(t, int64(200), d.Remaining())
		wait, ok, err := b.TryAcquireEach(background, "key", 1, 400)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, 12*sec, wait)
	}
	s.requireLevels(b, 1, 200)
	_, ok, err := b.TryAcquireEach(background, "key", 0, 200)
	require.NoError(t, err)
	require.True(t, ok)
	s.requireLevels(b, 1, 0)
	require.NoError(t, b.RefundEach(background, "key", 0, 450))
	_, ok, err = b.TryAcquireEach(background, "key", 1, 400)
	require.NoError(t, err)
	require.True(t, ok)
	s.requireLevels(b, 0, 50)
	require.NoError(t, b.ChargeEach(background, "key", 0, 100))
	s.requireLevels(b, 0, -50)
	require.NoError(t, b.Charge(background, "key", 1))
	s.requireLevels(b, -1, -51)
	d, err := b.TakeEach(background, "key", 0, 0)
	require.NoError(t, err)
	require.True(t, d.OK, "free, in debt too")
	require.Len(t, s.Keys(), 1)
}

// For all costs, the decision is that of package tokenbucket.
func TestEachDecidesAsTheModelDoes(t *testing.T) {
	s := newScene(t)
	limits := tokenbucket.Limits{limit(5, 1), limit(100, 1.0/3), limit(7, 1e3)}
	b := s.buckets(limits...)
	states := make([]tokenbucket.State, len(limits))
	limits.Fill(states, 0)
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Duration(0)
	for range 1000 {
		costs := eachCost(random, limits)
		peek, err := b.PeekEach(background, "key", costs...)
		require.NoError(t, err)
		want := limits.TakeEach(states, now, costs...)
		got, err := b.TakeEach(background, "key", costs...)
		require.NoError(t, err)
		require.Equal(t, got, peek)
		require.Equal(t, want.OK, got.OK, costs)
		require.Equal(t, roundUp(want.Wait), got.Wait, costs)
		require.Equal(t, want.LimitIndex, got.LimitIndex, costs)
		require.InDelta(t, want.Tokens, got.Tokens, 1e-6)
		now += time.Duration(random.Int64N(int64(3 * sec))).Truncate(us)
		s.to(now)
	}
}

func TestCostsThatCannotBePaidEach(t *testing.T) {
	s := newScene(t)
	b := s.buckets(model...)
	for _, costs := range [][]float64{nil, {1}, {1, 2, 3}} {
		wait, ok, err := b.TryAcquireEach(background, "key", costs...)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, never, wait)
		for _, take := range []func(context.Context, string, ...float64) (tokenbucket.Decision, error){b.TakeEach, b.PeekEach} {
			d, err := take(background, "key", costs...)
			require.NoError(t, err)
			require.Equal(t, tokenbucket.Decision{Wait: never, LimitIndex: -1}, d)
		}
		for _, change := range []func(context.Context, string, ...float64) error{b.WaitEach, b.RefundEach, b.ChargeEach} {
			require.ErrorIs(t, change(background, "key", costs...), tokenbucket.ErrInvalidCost)
		}
	}
	for _, c := range []struct {
		costs []float64
		want  error
	}{
		{[]float64{-1, 1}, tokenbucket.ErrInvalidCost},
		{[]float64{4, math.NaN()}, tokenbucket.ErrInvalidCost},
		{[]float64{4, 1}, tokenbucket.ErrCostExceedsCapacity},
		{[]float64{0, math.Inf(1)}, tokenbucket.ErrCostExceedsCapacity},
	} {
		_, ok, err := b.TryAcquireEach(background, "key", c.costs...)
		require.NoError(t, err)
		require.False(t, ok)
		d, err := b.TakeEach(background, "key", c.costs...)
		require.NoError(t, err)
		require.Equal(t, never, d.Wait)
		require.ErrorIs(t, b.WaitEach(background, "key", c.costs...), c.want)
	}
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1)} {
		require.ErrorIs(t, b.Charge(background, "key", cost), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, b.ChargeEach(background, "key", 0, cost), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, b.RefundEach(background, "key", cost, 0), tokenbucket.ErrInvalidCost)
	}
	require.Empty(t, s.Keys(), "nothing was taken")
}

func TestChargeTakesWhatIsNotThere(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(10, 1))
	require.NoError(t, b.Charge(background, "key", 25))
	s.requireWait(b, 1, 16*sec)
	require.NoError(t, b.Charge(background, "key", 0))
	require.NoError(t, b.Charge(background, "key", math.MaxFloat64))
	require.NoError(t, b.Charge(background, "key", math.MaxFloat64))
	s.requireWait(b, 1, never)
	require.NoError(t, b.Forget(background, "key"))
	s.requireTaken(b, 10)
}

func TestPeekWritesNothing(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(10, 1), limit(20, 1))
	for _, cost := range []float64{0, 1, 10, 11, -1} {
		d, err := b.Peek(background, "key", cost)
		require.NoError(t, err)
		require.Equal(t, cost >= 0 && cost <= 10, d.OK)
	}
	require.Empty(t, s.Keys())
	s.requireTaken(b, 8)
	value, err := s.Get("tokenbucket:key")
	require.NoError(t, err)
	s.to(-time.Hour) // the clock steps back, and the limits change
	for _, b := range []*redisbucket.Buckets{b, s.buckets(limit(10, 1))} {
		d, err := b.Peek(background, "key", 5)
		require.NoError(t, err)
		require.False(t, d.OK)
		require.Equal(t, 3*sec, d.Wait)
		d, err = b.Peek(background, "key", 2)
		require.NoError(t, err)
		require.True(t, d.OK)
	}
	now, err := s.Get("tokenbucket:key")
	require.NoError(t, err)
	require.Equal(t, value, now)
}

func TestPeekCountsALeaseAsTakeDoes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(10, 1))
		b.drain(m, 1)
		before := b.CommandCount()
		d, err := m.Peek(background, "key", 2)
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Equal(t, int64(7), d.Remaining())
		require.Equal(t, before, b.CommandCount(), "the lease alone decides")
		b.drain(b.machine([]tokenbucket.Limit{limit(10, 1)}), 4)
		for range 3 {
			d, err = m.Peek(background, "key", 5)
			require.NoError(t, err)
			require.True(t, d.OK, "four here and one there")
		}
		d, err = m.Take(background, "key", 5)
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Zero(t, d.Remaining())
		peek, err := m.Peek(background, "key", 1)
		require.NoError(t, err)
		take, err := m.Take(background, "key", 1)
		require.NoError(t, err)
		require.Equal(t, take, peek)
	})
}

func TestRefundEachEndsWhatALeaseKnows(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(10, 1), limit(10, 1))
		b.drain(b.machine([]tokenbucket.Limit{limit(10, 1), limit(10, 1)}), 10)
		b.requireRefused(m, 1, sec)
		require.NoError(t, m.RefundEach(background, "key", 1, 2))
		b.drain(m, 1)
	})
}

// No more than the refill of 10 requests passes in a minute. A wait on one limit and then
// on another would pass twice as many.
func TestWaitEachOverAllMachines(t *testing.T) {
	inBubble(t, func(b *bubble) {
		limits := []tokenbucket.Limit{tokenbucket.Within(10, time.Minute, 5), limit(10_000, 10_000.0/60)}
		machines := []*redisbucket.Buckets{b.machine(limits), b.machine(limits)}
		var sent []time.Duration
		for i := range 30 {
			require.NoError(t, machines[i%2].WaitEach(background, "key", 1, 1500))
			sent = append(sent, b.now())
		}
		for i := 10; i < len(sent); i++ {
			require.Greater(t, sent[i]-sent[i-10], time.Minute-ms, "at most ten within a minute")
		}
	})
}

func TestCancelledWaitEachGivesBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.machine(model)
		require.NoError(t, m.ChargeEach(background, "key", 3, 500))
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		go func() {
			time.Sleep(sec)
			cancel()
		}()
		require.ErrorIs(t, m.WaitEach(ctx, "key", 1, 600), context.Canceled)
		b.to(20 * sec)
		d, err := m.TakeEach(background, "key", 1, 500)
		require.NoError(t, err)
		require.True(t, d.OK)
	})
}

// fewer is a fallback with only the methods of Fallback.
type fewer struct{ redisbucket.Fallback }

// fallbackEach has all methods.
type fallbackEach struct{ redisbucket.Fallback }

func (f fallbackEach) TakeEach(key string, costs ...float64) tokenbucket.Decision {
	return f.Take(key, costs[0])
}

func (f fallbackEach) WaitEach(ctx context.Context, key string, costs ...float64) error {
	return f.Wait(ctx, key, costs[0])
}

func (f fallbackEach) RefundEach(key string, costs ...float64) error { return f.Refund(key, costs[0]) }

func (fallbackEach) ChargeEach(string, ...float64) error { return nil }

func (fallbackEach) Charge(string, float64) error { return nil }

func (fallbackEach) Peek(string, float64) tokenbucket.Decision { return tokenbucket.Decision{} }

func (fallbackEach) PeekEach(string, ...float64) tokenbucket.Decision { return tokenbucket.Decision{} }

func TestFallbackForEach(t *testing.T) {
	for _, able := range []bool{true, false} {
		var fallback redisbucket.Fallback = fallbackEach{local(t)}
		if !able {
			fallback = fewer{fallback}
		}
		withFrail(t, func(f *frail) {
			f.Silence(true)
			requireErr := func(err error) {
				t.Helper()
				if able {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, redisbucket.ErrUnavailable)
				}
			}
			b := f.buckets
			_, err := b.TakeEach(background, "key", 1)
			requireErr(err)
			_, ok, err := b.TryAcquireEach(background, "key", 1)
			requireErr(err)
			require.Equal(t, able, ok)
			requireErr(b.WaitEach(background, "key", 1))
			requireErr(b.RefundEach(background, "key", 1))
			requireErr(b.ChargeEach(background, "key", 1))
			requireErr(b.Charge(background, "key", 1))
			_, err = b.Peek(background, "key", 1)
			requireErr(err)
			_, err = b.PeekEach(background, "key", 1)
			requireErr(err)
			_, err = b.Take(background, "key", 1)
			require.NoError(t, err)
		}, redisbucket.WithFallback(fallback))
	}
}

// A limit of Unlimited is not sent to the server.
func TestUnlimited(t *testing.T) {
	s := newScene(t)
	unlimited := tokenbucket.Unlimited()
	none := s.buckets(unlimited, unlimited)
	before := s.CommandCount()
	for range 3 {
		require.True(t, s.take(none, 1<<42).OK)
		require.False(t, s.take(none, 1<<43).OK)
	}
	require.NoError(t, none.Wait(background, "key", 5))
	require.NoError(t, none.Refund(background, "key", 5))
	require.NoError(t, none.ChargeEach(background, "key", 5, 1))
	d, err := none.PeekEach(background, "key", 5, 1)
	require.NoError(t, err)
	require.True(t, d.OK)
	require.Equal(t, before, s.CommandCount())

	some := s.buckets(unlimited, limit(10, 1))
	d, err = some.TakeEach(background, "key", 1<<41, 8)
	require.NoError(t, err)
	require.True(t, d.OK)
	d, err = some.TakeEach(background, "key", 1<<41, 8)
	require.NoError(t, err)
	require.Equal(t, 6*sec, d.Wait)
	require.Equal(t, 1, d.LimitIndex)
	value, err := s.Get("tokenbucket:key")
	require.NoError(t, err)
	require.Contains(t, value, "tb1:10:1 ", "as without it")
}
