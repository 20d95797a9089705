package sleeper_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/sleeper"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// sleepers is a bucket whose callers share a few Sleepers, so that each Sleeper is used again
// after all kinds of waits.
type sleepers struct {
	*tokenbucket.Bucket
	mu   sync.Mutex
	idle []*sleeper.Sleeper
}

func (s *sleepers) Wait(ctx context.Context, cost float64) error {
	one := s.take()
	err := one.Wait(ctx, s.Bucket, cost)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, one)
	return err
}

func (s *sleepers) take() *sleeper.Sleeper {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return &sleeper.Sleeper{}
	}
	last := len(s.idle) - 1
	one := s.idle[last]
	s.idle = s.idle[:last]
	return one
}

func TestSleepersWaitAsABucketDoes(t *testing.T) {
	waittest.Run(t, func(t testing.TB, clock tokenbucket.Clock, limits ...tokenbucket.Limit) waittest.Bucket {
		opts := []tokenbucket.Option{tokenbucket.WithClock(clock)}
		for _, l := range limits[1:] {
			opts = append(opts, tokenbucket.WithLimit(l))
		}
		bucket, err := tokenbucket.New(limits[0], opts...)
		require.NoError(t, err)
		return &sleepers{Bucket: bucket}
	})
}

var slow = tokenbucket.Limit{Capacity: 8, RefillPerSec: 2}

func TestWaitsDoNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, s := tokenbucket.MustNew(slow, tokenbucket.WithTokens(0)), sleeper.Sleeper{}
		start := time.Now()
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Wait(t.Context(), bucket, 4) }))
		require.Equal(t, 101*2*time.Second, time.Since(start))
	})
}

// If a wait ends early, the timer is still set. If another call ends it at the instant of
// the timer, a nudge may be left. Neither of them may end the next wait.
func TestNothingIsLeftOfAnEarlierWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		several := tokenbucket.WithLimit(tokenbucket.Limit{Capacity: 9, RefillPerSec: 2})
		buckets := []*tokenbucket.Bucket{tokenbucket.MustNew(slow), tokenbucket.MustNew(slow, several), tokenbucket.MustNew(slow)}
		var s sleeper.Sleeper
		for i := range 60 {
			bucket := buckets[i%3]
			ctx, cancel := context.WithCancel(t.Context())
			end, at := endings(bucket, cancel, i/3)
			requireEnd(t, &s, ctx, bucket, end, at)
			cancel()
			requireEnd(t, &s, t.Context(), bucket, func() {}, 2*time.Second)
		}
	})
}

// endings returns a function that ends a wait of 2 s in the nth way, and the instant of
// that end.
func endings(bucket *tokenbucket.Bucket, cancel func(), n int) (end func(), at time.Duration) {
	switch n % 5 {
	case 0:
		return bucket.Fill, time.Second
	case 1:
		return cancel, time.Second
	case 2:
		return func() { time.Sleep(time.Second); bucket.TryAcquire(1) }, 2 * time.Second
	case 3:
		return func() { time.Sleep(time.Second); cancel() }, 2 * time.Second
	default:
		return func() { _ = bucket.Refund(1) }, 1500 * time.Millisecond
	}
}

// requireEnd waits for 4 tokens from empty, and calls end after a second.
func requireEnd(t *testing.T, s *sleeper.Sleeper, ctx context.Context, bucket *tokenbucket.Bucket, end func(), at time.Duration) {
	t.Helper()
	bucket.Fill()
	require.NoError(t, bucket.Charge(bucket.Tokens()))
	start := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); time.Sleep(time.Second); end() }()
	err := s.Wait(ctx, bucket, 4)
	require.Equal(t, at, time.Since(start))
	require.True(t, err == nil || ctx.Err() != nil, err)
	<-done
}

// fragile is the system clock, except that its first timer panics.
type fragile struct{ timers int }

func (*fragile) Now() time.Time                  { return time.Now() }
func (*fragile) Since(t time.Time) time.Duration { return time.Since(t) }
func (f *fragile) After(d time.Duration) <-chan time.Time {
	if f.timers++; f.timers == 1 {
		panic("no timer")
	}
	return time.After(d)
}

// The waiter is still queued after the panic, so it must not be queued again.
func TestWaiterIsNotUsedAgainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sleeper.Sleeper
		healthy := tokenbucket.MustNew(slow, tokenbucket.WithTokens(0))
		require.NoError(t, s.Wait(t.Context(), healthy, 4))
		bucket := tokenbucket.MustNew(slow, tokenbucket.WithTokens(0), tokenbucket.WithClock(&fragile{}))
		require.Panics(t, func() { _ = s.Wait(t.Context(), bucket, 4) })
		start := time.Now()
		require.NoError(t, s.Wait(t.Context(), bucket, 4))
		require.Equal(t, 4*time.Second, time.Since(start), "behind the first one, whose turn came")
	})
}
