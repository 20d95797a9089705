package waittest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// polled is a bucket on benbjohnson's mock clock, outside any synctest bubble. Inside a
// bubble, the mock's Add and a timer that is set at the same instant can tick one timer
// twice, and the second send blocks for ever. Here the test waits until Waiting counts
// every waiter, and advances the mock to one timer at a time.
type polled struct {
	Bucket
	t     *testing.T
	mock  *clock.Mock
	group sync.WaitGroup
}

// mocks tests buckets on benbjohnson's mock clock, which the test advances as users of
// the mock do.
func mocks(t *testing.T, new New) {
	start := func(t *testing.T, capacity float64) *polled {
		mock := clock.NewMock()
		p := &polled{Bucket: new(t, mock, limits(capacity, 1)...), t: t, mock: mock}
		_, ok := p.TryAcquire(capacity)
		require.True(t, ok)
		return p
	}
	t.Run("each leaves at its turn", func(t *testing.T) {
		p := start(t, 4)
		ctx, cancel := context.WithCancel(background)
		p.queue(ctx, 4, context.Canceled)
		for range 3 {
			p.queue(background, 1, nil)
		}
		p.pass(500*ms, 4)
		cancel() // the first of the others is due at 1 s
		p.settle(3)
		p.pass(500*ms, 2)
		require.NoError(t, p.Refund(0.75)) // the next at 1.25 s
		p.settle(2)
		p.pass(250*ms, 1)
		p.Pause(sec) // the last at 3.25 s
		p.settle(1)
		p.pass(2*sec-1, 1)
		p.pass(1, 0)
		p.group.Wait()
		require.Zero(t, p.Tokens())
	})
	t.Run("the deadline of its context counts by the mock", func(t *testing.T) {
		p := start(t, 10)
		var missed *tokenbucket.DeadlineError
		require.ErrorAs(t, p.Wait(p.within(3*sec-1), 3), &missed)
		require.Equal(t, 3*sec, missed.Wait)
		p.queue(p.within(3*sec), 3, nil) // due at the deadline
		require.ErrorAs(t, p.Wait(p.within(4*sec-1), 1), &missed)
		require.Equal(t, 4*sec, missed.Wait)
		p.queue(p.within(6*sec), 1, nil)
		p.pass(3*sec, 1)
		p.pass(sec, 0)
		p.group.Wait()
		require.Zero(t, p.Tokens())
	})
}

// queue sends a waiter, and returns once its timer is set.
func (p *polled) queue(ctx context.Context, cost float64, want error) {
	waiting := p.Waiting() + 1
	p.group.Go(func() { assert.ErrorIs(p.t, p.Wait(ctx, cost), want) })
	p.settle(waiting)
}

// settle returns once the given number of callers wait with their timers set.
func (p *polled) settle(waiting int) {
	for p.Waiting() != waiting {
		runtime.Gosched()
	}
}

// pass advances the mock, and returns once the given number of callers wait.
func (p *polled) pass(d time.Duration, waiting int) {
	p.mock.Add(d)
	p.settle(waiting)
}

func (p *polled) within(d time.Duration) context.Context {
	ctx, cancel := p.mock.WithTimeout(background, d)
	p.t.Cleanup(cancel)
	return ctx
}
