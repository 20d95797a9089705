package iolimit_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

func TestWriteTakesExactlyAsLongAsItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSink()
		w := iolimit.NewWriter(t.Context(), out, newBucket(8))
		requireResult(t, 16, nil, 4*time.Second, <-run(w.Write, count(16)))
		require.Equal(t, []moved{{0, 4}, {0, 4}, {2 * time.Second, 4}, {4 * time.Second, 4}}, out.moves)
		require.Equal(t, count(16), out.Bytes())
	})
}

func TestWriteOfALargeBufferTakesExactlyAsLongAsItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(tokenbucket.PerSecond(100 << 10))
		w := iolimit.NewWriter(t.Context(), io.Discard, bucket)
		requireResult(t, 4<<20, nil, 39_960*time.Millisecond, <-run(w.Write, make([]byte, 4<<20)))
	})
}

func TestCancelledWriteTakesNothingForWhatItDidNotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		bucket := newBucket(8)
		w := iolimit.NewWriter(ctx, newSink(), bucket)
		requireResult(t, 8, context.Canceled, time.Second, while(w.Write, count(16), cancel))
		require.Equal(t, 2.0, bucket.Tokens())
		requireResult(t, 0, context.Canceled, 0, <-run(w.Write, count(4)))
	})
}

func TestShortWriteIsRefunded(t *testing.T) {
	for name, test := range map[string]struct{ err, want error }{
		"with an error": {errBroken, errBroken},
		"without":       {nil, io.ErrShortWrite},
	} {
		inBubble(t, name, func(t *testing.T) {
			own, shared := newBucket(8), newBucket(8)
			out := newSink()
			out.take = func(int) (int, error) { return 1, test.err }
			w := iolimit.NewWriter(t.Context(), out, own, shared)
			requireResult(t, 1, test.want, 0, <-run(w.Write, count(4)))
			require.Equal(t, 7.0, own.Tokens())
			require.Equal(t, 7.0, shared.Tokens())
		})
	}
}

func TestWriteReturnsTheErrorOfAWholeChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, out := newBucket(8), newSink()
		out.take = func(n int) (int, error) { return n, errBroken }
		w := iolimit.NewWriter(t.Context(), out, bucket)
		requireResult(t, 4, errBroken, 0, <-run(w.Write, count(8)))
		require.Equal(t, 4.0, bucket.Tokens())
	})
}

func TestWriteRefusesAnImpossibleCount(t *testing.T) {
	for _, n := range []int{-1, 5} {
		out := newSink()
		out.take = func(int) (int, error) { return n, nil }
		written, err := iolimit.NewWriter(t.Context(), out, newBucket(8)).Write(count(4))
		require.ErrorContains(t, err, "return how many it moved")
		require.Zero(t, written)
	}
}

// A change of the bucket takes effect at once on a Write that waits for 4 bytes from empty.
func TestWriteFollowsTheBucketWhileItWaits(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(b *tokenbucket.Bucket) error
		n      int
		err    error
		at     time.Duration
	}{
		{"nothing", func(*tokenbucket.Bucket) error { return nil }, 4, nil, 2 * time.Second},
		{"SetLimits to a faster refill", func(b *tokenbucket.Bucket) error {
			return b.SetLimits(tokenbucket.Limit{Capacity: 8, RefillPerSec: 4})
		}, 4, nil, 1500 * time.Millisecond},
		{"SetLimits to a capacity below the chunk", func(b *tokenbucket.Bucket) error {
			return b.SetLimits(tokenbucket.Limit{Capacity: 3, RefillPerSec: 2})
		}, 4, nil, 2 * time.Second},
		{"SetLimits to a capacity of one byte", func(b *tokenbucket.Bucket) error {
			return b.SetLimits(tokenbucket.Limit{Capacity: 1, RefillPerSec: 2})
		}, 4, nil, 2500 * time.Millisecond}, // one of the two tokens in the bucket is lost
		{"SetLimits to a capacity below one byte", func(b *tokenbucket.Bucket) error {
			return b.SetLimits(tokenbucket.Limit{Capacity: 0.5, RefillPerSec: 2})
		}, 0, tokenbucket.ErrCostExceedsCapacity, time.Second},
		{"Pause", func(b *tokenbucket.Bucket) error { b.Pause(10 * time.Second); return nil }, 4, nil, 13 * time.Second},
		{"Fill", func(b *tokenbucket.Bucket) error { b.Fill(); return nil }, 4, nil, time.Second},
		{"Refund", func(b *tokenbucket.Bucket) error { return b.Refund(1) }, 4, nil, 1500 * time.Millisecond},
		{"Charge", func(b *tokenbucket.Bucket) error { return b.Charge(6) }, 4, nil, 5 * time.Second},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			bucket, out := newBucket(0), newSink()
			w := iolimit.NewWriter(t.Context(), out, bucket)
			got := while(w.Write, count(4), func() { require.NoError(t, test.change(bucket)) })
			requireResult(t, test.n, test.err, test.at, got)
			require.Equal(t, count(test.n), append([]byte{}, out.Bytes()...))
		})
	}
}

func TestChunkSize(t *testing.T) {
	for _, test := range []struct {
		capacities []float64
		want       int
	}{
		{[]float64{1 << 42}, 64 << 10},
		{[]float64{128 << 10}, 64 << 10},
		{[]float64{127 << 10}, 127 << 9},
		{[]float64{9}, 4},
		{[]float64{3}, 1},
		{[]float64{2}, 1},
		{[]float64{1}, 1},
		{[]float64{1 << 20, 100, 1000}, 50},
	} {
		var own, shared []*tokenbucket.Bucket
		inOne := tokenbucket.Limit{Capacity: test.capacities[0], RefillPerSec: 1e9}
		var further []tokenbucket.Option
		for i, capacity := range test.capacities {
			l := tokenbucket.Limit{Capacity: capacity, RefillPerSec: 1e9}
			own = append(own, tokenbucket.MustNew(l))
			if i > 0 {
				further = append(further, tokenbucket.WithLimit(l))
			}
		}
		shared = append(shared, tokenbucket.MustNew(inOne, further...))
		for _, buckets := range [][]*tokenbucket.Bucket{own, shared} {
			out := newSink()
			n, err := iolimit.NewWriter(t.Context(), out, buckets...).Write(make([]byte, 2*test.want))
			require.NoError(t, err)
			require.Equal(t, 2*test.want, n)
			require.Equal(t, test.want, out.moves[0].n, "capacities %v", test.capacities)
		}
	}
}

func TestCapacityBelowOneByte(t *testing.T) {
	for name, bucket := range map[string]*tokenbucket.Bucket{
		"half a byte": tokenbucket.MustNew(tokenbucket.Limit{Capacity: 0.5, RefillPerSec: 2}),
		"zero Bucket": {},
	} {
		t.Run(name, func(t *testing.T) {
			out, in, own := newSink(), newSource(), newBucket(8)
			n, err := iolimit.NewWriter(t.Context(), out, own, bucket).Write(count(1))
			require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
			require.Zero(t, n)
			n, err = iolimit.NewReader(t.Context(), in, own, bucket).Read(make([]byte, 1))
			require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
			require.Zero(t, n)
			require.Empty(t, out.moves)
			require.Empty(t, in.moves)
			require.Equal(t, 8.0, own.Tokens())
		})
	}
}

func TestZeroBytesPassInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := newBucket(0)
		bucket.Pause(tokenbucket.Never)
		out, in := newSink(), newSource()
		w := iolimit.NewWriter(t.Context(), out, bucket)
		requireResult(t, 0, nil, 0, <-run(w.Write, nil))
		require.Len(t, out.moves, 1)
		r := iolimit.NewReader(t.Context(), in, bucket)
		requireResult(t, 0, nil, 0, <-run(r.Read, nil))
		in.give = func(int) (int, error) { return 0, io.EOF }
		requireResult(t, 0, io.EOF, 0, <-run(r.Read, make([]byte, 4)))
	})
}

func TestNoBucketsAndNilAreNoLimit(t *testing.T) {
	for name, buckets := range map[string][]*tokenbucket.Bucket{"none": nil, "nil": {nil, nil}} {
		t.Run(name, func(t *testing.T) {
			out, in := newSink(), newSource()
			n, err := iolimit.NewWriter(t.Context(), out, buckets...).Write(make([]byte, 1<<20))
			require.NoError(t, err)
			require.Equal(t, 1<<20, n)
			require.Len(t, out.moves, 1)
			n, err = iolimit.NewReader(t.Context(), in, buckets...).Read(make([]byte, 1<<20))
			require.NoError(t, err)
			require.Equal(t, 1<<20, n)
			_, err = iolimit.NewReader(ended(), in, buckets...).Read(make([]byte, 1))
			require.ErrorIs(t, err, context.Canceled)
			_, err = iolimit.NewWriter(ended(), out, buckets...).Write(make([]byte, 1))
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, out.moves, 1)
			require.Len(t, in.moves, 1)
		})
	}
}

func TestNilAmongOthersIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := iolimit.NewWriter(t.Context(), newSink(), nil, newBucket(0), nil)
		requireResult(t, 4, nil, 2*time.Second, <-run(w.Write, count(4)))
	})
}

func TestWriteBeyondTheDeadlineFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		bucket := newBucket(0)
		w := iolimit.NewWriter(ctx, newSink(), bucket)
		var deadline *tokenbucket.DeadlineError
		got := <-run(w.Write, count(8))
		requireResult(t, 4, context.DeadlineExceeded, 2*time.Second, got)
		require.ErrorAs(t, got.err, &deadline)
		require.Equal(t, 2*time.Second, deadline.Wait)
		require.Equal(t, 0.0, bucket.Tokens())
	})
}

func TestFullQueueEndsTheWrite(t *testing.T) {
	bucket := tokenbucket.MustNew(small, tokenbucket.WithMaxWaiters(0))
	n, err := iolimit.NewWriter(t.Context(), newSink(), bucket).Write(count(12))
	require.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
	require.Equal(t, 8, n)
}

// The first bucket has granted the bytes when the wait for the second one fails.
func TestLaterBucketsFailureGivesTheEarlierTokensBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		own, middle, shared := newBucket(8), newBucket(8), newBucket(0)
		w := iolimit.NewWriter(ctx, newSink(), own, middle, shared)
		done := run(w.Write, count(4))
		synctest.Wait()
		require.Equal(t, 4.0, own.Tokens())
		time.Sleep(time.Second)
		cancel()
		requireResult(t, 0, context.Canceled, time.Second, <-done)
		require.Equal(t, 8.0, own.Tokens())
		require.Equal(t, 8.0, middle.Tokens())
		require.Equal(t, 2.0, shared.Tokens())
	})
}

// The last bucket's capacity falls below the chunk: the first one gets the difference back.
func TestSmallerChunkGivesTheDifferenceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 8, RefillPerSec: 1e-9})
		shared := newBucket(0)
		out := newSink()
		w := iolimit.NewWriter(t.Context(), out, own, shared)
		got := while(w.Write, count(4), func() {
			require.NoError(t, shared.SetLimits(tokenbucket.Limit{Capacity: 2, RefillPerSec: 2}))
		})
		requireResult(t, 4, nil, 2*time.Second, got)
		require.Equal(t, []moved{{time.Second, 1}, {time.Second, 1}, {1500 * time.Millisecond, 1}, {2 * time.Second, 1}}, out.moves)
		require.InDelta(t, 4, own.Tokens(), 1e-6)
	})
}

func TestWritesOfSeveralGoroutinesStayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSink()
		w := iolimit.NewWriter(t.Context(), out, newBucket(0))
		first := run(w.Write, bytes.Repeat([]byte("a"), 8))
		synctest.Wait()
		second := run(w.Write, bytes.Repeat([]byte("b"), 8))
		requireResult(t, 8, nil, 4*time.Second, <-first)
		requireResult(t, 8, nil, 8*time.Second, <-second)
		require.Equal(t, "aaaaaaaabbbbbbbb", out.String())
	})
}

func TestWriteGivesUpWaitingForAnotherWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := iolimit.NewWriter(ctx, newSink(), newBucket(0))
		first, second := run(w.Write, count(4)), run(w.Write, count(4))
		time.Sleep(time.Second)
		cancel()
		requireResult(t, 0, context.Canceled, time.Second, <-first)
		requireResult(t, 0, context.Canceled, time.Second, <-second)
	})
}

// The bucket waits by a mock clock; the context ends in real time.
func TestMockClockIsTheBucketsOwn(t *testing.T) {
	mock := clock.NewMock()
	bucket := tokenbucket.MustNew(small, tokenbucket.WithTokens(0), tokenbucket.WithClock(mock))
	ctx, cancel := context.WithCancel(t.Context())
	w := iolimit.NewWriter(ctx, newSink(), bucket)
	waitFor := func(waiting int) {
		for bucket.Waiting() != waiting {
			time.Sleep(time.Millisecond)
		}
	}
	done := run(w.Write, count(4))
	waitFor(1)
	mock.Add(2 * time.Second)
	require.NoError(t, (<-done).err)
	done = run(w.Write, count(4))
	waitFor(1)
	cancel()
	require.ErrorIs(t, (<-done).err, context.Canceled)
	require.Equal(t, 0.0, bucket.Tokens())
}

func TestBytesPerSecond(t *testing.T) {
	for bytes, capacity := range map[float64]float64{
		1e-3:    4096,
		10e3:    4096,
		1e6:     10e3,
		125e6:   1.25e6,
		1.25e9:  12.5e6,
		4 << 40: (4 << 40) / 100.0,
		1e300:   1 << 42,
	} {
		l := iolimit.BytesPerSecond(bytes)
		require.NoError(t, l.Validate())
		require.Equal(t, tokenbucket.Limit{Capacity: capacity, RefillPerSec: bytes}, l)
		n, err := iolimit.NewWriter(t.Context(), io.Discard, tokenbucket.MustNew(l)).Write(count(2048))
		require.NoError(t, err)
		require.Equal(t, 2048, n)
	}
}
