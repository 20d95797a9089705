package waittest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crowd is a bucket on a clock that a test sets, and its waiters, each with a cost of 1.
type crowd struct {
	Bucket
	t     *testing.T
	clock *Clock
	group sync.WaitGroup
}

func gather(t *testing.T, new New, start time.Duration, capacity, refill float64) *crowd {
	c := &Clock{}
	c.Set(start)
	cr := &crowd{Bucket: new(t, c, limits(capacity, refill)...), t: t, clock: c}
	_, ok := cr.TryAcquire(capacity)
	require.True(t, ok)
	return cr
}

func (c *crowd) queue(ctx context.Context) {
	c.group.Go(func() { assert.NoError(c.t, c.Wait(ctx, 1)) })
	synctest.Wait()
}

// to sets the clock, also backwards.
func (c *crowd) to(at time.Duration) {
	c.clock.Set(at)
	synctest.Wait()
}

// lateness tests timers that fire late, and clocks that step back while callers wait.
func lateness(t *testing.T, new New) {
	bubble := func(name string, act func(t *testing.T, new New)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { act(t, new) }) })
	}
	bubble("the long-run rate is the configured one", longRunRate)
	bubble("what is due is left for those who wait", dueIsLeft)
	bubble("a clock that steps back lets nobody leave early, nor twice as late", steppedBack)
	bubble("a timer that rings after the clock stepped back is set again", rungTooEarly)
	bubble("a pause on a clock that steps back", pauseSteppedBack)
	bubble("a cancellation on a clock that steps back", cancelSteppedBack)
}

func longRunRate(t *testing.T, new New) {
	c := gather(t, new, 0, 2, 7)
	for range 700 {
		c.queue(background)
	}
	random := rand.New(rand.NewPCG(4, 4))
	for at := time.Duration(0); at < 100*sec; at += time.Duration(random.Int64N(int64(3 * sec))) {
		c.to(at)
		require.Equal(t, 700-int(7*at/sec), c.Waiting(), "at %v", at)
	}
	c.to(100 * sec)
	c.group.Wait()
	require.Zero(t, c.Tokens())
}

func dueIsLeft(t *testing.T, new New) {
	c := gather(t, new, 0, 1, 1)
	for range 3 {
		c.queue(background)
	}
	c.clock.SetLate(2900 * ms)
	wait, ok := c.TryAcquire(1)
	require.False(t, ok)
	require.Equal(t, 1100*ms, wait) // behind the third, due at 3 s
	require.Equal(t, 1, c.Waiting())
	c.to(3 * sec)
	require.Zero(t, c.Waiting())
	c.group.Wait()
}

func steppedBack(t *testing.T, new New) {
	c := gather(t, new, 10*sec, 10, 1)
	c.to(9 * sec)
	c.queue(background) // due at 11 s: in 2 s
	wait, _ := c.TryAcquire(1)
	require.Equal(t, 3*sec, wait)
	for _, at := range []time.Duration{10 * sec, 0, -sec, 11*sec - 1} {
		c.to(at)
		require.Equal(t, 1, c.Waiting(), "at %v", at)
	}
	c.to(11 * sec)
	require.Zero(t, c.Waiting())
	c.group.Wait()
	require.Zero(t, c.Tokens())
}

func rungTooEarly(t *testing.T, new New) {
	c := gather(t, new, 0, 10, 1)
	c.queue(background)
	c.clock.ring() // too early
	synctest.Wait()
	require.Equal(t, 1, c.Waiting())
	require.Equal(t, 2, c.clock.Afters())
	c.to(sec)
	c.group.Wait()
}

func pauseSteppedBack(t *testing.T, new New) {
	c := gather(t, new, 10*sec, 10, 1)
	c.to(5 * sec)
	c.Pause(sec) // 5 s count as 10 s
	c.queue(background)
	wait, _ := c.TryAcquire(1)
	require.Equal(t, 8*sec, wait)
	c.to(12*sec - 1)
	require.Equal(t, 1, c.Waiting())
	c.to(12 * sec)
	c.group.Wait()
}

func cancelSteppedBack(t *testing.T, new New) {
	c := gather(t, new, 10*sec, 10, 1)
	ctx, stop := context.WithCancel(background)
	left := make(chan error, 1)
	go func() { left <- c.Wait(ctx, 10) }()
	synctest.Wait()
	c.queue(background)
	c.to(12 * sec)
	require.Equal(t, -9.0, c.Tokens()) // the bucket has seen 12 s
	c.to(3 * sec)
	stop()
	require.ErrorIs(t, <-left, context.Canceled)
	synctest.Wait()
	require.Zero(t, c.Waiting(), "it had been paid for at 11 s")
	require.Equal(t, 1.0, c.Tokens())
	c.group.Wait()
}
