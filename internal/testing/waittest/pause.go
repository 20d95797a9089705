package waittest

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func pause(t *testing.T, new New) {
	play(t, "nothing but 0 before its end, then from empty", new, limits(10, 2), pauseFromEmpty)
	play(t, "refunds are kept for afterwards", new, limits(10, 1), refundsKept)
	play(t, "debt stays", new, limits(10, 1), debtStays)
	play(t, "with waiters", new, limits(10, 1), pauseWithWaiters)
	play(t, "a shorter one does not shorten it", new, limits(10, 1), shorterPause)
	play(t, "0 and less do nothing", new, limits(10, 1), noPause)
	play(t, "Never lasts for good", new, limits(10, 1), endlessPause)
}

func pauseFromEmpty(s *scene) {
	s.Pause(3 * sec)
	require.Zero(s.t, s.Tokens())
	s.requireRefused(1, 3500*ms)
	s.requireRefused(1e-300, 3*sec)
	d := s.Take(1)
	require.False(s.t, d.OK)
	require.Zero(s.t, d.Remaining())
	require.Equal(s.t, 8*sec, d.Reset())
	_, ok := s.TryAcquire(0)
	require.True(s.t, ok)
	require.NoError(s.t, s.Wait(background, 0))
	s.queue("one", 1)
	s.to(3 * sec)
	require.Equal(s.t, -1.0, s.Tokens())
	s.requireWaits("one")
	s.to(3500 * ms)
	s.requireLeft("one", 3500*ms)
}

func refundsKept(s *scene) {
	s.Pause(3 * sec)
	s.queue("four", 4)
	require.NoError(s.t, s.Refund(7))
	s.requireWaits("four")
	s.to(2 * sec)
	s.requireRefused(3, sec)
	d := s.Take(3)
	require.Equal(s.t, sec, d.Wait)
	require.Zero(s.t, d.Remaining())
	require.Equal(s.t, 8*sec, d.Reset())
	s.to(3*sec - 1)
	s.requireWaits("four")
	s.to(3 * sec)
	s.requireLeft("four", 3*sec)
	require.Equal(s.t, 3.0, s.Tokens())
}

func debtStays(s *scene) {
	require.NoError(s.t, s.Charge(14))
	s.Pause(sec)
	require.Equal(s.t, -4.0, s.Tokens())
	require.NoError(s.t, s.Charge(1))
	s.requireRefused(1, 7*sec)
}

func pauseWithWaiters(s *scene) {
	s.drain(10)
	s.queue("one", 1)
	s.queue("two", 1)
	s.to(500 * ms)
	s.Pause(10 * sec)
	s.to(11500*ms - 1)
	s.requireWaits("one")
	s.to(20 * sec)
	s.requireLeft("one", 11500*ms)
	s.requireLeft("two", 12500*ms)
}

func shorterPause(s *scene) {
	s.Pause(10 * sec)
	s.Pause(sec)
	s.Pause(0)
	s.Pause(-sec)
	s.requireRefused(1, 11*sec)
	s.to(5 * sec)
	s.Pause(6 * sec)
	s.requireRefused(1, 7*sec)
}

func noPause(s *scene) {
	s.Pause(0)
	s.Pause(math.MinInt64)
	require.Equal(s.t, 10.0, s.Tokens())
}

func endlessPause(s *scene) {
	s.to(sec)
	s.Pause(never)
	cancel := s.queue("one", 1)
	s.requireRefused(1, never)
	require.Equal(s.t, never, s.Take(1).Reset())
	require.NoError(s.t, s.Refund(10))
	s.to(100_000 * time.Hour)
	s.requireWaits("one")
	cancel()
	s.requireFailed("one", 100_000*time.Hour, context.Canceled)
}
