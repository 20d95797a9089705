package waittest

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// edges tests the shortest and the longest waits.
func edges(t *testing.T, new New) {
	play(t, "a refund ends a wait that would never have ended", new, limits(10, 1), refundEndsEndlessWait)
	play(t, "a waiter behind one that waits forever moves up", new, limits(1, 1e-10), behindAnEndlessWait)
	play(t, "what can't be asked for takes nothing, behind a queue or paused", new, limits(10, 1), invalidCosts)
	play(t, "Reset holds behind a queue and a pause", new, limits(10, 3), resetBehindQueueAndPause)
	play(t, "a refund during a pause admits nothing yet", new, limits(10, 1), refundDuringPause)
	play(t, "golang/go#54541", new, limits(1, 1), reportGo54541)
	play(t, "limits#362", new, limits(1, 1), reportLimits362)
	play(t, "bucket4j#220", new, limits(3, 1.5), reportBucket4j220)
}

func refundEndsEndlessWait(s *scene) {
	require.NoError(s.t, s.Charge(1e12))
	s.requireRefused(1, never)
	s.queue("one", 1)
	s.to(sec)
	require.NoError(s.t, s.Refund(1e12))
	synctest.Wait()
	s.requireLeft("one", sec)
	require.Equal(s.t, 9.0, s.Tokens())
}

func behindAnEndlessWait(s *scene) {
	s.drain(1)
	due, _ := s.TryAcquire(0.5) // 158 years
	require.Less(s.t, due, never)
	cancel := s.queue("forever", 1)
	s.queue("long", 0.5)
	s.requireRefused(0.25, never)
	s.to(time.Hour)
	cancel()
	s.to(due)
	s.requireLeft("long", due)
}

func invalidCosts(s *scene) {
	s.drain(10)
	s.queue("two", 2)
	for range 2 {
		for _, cost := range []float64{-5, math.NaN(), math.Inf(-1), math.Inf(1), 10.5} {
			want := tokenbucket.ErrInvalidCost
			if cost > 0 {
				want = tokenbucket.ErrCostExceedsCapacity
			}
			s.requireRefused(cost, never)
			require.Equal(s.t, never, s.Take(cost).Wait)
			require.ErrorIs(s.t, s.Wait(background, cost), want)
		}
		require.Equal(s.t, -2.0, s.Tokens())
		s.Pause(sec)
	}
	s.to(3 * sec)
	s.requireLeft("two", 3*sec)
}

func resetBehindQueueAndPause(s *scene) {
	s.drain(10)
	s.queue("five", 5)
	s.Pause(sec)
	s.queue("two", 2)
	reset := s.Take(1).Reset()
	require.Equal(s.t, sec+5666666667, reset) // 17 / 3
	s.to(reset - 1)
	s.requireRefused(10, 1)
	s.to(reset)
	s.drain(10)
}

func refundDuringPause(s *scene) {
	s.Pause(2 * sec)
	require.NoError(s.t, s.Refund(7))
	for _, cost := range []float64{0, 3} {
		d := s.Take(cost)
		require.Equal(s.t, cost == 0, d.OK)
		require.Zero(s.t, d.Remaining())
		require.Equal(s.t, 5*sec, d.Reset())
	}
	s.to(2*sec - 1)
	s.requireRefused(7, 1)
	s.to(2 * sec)
	s.drain(7)
}

func reportGo54541(s *scene) {
	s.drain(1)
	require.ErrorIs(s.t, s.Wait(s.within(500*ms), 1), context.DeadlineExceeded)
	require.Zero(s.t, s.now(), "at once")
	require.Zero(s.t, s.Tokens(), "nothing charged")
	s.to(sec)
	s.drain(1)
}

func reportLimits362(s *scene) {
	s.drain(1)
	require.ErrorIs(s.t, s.Wait(background, -5), tokenbucket.ErrInvalidCost)
	require.ErrorIs(s.t, s.Wait(background, math.NaN()), tokenbucket.ErrInvalidCost)
	require.NoError(s.t, s.Wait(background, 0))
	require.Zero(s.t, s.Tokens())
}

func reportBucket4j220(s *scene) {
	require.ErrorIs(s.t, s.Wait(background, 4), tokenbucket.ErrCostExceedsCapacity)
	require.Zero(s.t, s.now(), "said at once")
	require.Equal(s.t, 3.0, s.Tokens())
}
