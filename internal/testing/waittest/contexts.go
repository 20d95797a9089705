package waittest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// contexts tests waits that end with their contexts.
func contexts(t *testing.T, new New) {
	play(t, "the error while waiting is the context's and not its cause", new, limits(10, 1), func(s *scene) {
		s.drain(10)
		ctx, stop := context.WithCancelCause(background)
		s.wait(ctx, "one", 1)
		s.to(500 * ms)
		stop(errors.New("cause"))
		synctest.Wait()
		d, _ := s.departure("one")
		require.Equal(s.t, departure{500 * ms, context.Canceled}, d)
		require.Equal(s.t, 0.5, s.Tokens())
	})
	play(t, "a context that is done takes nothing, and those behind gain nothing", new, limits(10, 1), func(s *scene) {
		s.drain(10)
		s.queue("one", 1)
		done, stop := context.WithCancel(background)
		stop()
		require.Equal(s.t, context.Canceled, s.Wait(done, 5))
		require.Equal(s.t, 1, s.Waiting())
		s.to(sec)
		s.requireLeft("one", sec)
		require.Zero(s.t, s.Tokens())
	})
	t.Run("a mock's context has its deadline by the mock", func(t *testing.T) { mockDeadlines(t, new) })
	t.Run("nil exactly if the tokens were taken, also in a race", func(t *testing.T) { raceToCancel(t, new) })
}

func mockDeadlines(t *testing.T, new New) {
	playMock(t, new, limits(10, 1), func(s *scene) {
		s.drain(10)
		var missed *tokenbucket.DeadlineError
		require.ErrorAs(s.t, s.Wait(s.within(3*sec-1), 3), &missed)
		require.Equal(s.t, 3*sec, missed.Wait)
		s.wait(s.within(3*sec), "due at the deadline", 3)
		require.ErrorAs(s.t, s.Wait(s.within(4*sec-1), 1), &missed)
		require.Equal(s.t, 4*sec, missed.Wait)
		s.wait(s.within(6*sec), "in time", 1)
		require.Equal(s.t, 2, s.Waiting())
		s.to(6 * sec)
		s.requireLeft("due at the deadline", 3*sec)
		s.requireLeft("in time", 4*sec)
	})
}

// within returns a context that ends after d by the clock of the scene.
func (s *scene) within(d time.Duration) context.Context {
	withTimeout := context.WithTimeout
	if s.mock != nil {
		withTimeout = s.mock.withTimeout
	}
	ctx, cancel := withTimeout(background, d)
	s.t.Cleanup(cancel)
	return ctx
}

// clockContext has a deadline by a Clock.
type clockContext struct {
	context.Context
	deadline time.Time
}

func (c *Clock) withTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	timer := c.After(d)
	go func() {
		select {
		case <-timer:
			end(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	}()
	return clockContext{ctx, c.Now().Add(d)}, func() { end(context.Canceled) }
}

func (c clockContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c clockContext) Err() error { return context.Cause(c.Context) }

// raceToCancel lets a clock jump past a waiter's turn and the end of its context at the
// same time: either may win.
func raceToCancel(t *testing.T, new New) {
	synctest.Test(t, func(t *testing.T) {
		c := &Clock{}
		b := new(t, c, limits(1<<20, 1)...)
		b.TryAcquire(1 << 20)
		for i := range 500 {
			ctx, stop := context.WithCancel(background)
			var group sync.WaitGroup
			var err error
			group.Go(func() { err = b.Wait(ctx, 1) })
			synctest.Wait()
			group.Go(stop)
			for range i % 5 {
				runtime.Gosched()
			}
			c.Set(time.Duration(i+1) * sec)
			group.Wait()
			if err == nil {
				require.Zero(t, b.Tokens())
				continue
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 1.0, b.Tokens())
			require.NoError(t, b.Charge(1))
		}
	})
}
