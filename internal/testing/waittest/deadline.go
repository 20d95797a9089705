package waittest

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

func deadline(t *testing.T, new New) {
	system := func(name string, act func(s *scene)) {
		t.Run(name, func(t *testing.T) {
			playOn(t, nil, new, limits(10, 1), func(s *scene) { act(s.drain(10)) })
		})
	}
	system("one that can't be met fails at once", unmetDeadline)
	system("it counts those ahead", deadlineBehindOthers)
	system("one met at first can be missed later", deadlineMissedLater)
	system("the order of the checks", orderOfChecks)
	t.Run("never with a deadline", func(t *testing.T) {
		playOn(t, nil, new, limits(1, 1e-11), func(s *scene) {
			s.drain(1)
			require.ErrorIs(s.t, s.Wait(s.within(290*365*24*time.Hour), 1), context.DeadlineExceeded)
		})
	})
	t.Run("by the mock clock and by the real one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mock := NewClock(time.Now().Add(2 * time.Hour))
			b := new(t, mock, limits(1, 1)...)
			b.TryAcquire(1)
			var advanced time.Duration
			wait := func(deadline time.Time) error {
				ctx, cancel := context.WithDeadline(background, deadline)
				defer cancel()
				go func() {
					time.Sleep(ms) // until the waiter is queued
					advanced += 10 * sec
					mock.Set(advanced)
				}()
				err := b.Wait(ctx, 1)
				time.Sleep(2 * ms)
				return err
			}
			require.NoError(t, wait(mock.Now().Add(2*sec)), "in time by both")
			b.TryAcquire(1)
			require.NoError(t, wait(time.Now().Add(2*sec)), "in time by the real clock, missed by the mock")
			b.TryAcquire(1)
			require.ErrorIs(t, wait(time.Now().Add(sec/2)), context.DeadlineExceeded, "missed by both")
		})
	})
}

func unmetDeadline(s *scene) {
	s.wait(s.within(5*sec-1), "five", 5)
	s.requireFailed("five", 0, context.DeadlineExceeded)
	d, _ := s.departure("five")
	var err *tokenbucket.DeadlineError
	require.ErrorAs(s.t, d.err, &err)
	require.Equal(s.t, 5*sec, err.Wait)
	require.True(s.t, err.Timeout())
	require.Zero(s.t, s.Waiting())
	require.Zero(s.t, s.Tokens())
}

func deadlineBehindOthers(s *scene) {
	s.queue("three", 3)
	s.wait(s.within(5*sec), "late", 3)
	s.requireFailed("late", 0, context.DeadlineExceeded)
	s.wait(s.within(6*sec), "in time", 3)
	s.to(6 * sec)
	s.requireLeft("in time", 6*sec)
}

func deadlineMissedLater(s *scene) {
	s.wait(s.within(3*sec), "two", 2)
	s.to(sec)
	require.NoError(s.t, s.Charge(5))
	s.to(3 * sec)
	s.requireFailed("two", 3*sec, context.DeadlineExceeded)
	require.Equal(s.t, -2.0, s.Tokens())
}

func orderOfChecks(s *scene) {
	done, cancel := context.WithCancelCause(background)
	cancel(errors.New("cause"))
	err := s.Wait(done, math.NaN())
	require.Equal(s.t, context.Canceled, err, "the context first, its error and not its cause")
	require.Equal(s.t, context.Canceled, s.Wait(done, 0))
	require.ErrorIs(s.t, s.Wait(s.within(1), -1), tokenbucket.ErrInvalidCost)
	require.ErrorIs(s.t, s.Wait(s.within(1), 11), tokenbucket.ErrCostExceedsCapacity)
	require.ErrorIs(s.t, s.Wait(s.within(1), math.Inf(1)), tokenbucket.ErrCostExceedsCapacity)
	require.ErrorIs(s.t, s.Wait(s.within(1), 1), context.DeadlineExceeded)
	require.Zero(s.t, s.Tokens())
}
