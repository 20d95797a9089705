package tokenbucket_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestReservation(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{10, 1})
	reserve := func(cost float64, delay time.Duration) *tokenbucket.Reservation {
		t.Helper()
		r, err := bucket.Reserve(cost)
		require.NoError(t, err)
		require.Equal(t, delay, r.Delay())
		return r
	}
	paid := reserve(10, 0)
	require.False(t, paid.Cancel(), "paid at once")
	require.Zero(t, paid.Delay())

	first, second, third := reserve(2, 2*sec), reserve(3, 5*sec), reserve(4, 9*sec)
	require.Equal(t, 3, bucket.Waiting())
	require.Equal(t, -9.0, bucket.Tokens())
	mock.Set(2*sec - 1)
	require.Equal(t, time.Duration(1), first.Delay())
	mock.Set(2 * sec)
	require.Zero(t, first.Delay(), "due, though nobody called")
	require.False(t, first.Cancel(), "due")
	require.Equal(t, 2, bucket.Waiting())

	require.NoError(t, bucket.Charge(1))
	require.Equal(t, 4*sec, second.Delay())
	require.Equal(t, 8*sec, third.Delay())
	require.True(t, second.Cancel())
	require.False(t, second.Cancel(), "twice")
	require.Equal(t, Never, second.Delay())
	require.Equal(t, 5*sec, third.Delay())
	bucket.Pause(10 * sec)
	require.Equal(t, 15*sec, third.Delay())
	require.NoError(t, bucket.Refund(9))
	require.Equal(t, 10*sec, third.Delay(), "nothing before the pause ends")
	free := reserve(0, 0)
	require.False(t, free.Cancel())
	mock.Set(time.Hour)
	require.Zero(t, third.Delay())
	require.Equal(t, 10.0, bucket.Tokens())
	_, err := bucket.Reserve(11)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
}

func TestReservationsAndWaitersShareTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithTokens(0))
		ahead, err := bucket.Reserve(4)
		require.NoError(t, err)
		done := make(chan time.Duration, 1)
		go func() {
			assert.NoError(t, bucket.Wait(context.Background(), 2))
			done <- time.Since(start)
		}()
		synctest.Wait()
		behind, err := bucket.Reserve(1)
		require.NoError(t, err)
		require.Equal(t, 7*sec, behind.Delay())
		time.Sleep(sec)
		require.True(t, ahead.Cancel(), "the waiter behind it has to be roused")
		require.Equal(t, 2*sec, <-done)
		time.Sleep(sec)
		require.Zero(t, behind.Delay())
		require.Zero(t, bucket.Tokens())
	})
}

func TestReservationIsDueThoughNobodyCalls(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{10, 1})
	bucket.TryAcquire(10)
	reservation, err := bucket.Reserve(10)
	require.NoError(t, err)
	mock.Set(15 * sec) // 5 tokens refilled since it was due
	require.Equal(t, 5.0, bucket.Tokens())
	require.Zero(t, reservation.Delay())
	require.False(t, reservation.Cancel())
	mock.Set(time.Hour)
	require.Equal(t, 10.0, bucket.Tokens())
}

func TestReservationAheadKeepsNobodyAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithTokens(0))
		_, err := bucket.Reserve(2)
		require.NoError(t, err)
		left := make(chan time.Duration, 1)
		go func() {
			assert.NoError(t, bucket.Wait(context.Background(), 3)) // due at 5 s
			left <- time.Since(start)
		}()
		synctest.Wait()
		require.NoError(t, bucket.Refund(1))
		require.Equal(t, 4*sec, <-left)
	})
}

func TestReservationOfWhatIsNotToBeHad(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1})
	for cost, want := range map[float64]error{
		10.5: tokenbucket.ErrCostExceedsCapacity, math.Inf(1): tokenbucket.ErrCostExceedsCapacity,
		-1: tokenbucket.ErrInvalidCost, math.Inf(-1): tokenbucket.ErrInvalidCost, math.NaN(): tokenbucket.ErrInvalidCost,
	} {
		r, err := bucket.Reserve(cost)
		require.ErrorIs(t, err, want)
		require.Nil(t, r)
	}
	require.Equal(t, 10.0, bucket.Tokens())
}

// Readings of the clock end 292 years after the origin. A turn after that never comes, and
// no tokens are granted for it.
func TestNothingIsGrantedAtTheEndOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(waittest.Clock)
		bucket := newBucket(t, mock, Limit{2, 1})
		bucket.TryAcquire(2)
		early, err := bucket.Reserve(1)
		require.NoError(t, err)
		mock.Set(Never)
		require.Zero(t, early.Delay())
		_, ok := bucket.TryAcquire(2)
		require.True(t, ok, "full")
		late, err := bucket.Reserve(1)
		require.NoError(t, err)
		require.Equal(t, Never, late.Delay())
		require.Equal(t, 1, bucket.Waiting())
		require.False(t, bucket.Take(1).OK)
		start := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
		defer cancel()
		require.ErrorIs(t, bucket.Wait(ctx, 1), context.DeadlineExceeded)
		require.Zero(t, time.Since(start), "at once")
		require.True(t, late.Cancel())
		bucket.Pause(Never)
		require.NoError(t, bucket.Refund(2))
		require.Equal(t, Never, bucket.Take(1).Wait)
	})
}

func TestReservationDueForNever(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{1, 1e-12})
	bucket.TryAcquire(1)
	r, err := bucket.Reserve(1)
	require.NoError(t, err)
	require.Equal(t, Never, r.Delay())
	mock.Set(100 * 365 * 24 * time.Hour)
	require.Equal(t, Never, r.Delay())
	require.Equal(t, 1, bucket.Waiting())
	require.True(t, r.Cancel())
	require.Zero(t, bucket.Waiting())
}

// A reservation that falls due without a call is paid at that instant, and not at the next
// call: the refill in between is not lost to the cap.
func TestReservationIsPaidWhenItFallsDue(t *testing.T) {
	for _, ask := range []func(b *tokenbucket.Bucket, r *tokenbucket.Reservation){
		func(_ *tokenbucket.Bucket, r *tokenbucket.Reservation) { r.Delay() },
		func(_ *tokenbucket.Bucket, r *tokenbucket.Reservation) { r.Cancel() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Waiting() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Tokens() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Take(0) },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.State() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Latest() },
	} {
		mock := new(waittest.Clock)
		bucket := newBucket(t, mock, Limit{2, 1})
		bucket.TryAcquire(2)
		first, err := bucket.Reserve(2)
		require.NoError(t, err)
		second, err := bucket.Reserve(2)
		require.NoError(t, err)
		mock.Set(5500 * ms) // due at 2 s and at 4 s
		ask(bucket, second)
		require.Zero(t, bucket.Waiting())
		require.Zero(t, first.Delay())
		require.Zero(t, second.Delay())
		require.False(t, first.Cancel())
		require.Equal(t, 1.5, bucket.Tokens())
	}
}

func TestZeroReservation(t *testing.T) {
	var r tokenbucket.Reservation
	require.Zero(t, r.Delay())
	require.False(t, r.Cancel())
	var bucket tokenbucket.Bucket
	free, err := bucket.Reserve(0)
	require.NoError(t, err)
	require.Zero(t, free.Delay())
	_, err = bucket.Reserve(1)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
}

func TestReservationIsCancelledOnceByMany(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1})
	bucket.TryAcquire(10)
	r, err := bucket.Reserve(5)
	require.NoError(t, err)
	var cancelled atomic.Int32
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if r.Cancel() {
				cancelled.Add(1)
			}
			r.Delay()
		})
	}
	group.Wait()
	require.Equal(t, int32(1), cancelled.Load())
	require.Zero(t, bucket.Tokens())
}
