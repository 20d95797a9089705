package tokenbucket_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestSetLimitsWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithTokens(0))
		left := make(chan error, 2)
		go func() { left <- bucket.Wait(context.Background(), 8) }()
		synctest.Wait()
		large, err := bucket.Reserve(9)
		require.NoError(t, err)
		go func() {
			assert.NoError(t, bucket.Wait(context.Background(), 4))
			assert.Equal(t, 2*sec, time.Since(start))
			left <- nil
		}()
		synctest.Wait()
		time.Sleep(sec)
		require.ErrorIs(t, bucket.SetLimits(Limit{10, 0}), tokenbucket.ErrInvalidLimit)
		require.Equal(t, 16*sec, large.Delay(), "nothing changed")
		require.NoError(t, bucket.SetLimits(Limit{5, 3}))
		require.ErrorIs(t, <-left, tokenbucket.ErrCostExceedsCapacity)
		require.Equal(t, sec, time.Since(start), "at once")
		require.Equal(t, Never, large.Delay())
		require.False(t, large.Cancel())
		require.NoError(t, <-left)
	})
}

func TestSetLimitsWakesWhoWouldWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{1, 1e-12}, tokenbucket.WithTokens(0))
		left := make(chan error)
		go func() { left <- bucket.Wait(context.Background(), 1) }()
		synctest.Wait()
		time.Sleep(1000 * time.Hour)
		require.NoError(t, bucket.SetLimits(Limit{1, 1}))
		require.NoError(t, <-left)
	})
}

func TestSetLimitsMovesEveryTurnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1}, Limit{20, 2})
		require.NoError(t, bucket.Charge(20)) // -10 and 0
		var group sync.WaitGroup
		for i, want := range []time.Duration{5500 * ms, 6500 * ms, 7500 * ms} {
			group.Go(func() {
				assert.NoError(t, bucket.Wait(context.Background(), float64(min(i+1, 2))))
				assert.Equal(t, want, time.Since(start), i)
			})
			synctest.Wait()
		}
		time.Sleep(4 * sec) // -6 and 8: due at 11 s, 13 s and 15 s
		require.Equal(t, -11.0, bucket.Tokens())
		require.ErrorIs(t, bucket.SetLimits(Limit{10, 5}), tokenbucket.ErrInvalidLimit, "one for each")
		require.NoError(t, bucket.SetLimits(Limit{10, 1000}, Limit{4, 2})) // -6 and 4
		require.NoError(t, bucket.SetLimits(Limit{10, 1000}, Limit{2, 2})) // -6 and 2
		require.NoError(t, bucket.Charge(4))                               // -10 and -2
		group.Wait()
		require.Equal(t, []Limit{{10, 1000}, {2, 2}}, bucket.Limits())
		require.Equal(t, 0.0, bucket.Tokens())
	})
}

func TestSetLimitsMovesTurnsBothWays(t *testing.T) {
	for _, now := range []struct {
		limit Limit
		first time.Duration // the instant at which it is due, after the change at 1 s
	}{
		{Limit{10, 2}, 2 * sec}, {Limit{10, 0.5}, 5 * sec}, {Limit{1 << 10, 1}, 3 * sec},
		{Limit{10, 1e9}, sec + 2}, {Limit{10, 4}, 1500 * ms}, {Limit{3, 1}, 3 * sec},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			bucket := newBucket(t, nil, Limit{10, 1})
			bucket.TryAcquire(10)
			first := takePlace(t, bucket, start, 3, false)
			second := takePlace(t, bucket, start, 3, true)
			third := takePlace(t, bucket, start, 3, false)
			time.Sleep(sec) // the bucket holds one token, two are missing
			require.NoError(t, bucket.SetLimits(now.limit))
			first.due = now.first
			second.due = now.first + time.Duration(3e9/now.limit.RefillPerSec)
			third.due = now.first + time.Duration(6e9/now.limit.RefillPerSec)
			for _, p := range []*place{first, second, third} {
				requireLeftAt(t, start, p)
			}
			require.Equal(t, []Limit{now.limit}, bucket.Limits())
			require.Zero(t, bucket.Tokens())
		})
	}
}

// The first waiter gets an error, and there are tokens for the next one already.
func TestSetLimitsTurnsAwayAndServesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1}, Limit{20, 2})
		bucket.TryAcquire(10)
		large := make(chan error, 1)
		go func() { large <- bucket.Wait(context.Background(), 9) }()
		synctest.Wait()
		also, err := bucket.Reserve(8)
		require.NoError(t, err)
		small := takePlace(t, bucket, start, 5, false)
		time.Sleep(5500 * ms)
		require.ErrorIs(t, bucket.SetLimits(), tokenbucket.ErrInvalidLimit)
		require.ErrorIs(t, bucket.SetLimits(Limit{5, 1}), tokenbucket.ErrInvalidLimit)
		require.ErrorIs(t, bucket.SetLimits(Limit{5, 1}, Limit{20, 2}, Limit{20, 2}), tokenbucket.ErrInvalidLimit)
		require.ErrorIs(t, bucket.SetLimits(Limit{10, 1}, Limit{20, math.NaN()}), tokenbucket.ErrInvalidLimit)
		require.Equal(t, 3, bucket.Waiting(), "nothing changed")
		require.Equal(t, []Limit{{10, 1}, {20, 2}}, bucket.Limits())

		require.NoError(t, bucket.SetLimits(Limit{10, 1}, Limit{7, 2}))
		require.ErrorIs(t, <-large, tokenbucket.ErrCostExceedsCapacity)
		require.Equal(t, Never, also.Delay())
		require.False(t, also.Cancel())
		small.due = 5500 * ms
		requireLeftAt(t, start, small)
		require.Equal(t, 0.5, bucket.Tokens())
	})
}

func TestSetLimitsKeepsTokensUpToTheNewCapacity(t *testing.T) { // contracts-sui#350, with a waiter
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{100, 1})
		bucket.TryAcquire(100)
		time.Sleep(10 * sec)
		require.NoError(t, bucket.SetLimits(Limit{100, 100}))
		require.Equal(t, 10.0, bucket.Tokens())
		require.NoError(t, bucket.SetLimits(Limit{5, 100}))
		require.Equal(t, 5.0, bucket.Tokens())
		bucket.TryAcquire(5)
		two := takePlace(t, bucket, start, 2, false)
		require.NoError(t, bucket.SetLimits(Limit{2, 1}))
		two.due = 12 * sec
		requireLeftAt(t, start, two)
		require.NoError(t, bucket.Charge(7))
		require.NoError(t, bucket.SetLimits(Limit{50, 1}))
		require.Equal(t, -7.0, bucket.Tokens(), "debt stays")
	})
}

// A level is rounded when the limits change. If it were rounded whenever they are set,
// each of these intervals would lose its refill, a quarter of a microtoken, in a level of
// a billion tokens.
func TestSettingTheSameLimitsLosesNothing(t *testing.T) {
	mock := new(waittest.Clock)
	limit := Limit{1 << 40, 1}
	bucket := newBucket(t, mock, limit)
	bucket.TryAcquire(1 << 39)
	for i := range 4096 {
		mock.Set(time.Duration(i+1) * 250)
		require.NoError(t, bucket.SetLimits(limit))
	}
	mock.Set(sec)
	require.Equal(t, float64(1<<39+1), bucket.Tokens())
}

func TestSetLimitsDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1})
		bucket.Pause(4 * sec)
		p := takePlace(t, bucket, start, 2, false)
		time.Sleep(sec)
		require.NoError(t, bucket.SetLimits(Limit{10, 4}))
		wait, ok := bucket.TryAcquire(1)
		require.False(t, ok)
		require.Equal(t, 3750*ms, wait)
		p.due = 4500 * ms
		requireLeftAt(t, start, p)
	})
}

func TestCapacityIsTheLeastOne(t *testing.T) {
	bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithLimit(Limit{4, 2}))
	require.Equal(t, 4.0, bucket.Capacity())
	require.NoError(t, bucket.SetLimits(Limit{3, 1}, Limit{4, 2}))
	require.Equal(t, 3.0, bucket.Capacity())
	bucket.Pause(Never)
	require.Equal(t, 3.0, bucket.Capacity())
	require.ErrorIs(t, bucket.Wait(t.Context(), math.Nextafter(3, 4)), tokenbucket.ErrCostExceedsCapacity)
	require.Zero(t, new(tokenbucket.Bucket).Capacity())
	require.Zero(t, testing.AllocsPerRun(100, func() { bucket.Capacity() }))
}
