package iolimit_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/windowtest"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// recorder notes how many bytes pass in several streams, and when.
type recorder struct {
	start  time.Time
	mu     sync.Mutex
	passes []windowtest.Pass
	sent   map[int]int // by stream, in bytes
}

func newRecorder() *recorder { return &recorder{start: time.Now(), sent: map[int]int{}} }

func (r *recorder) note(stream, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes = append(r.passes, windowtest.Pass{At: time.Since(r.start), Amount: float64(n)})
	r.sent[stream] += n
}

// sentBy returns how many bytes of a stream passed so far.
func (r *recorder) sentBy(stream int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[stream]
}

// require checks that total bytes have passed, and in each window at most the limit's
// capacity + refill * t + extra.
func (r *recorder) require(t *testing.T, total int, l tokenbucket.Limit, extra float64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := 0
	for _, n := range r.sent {
		sent += n
	}
	require.GreaterOrEqual(t, sent, total)
	require.LessOrEqual(t, windowtest.Surplus(r.passes, l.RefillPerSec), l.Capacity+extra)
}

// streamOf returns a writer that notes the bytes written to it, and then waits for a
// while.
func (r *recorder) streamOf(stream int, while time.Duration) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		r.note(stream, len(p))
		time.Sleep(while)
		return len(p), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestTwoStreamsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, a, b := newBucket(0), newSink(), newSink()
		first := run(iolimit.NewWriter(t.Context(), a, bucket).Write, count(16))
		synctest.Wait()
		second := run(iolimit.NewWriter(t.Context(), b, bucket).Write, count(16))
		requireResult(t, 16, nil, 14*time.Second, <-first)
		requireResult(t, 16, nil, 16*time.Second, <-second)
		for i := range 4 {
			require.Equal(t, moved{time.Duration(4*i+2) * time.Second, 4}, a.moves[i])
			require.Equal(t, moved{time.Duration(4*i+4) * time.Second, 4}, b.moves[i])
		}
	})
}

// The bucket starts empty: from a full one, the first streams would get more bytes.
func TestEightStreamsStayWithinAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, all := newBucket(0), newRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		var streams []<-chan result
		for i := range 8 {
			w := iolimit.NewWriter(ctx, all.streamOf(i, 0), bucket)
			streams = append(streams, run(w.Write, make([]byte, 1<<10)))
		}
		for range 500 {
			time.Sleep(time.Second)
			synctest.Wait()
			least, most := 1<<20, 0
			for i := range 8 {
				sent := all.sentBy(i)
				least, most = min(least, sent), max(most, sent)
			}
			require.LessOrEqual(t, most-least, 4)
		}
		cancel()
		for _, s := range streams {
			<-s
		}
	})
}

// Each write of the slow stream takes an hour. The stream holds no more tokens than those
// of the chunk that it writes.
func TestSlowStreamDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, all := newBucket(0), newRecorder()
		slow := run(iolimit.NewWriter(t.Context(), all.streamOf(0, time.Hour), bucket).Write, count(8))
		var others []<-chan result
		for i := range 7 {
			others = append(others, run(iolimit.NewWriter(t.Context(), all.streamOf(i+1, 0), bucket).Write, count(16)))
		}
		var last time.Duration
		for _, s := range others {
			last = max(last, (<-s).at)
		}
		require.Equal(t, (7*16+4)/2*time.Second, last)
		require.Equal(t, 4, all.sentBy(0))
		<-slow
	})
}

// Streams of all kinds share a bucket. No window passes more than the bucket allows, at
// the instants of the grants. In a bubble these are the instants at which Write is
// called.
func TestNoWindowPassesMoreThanTheLimit(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			limit := tokenbucket.Limit{Capacity: float64(2 + random.IntN(100)), RefillPerSec: float64(1 + random.IntN(50))}
			shared, all := tokenbucket.MustNew(limit), newRecorder()
			var streams []<-chan result
			total := 0
			for i := range 8 {
				own := tokenbucket.MustNew(tokenbucket.Limit{Capacity: float64(1 + random.IntN(100)), RefillPerSec: 10})
				size := random.IntN(1000)
				pause := time.Duration(random.IntN(3)) * time.Second
				w := iolimit.NewWriter(t.Context(), all.streamOf(i, pause), own, shared)
				streams = append(streams, run(w.Write, make([]byte, size)))
				total += size
			}
			for _, s := range streams {
				require.NoError(t, (<-s).err)
			}
			all.require(t, total, limit, 1e-6)
		})
	}
}
