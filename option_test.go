package tokenbucket_test

import (
	"context"
	"encoding/json"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestInvalidOptions(t *testing.T) {
	for i, opt := range []tokenbucket.Option{
		tokenbucket.WithTokens(-1), tokenbucket.WithTokens(11), tokenbucket.WithTokens(math.NaN()), tokenbucket.WithTokens(math.Inf(1)),
		tokenbucket.WithMaxWaiters(-1), nil,
		tokenbucket.WithState(time.Now(), nil), tokenbucket.WithState(time.Now(), make([]State, 2)),
		tokenbucket.WithState(time.Now(), []State{{Balance: math.NaN()}}), tokenbucket.WithState(time.Now(), []State{{Balance: math.Inf(-1)}}),
		tokenbucket.WithState(time.Now(), []State{{Balance: -math.MaxFloat64}}),
		tokenbucket.WithState(time.Time{}, []State{{}}), tokenbucket.WithState(time.Now().Add(Never).Add(Never), []State{{}}),
		tokenbucket.WithState(time.Date(1884, 1, 1, 0, 0, 0, 0, time.UTC), []State{{}}), // the clock could step back
		tokenbucket.WithState(time.Date(2157, 1, 1, 0, 0, 0, 0, time.UTC), []State{{}}),
	} {
		_, err := tokenbucket.New(Limit{10, 1}, opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, i)
	}
	_, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithTokens(1), nil)
	require.ErrorContains(t, err, "option 1 is nil")
	deepest := []State{Limit{10, 1}.Full(0)}
	require.NoError(t, Limits{{10, 1}}.Charge(deepest, 0, math.MaxFloat64))
	_, err = tokenbucket.New(Limit{10, 1}, tokenbucket.WithState(time.Now(), deepest))
	require.NoError(t, err)
	bucket, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithClock(nil), tokenbucket.WithTokens(10))
	require.NoError(t, err)
	_, ok := bucket.TryAcquire(10)
	require.True(t, ok)
}

func TestWithTokensFillsEachLimit(t *testing.T) {
	mock := new(waittest.Clock)
	bucket, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithLimit(Limit{3, 1}), tokenbucket.WithTokens(5), tokenbucket.WithClock(mock))
	require.NoError(t, err)
	require.Equal(t, 3.0, bucket.Tokens())
	_, states := bucket.State()
	require.Equal(t, []State{{Balance: 5}, {Balance: 3}}, states)
}

func TestStateGoesOn(t *testing.T) {
	mock := new(waittest.Clock)
	first := newBucket(t, mock, Limit{10, 1}, Limit{5, 0.3})
	resume := func() *tokenbucket.Bucket {
		origin, states := first.State()
		bucket, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithLimit(Limit{5, 0.3}),
			tokenbucket.WithClock(mock), tokenbucket.WithState(origin, states), tokenbucket.WithTokens(1))
		require.NoError(t, err)
		states[1].Balance = -1e9 // both have copies
		return bucket
	}
	for i := range 50 {
		mock.Set(time.Duration(i) * 700 * ms)
		if i == 30 {
			first.Pause(5 * sec)
			require.NoError(t, first.Refund(2))
		}
		second := resume()
		require.Equal(t, first.Tokens(), second.Tokens(), i)
		require.Equal(t, first.Take(2), second.Take(2), i)
	}
	_, states := first.State()
	smaller, err := tokenbucket.New(Limit{1, 1}, tokenbucket.WithLimit(Limit{5, 0.3}), tokenbucket.WithClock(mock),
		tokenbucket.WithState(time.Time{}, states))
	require.NoError(t, err)
	require.LessOrEqual(t, smaller.Tokens(), 1.0)
}

func TestStateGoesOnAfterARestart(t *testing.T) {
	type stored struct {
		Origin time.Time
		States []State
	}
	synctest.Test(t, func(t *testing.T) {
		first := tokenbucket.MustNew(Limit{10, 1})
		first.TryAcquire(10)
		time.Sleep(3500 * ms)
		origin, states := first.State()
		file, err := json.Marshal(stored{origin, states})
		require.NoError(t, err)

		time.Sleep(2 * sec) // the bucket refills for that time
		var back stored
		require.NoError(t, json.Unmarshal(file, &back))
		second, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithState(back.Origin, back.States))
		require.NoError(t, err)
		require.Equal(t, 5.5, second.Tokens())
		require.NoError(t, second.Wait(t.Context(), 6))
		require.Equal(t, 6*sec, time.Since(origin))
	})
}

// Without the latest reading, a state anchored in the future is paused until then.
func TestLatestGoesOnWhereTheClockStepsBack(t *testing.T) {
	clock := new(waittest.Clock)
	first := newBucket(t, clock, Limit{10, 1})
	clock.Set(10 * sec)
	require.True(t, first.Take(1).OK)
	clock.Set(5 * sec)
	require.Equal(t, 10*sec, first.Latest())
	origin, states := first.State()
	resume := func(reading time.Duration) *tokenbucket.Bucket {
		return tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithClock(clock),
			tokenbucket.WithState(origin, states), tokenbucket.WithLatest(reading))
	}
	require.True(t, resume(first.Latest()).Take(9).OK)
	require.Equal(t, 6*sec, resume(first.Latest()).Take(10).Wait)
	require.Equal(t, 5*sec, resume(0).Take(1).Wait)
	require.Equal(t, 5*sec, resume(-sec).Latest())
}

func TestStoredOriginGoesOnInMonotonicTime(t *testing.T) {
	limit := Limit{10, 1}
	stored := time.Now().Add(-time.Hour).Round(0)
	origin, _ := tokenbucket.MustNew(limit, tokenbucket.WithState(stored, []State{limit.Full(0)})).State()
	require.True(t, origin.Equal(stored))
	require.NotEqual(t, origin.Round(0), origin, "a monotonic reading")
}

func TestMaxWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		nobody := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithMaxWaiters(0))
		require.NoError(t, nobody.Wait(ctx, 1))
		require.ErrorIs(t, nobody.Wait(ctx, 1), tokenbucket.ErrTooManyWaiters)
		require.NoError(t, nobody.Wait(ctx, 0))

		two := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithMaxWaiters(2), tokenbucket.WithTokens(0))
		go func() { assert.NoError(t, two.Wait(ctx, 1)) }()
		synctest.Wait()
		reserved, err := two.Reserve(1)
		require.NoError(t, err)
		require.ErrorIs(t, two.Wait(ctx, 1), tokenbucket.ErrTooManyWaiters)
		_, err = two.Reserve(1)
		require.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
		require.True(t, reserved.Cancel())
		require.NoError(t, two.Wait(ctx, 1), "there is room again")
	})
}

func TestMaxWaitersAreCountedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{5, 1}, tokenbucket.WithMaxWaiters(1), tokenbucket.WithTokens(0))
		first, err := bucket.Reserve(1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		require.ErrorIs(t, bucket.Wait(ctx, 6), tokenbucket.ErrCostExceedsCapacity)
		require.ErrorIs(t, bucket.Wait(ctx, 1), context.DeadlineExceeded, "the deadline before the waiters")
		require.ErrorIs(t, bucket.Wait(context.Background(), 1), tokenbucket.ErrTooManyWaiters)
		_, err = bucket.Reserve(-1)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
		free, err := bucket.Reserve(0)
		require.NoError(t, err, "0 waits for nobody")
		require.Zero(t, free.Delay())
		time.Sleep(sec)
		second, err := bucket.Reserve(2)
		require.NoError(t, err, "one that is due is not counted, though nobody has called")
		require.Zero(t, first.Delay())
		require.Equal(t, 2*sec, second.Delay())
		require.Equal(t, 1, bucket.Waiting())
	})
}

func TestMaxWaitersCountsWhoIsStillQueued(t *testing.T) {
	mock := new(waittest.Clock)
	bucket, err := tokenbucket.New(Limit{1, 1}, tokenbucket.WithClock(mock), tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(2))
	require.NoError(t, err)
	reserve := func(want error) (r *tokenbucket.Reservation) {
		t.Helper()
		r, err := bucket.Reserve(1)
		require.ErrorIs(t, err, want)
		return r
	}
	reserve(nil)
	second := reserve(nil)
	reserve(tokenbucket.ErrTooManyWaiters)
	require.ErrorIs(t, bucket.Wait(context.Background(), 1), tokenbucket.ErrTooManyWaiters)
	require.Equal(t, -2.0, bucket.Tokens(), "nothing was taken")
	mock.Set(sec) // the first is due, although no call serves it
	third := reserve(nil)
	require.Equal(t, 2*sec, third.Delay())
	reserve(tokenbucket.ErrTooManyWaiters)
	require.True(t, second.Cancel())
	require.Equal(t, sec, third.Delay())
	require.Equal(t, 2*sec, reserve(nil).Delay())
	require.NoError(t, bucket.SetLimits(Limit{0.5, 1})) // both waiters get an error
	require.NoError(t, bucket.Wait(context.Background(), 0))
	_, err = bucket.Reserve(0.25)
	require.NoError(t, err)
}

func TestMaxWaitersLetsExactlySoManyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(7))
		var granted, turnedAway atomic.Int32
		for range 50 {
			go func() {
				switch err := bucket.Wait(context.Background(), 1); {
				case err == nil:
					granted.Add(1)
				default:
					assert.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
					turnedAway.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, 7, bucket.Waiting())
		require.Equal(t, int32(43), turnedAway.Load())
		time.Sleep(7 * sec)
		synctest.Wait()
		require.Equal(t, int32(7), granted.Load())
	})
}

func TestStatesThatNoBucketHas(t *testing.T) {
	for _, balance := range []float64{-0x1p960, -1, 0, 1e300} {
		require.NoError(t, State{Balance: balance}.Validate())
	}
	for _, balance := range []float64{-0x1p961, math.Inf(-1), math.Inf(1), math.NaN()} {
		require.ErrorIs(t, State{Balance: balance}.Validate(), tokenbucket.ErrInvalidOption)
	}
}

// A reading of Never would be at or after the turns that never come.
func TestTheLatestReadingIsBeforeNever(t *testing.T) {
	b := tokenbucket.MustNew(Limit{1, 1e-6}, tokenbucket.WithLatest(tokenbucket.Never))
	require.True(t, b.Take(1).OK)
	for range 3 {
		r, err := b.Reserve(1)
		require.NoError(t, err)
		require.Positive(t, r.Delay())
	}
	paused := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithLatest(tokenbucket.Never))
	paused.Pause(time.Hour)
	require.NoError(t, paused.Refund(1))
	_, ok := paused.TryAcquire(1)
	require.False(t, ok)
}
