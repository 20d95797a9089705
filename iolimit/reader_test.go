package iolimit_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

func TestReadReadsAChunkAndThenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, p := newSource(), make([]byte, 16)
		r := iolimit.NewReader(t.Context(), in, newBucket(0))
		requireResult(t, 4, nil, 2*time.Second, <-run(r.Read, p))
		requireResult(t, 4, nil, 2*time.Second, <-run(r.Read, p[4:]))
		require.Equal(t, []moved{{0, 4}, {2 * time.Second, 4}}, in.moves)
		require.Equal(t, count(8), p[:8])
	})
}

func TestShortReadsPayForThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, in := newBucket(0), newSource()
		in.give = func(int) (int, error) { return 1, nil }
		r := iolimit.NewReader(t.Context(), in, bucket)
		for range 4 {
			requireResult(t, 1, nil, 500*time.Millisecond, <-run(r.Read, make([]byte, 16)))
		}
		require.Equal(t, 0.0, bucket.Tokens())
	})
}

func TestStalledSourceHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, in := newBucket(8), newSource()
		in.give = func(int) (int, error) { time.Sleep(time.Minute); return 0, io.EOF }
		done := run(iolimit.NewReader(t.Context(), in, bucket).Read, make([]byte, 4))
		synctest.Wait()
		require.Equal(t, 8.0, bucket.Tokens())
		require.Zero(t, bucket.Waiting())
		requireResult(t, 0, io.EOF, time.Minute, <-done)
		require.Equal(t, 8.0, bucket.Tokens())
	})
}

func TestReadReturnsTheSourcesErrorWithTheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newSource()
		in.give = func(int) (int, error) { return 2, io.EOF }
		r := iolimit.NewReader(t.Context(), in, newBucket(0))
		requireResult(t, 2, io.EOF, time.Second, <-run(r.Read, make([]byte, 4)))
	})
}

func TestReadRefusesAnImpossibleCount(t *testing.T) {
	for _, n := range []int{-1, 5} {
		in := newSource()
		in.give = func(int) (int, error) { return n, nil }
		got, err := iolimit.NewReader(t.Context(), in, newBucket(8)).Read(make([]byte, 8))
		require.ErrorContains(t, err, "return how many it moved")
		require.Zero(t, got)
	}
}

func TestBytesOfAFailedWaitAreReturnedAndCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		own, middle, shared := newBucket(8), newBucket(0), newBucket(8)
		in, p := newSource(), make([]byte, 4)
		r := iolimit.NewReader(ctx, in, own, middle, shared)
		requireResult(t, 4, context.Canceled, time.Second, while(r.Read, p, cancel))
		require.Equal(t, count(4), p)
		require.Equal(t, 6.0, own.Tokens(), "4 are left of 8, and 2 flowed in")
		require.Equal(t, -2.0, middle.Tokens())
		require.Equal(t, 4.0, shared.Tokens())
		requireResult(t, 0, context.Canceled, 0, <-run(r.Read, p))
		require.Len(t, in.moves, 1, "nothing is read once the context has ended")
	})
}

func TestEndedContextReadsNothing(t *testing.T) {
	in, bucket := newSource(), newBucket(8)
	n, err := iolimit.NewReader(ended(), in, bucket).Read(make([]byte, 4))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	require.Empty(t, in.moves)
	require.Equal(t, 8.0, bucket.Tokens())
}

// The wait would outlast the deadline, so Read returns at once; the next one waits first.
func TestReadAfterAFailedWaitWaitsBeforeItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		in, bucket := newSource(), newBucket(1)
		r := iolimit.NewReader(ctx, in, bucket)
		requireResult(t, 4, nil, 1500*time.Millisecond, <-run(r.Read, make([]byte, 4)))
		requireResult(t, 4, context.DeadlineExceeded, 0, <-run(r.Read, make([]byte, 4)))
		require.Equal(t, -4.0, bucket.Tokens())
		requireResult(t, 0, context.DeadlineExceeded, 0, <-run(r.Read, make([]byte, 4)))
		require.Len(t, in.moves, 2)
		require.Equal(t, -4.0, bucket.Tokens())
		require.NoError(t, bucket.Refund(4))
		requireResult(t, 1, nil, 500*time.Millisecond, <-run(r.Read, make([]byte, 1)))
	})
}

func TestErrorThatCameWithUnpaidBytesIsKept(t *testing.T) {
	bucket, in := tokenbucket.MustNew(small, tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(0)), newSource()
	in.give = func(int) (int, error) { return 4, errBroken }
	r := iolimit.NewReader(t.Context(), in, bucket)
	n, err := r.Read(make([]byte, 4))
	require.Equal(t, 4, n)
	require.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
	require.False(t, errors.Is(err, errBroken))
	bucket.Fill()
	n, err = r.Read(make([]byte, 4))
	require.Zero(t, n)
	require.ErrorIs(t, err, errBroken)
	require.Len(t, in.moves, 1)
}

// The capacity falls while a Read waits for the 4 bytes that it has read.
func TestReadPaysInSmallerChunksWhenTheCapacityFalls(t *testing.T) {
	for _, test := range []struct {
		name     string
		capacity float64
		err      error
		at       time.Duration
		own      float64
	}{
		{"to 3 bytes", 3, nil, 2 * time.Second, 4},
		{"below 1 byte", 0.5, tokenbucket.ErrCostExceedsCapacity, time.Second, 4},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			own := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 8, RefillPerSec: 1e-9})
			shared := newBucket(0)
			r := iolimit.NewReader(t.Context(), newSource(), own, shared)
			got := while(r.Read, make([]byte, 8), func() {
				require.NoError(t, shared.SetLimits(tokenbucket.Limit{Capacity: test.capacity, RefillPerSec: 2}))
			})
			requireResult(t, 4, test.err, test.at, got)
			require.InDelta(t, test.own, own.Tokens(), 1e-6, "each byte is charged once")
		})
	}
}

func TestReadsOfSeveralGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := iolimit.NewReader(t.Context(), newSource(), newBucket(0))
		first, second := run(r.Read, make([]byte, 4)), run(r.Read, make([]byte, 4))
		a, b := <-first, <-second
		require.Equal(t, 8, a.n+b.n)
		require.Equal(t, 4*time.Second, max(a.at, b.at))
		require.Equal(t, 2*time.Second, min(a.at, b.at))
	})
}

// The wait fails in the middle of the smaller chunks: both buckets are charged the rest.
func TestReadThatFailsAmongSmallerChunksChargesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		own := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 8, RefillPerSec: 1e-9})
		shared := newBucket(0)
		r := iolimit.NewReader(ctx, newSource(), own, shared)
		time.AfterFunc(1250*time.Millisecond, cancel)
		got := while(r.Read, make([]byte, 4), func() {
			require.NoError(t, shared.SetLimits(tokenbucket.Limit{Capacity: 2, RefillPerSec: 2}))
		})
		requireResult(t, 4, context.Canceled, 1250*time.Millisecond, got)
		require.InDelta(t, 4, own.Tokens(), 1e-6)
		require.Equal(t, -1.5, shared.Tokens(), "2 of 4 were paid for, and 0.5 refilled")
	})
}
