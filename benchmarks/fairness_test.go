package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/juju/ratelimit"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
)

// fair is a peer with a queue, or with refusals that report a wait.
type fair struct {
	name       string
	cancelable bool
	open       func(testing.TB) queue
}

// queue is an empty bucket of capacity 10 that refills 10 tokens a second.
type queue struct {
	wait func(ctx context.Context, cost int) error
	try  func() bool // for a token
}

var tenPerSecond = tokenbucket.Limit{Capacity: 10, RefillPerSec: 10}

var fairs = []fair{
	{ours, true, queueBucket},
	{"x-time-rate", true, queueRate},
	{"juju", false, queueJuju},
	{"failsafe", true, queueFailsafe},
	{"throttled", true, queueThrottled},
}

func queueBucket(testing.TB) queue {
	bucket := tokenbucket.MustNew(tenPerSecond, tokenbucket.WithTokens(0))
	return queue{
		wait: func(ctx context.Context, cost int) error { return bucket.Wait(ctx, float64(cost)) },
		try:  func() bool { _, ok := bucket.TryAcquire(1); return ok },
	}
}

func queueRate(tb testing.TB) queue {
	limiter := rate.NewLimiter(10, 10)
	require.True(tb, limiter.AllowN(time.Now(), 10))
	return queue{limiter.WaitN, limiter.Allow}
}

func queueJuju(testing.TB) queue {
	bucket := ratelimit.NewBucketWithRate(10, 10)
	bucket.TakeAvailable(10)
	return queue{
		wait: func(_ context.Context, cost int) error { bucket.Wait(int64(cost)); return nil },
		try:  func() bool { return bucket.TakeAvailable(1) == 1 },
	}
}

func queueFailsafe(testing.TB) queue {
	limiter := ratelimiter.NewBursty[any](10, time.Second)
	limiter.ReservePermits(10)
	return queue{
		wait: func(ctx context.Context, cost int) error { return limiter.AcquirePermits(ctx, uint(cost)) },
		try:  func() bool { return limiter.TryAcquirePermit() },
	}
}

// queueThrottled has no queue: a refused request is sent again after the reported wait.
func queueThrottled(tb testing.TB) queue {
	limiter := throttledLimiter(tb, tenPerSecond, must[throttled.GCRAStoreCtx](tb)(memstore.NewCtx(0)))
	ask := func(cost int) (time.Duration, bool) {
		limited, answer, err := limiter.RateLimitCtx(context.Background(), "client", cost)
		require.NoError(tb, err)
		return answer.RetryAfter, !limited
	}
	ask(10)
	return queue{
		wait: func(ctx context.Context, cost int) error { return comeBack(ctx, cost, ask) },
		try:  func() bool { _, ok := ask(1); return ok },
	}
}

func comeBack(ctx context.Context, cost int, ask func(int) (time.Duration, bool)) error {
	for {
		wait, ok := ask(cost)
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

const longest = time.Minute // that a waiter stays

// largeAmongSmall returns when a waiter for 5 tokens leaves, while others try to take one
// token twice as often as one is refilled.
func largeAmongSmall(tb testing.TB, p fair) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	q, start := p.open(tb), time.Now()
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = q.wait(ctx, 5)
	}()
	synctest.Wait()
	for {
		select {
		case <-left:
			return time.Since(start)
		case <-time.After(50 * time.Millisecond):
			q.try()
		}
	}
}

// afterCancelled returns when a waiter for one token leaves. It came after a waiter for
// 5, which gave up after 0.1 s.
func afterCancelled(tb testing.TB, p fair) time.Duration {
	ctx, cancel := context.WithCancel(context.Background()) // a peer would notice a deadline in advance
	defer time.AfterFunc(100*time.Millisecond, cancel).Stop()
	q, start := p.open(tb), time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = q.wait(ctx, 5)
	}()
	synctest.Wait()
	require.NoError(tb, q.wait(context.Background(), 1))
	left := time.Since(start)
	<-done
	return left
}

// TestFairness reports, on a virtual clock, how long a large request waits among small
// ones, and how long a waiter waits when the one ahead of it gives up. The best results
// are 0.5 s, the time in which 5 tokens are refilled, and 0.1 s.
func TestFairness(t *testing.T) {
	for _, p := range fairs {
		t.Run(p.name, func(t *testing.T) {
			large := inBubble(t, p, largeAmongSmall)
			t.Attr("5_tokens_among_single_ones", inWords(large))
			next := "cannot give up"
			if p.cancelable {
				next = inWords(inBubble(t, p, afterCancelled))
			}
			t.Attr("1_token_behind_a_cancelled_5", next)
			if p.name == ours {
				require.Equal(t, 500*time.Millisecond, large)
				require.Equal(t, "100ms", next)
			}
		})
	}
}

// inBubble plays a scene on a virtual clock.
func inBubble(t *testing.T, p fair, scene func(testing.TB, fair) time.Duration) (left time.Duration) {
	synctest.Test(t, func(t *testing.T) { left = scene(t, p) })
	return left
}

func inWords(left time.Duration) string {
	if left >= longest {
		return fmt.Sprintf("not within %v", longest)
	}
	return left.String()
}
