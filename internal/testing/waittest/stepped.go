package waittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steppedClock tests clocks that step back or forward.
func steppedClock(t *testing.T, new New) {
	t.Run("golang/go#56287", func(t *testing.T) {
		c, b := startAt100(t, new, 10, 1)
		c.Set(110 * sec)
		requireTry(t, b, 10, 0)
		c.Set(109 * sec)
		requireTry(t, b, 1, 2*sec) // from this reading on
		require.Equal(t, 2*sec, b.Take(1).Wait)
		c.Set(110 * sec)
		requireTry(t, b, 1, sec)
		c.Set(111 * sec)
		requireTry(t, b, 1, 0)
	})
	t.Run("no part of a burst is refused", func(t *testing.T) {
		c, b := startAt100(t, new, 10, 1)
		b.TryAcquire(10)
		c.Set(110 * sec)
		for i := range 10 {
			c.Set(110*sec - time.Duration(i)*sec)
			requireTry(t, b, 1, 0)
		}
		requireTry(t, b, 1, 10*sec)
		require.Zero(t, b.Tokens())
	})
	t.Run("nothing is minted", func(t *testing.T) {
		c, b := startAt100(t, new, 10, 1)
		b.TryAcquire(10)
		admitted := 0
		for range 100 {
			for _, at := range []time.Duration{100, 90, 105, 0, 110} {
				c.Set(at * sec)
				if _, ok := b.TryAcquire(1); ok {
					admitted++
				}
			}
		}
		require.Equal(t, 10, admitted)
	})
	t.Run("before the origin", func(t *testing.T) {
		c, b := startAt100(t, new, 2, 1)
		c.Set(0)
		requireTry(t, b, 2, 0)
		require.NoError(t, b.Refund(1))
		require.NoError(t, b.Charge(1))
		requireTry(t, b, 1, 101*sec)
		b.Pause(sec)
		wait, ok := b.TryAcquire(1)
		require.False(t, ok)
		require.Equal(t, 102*sec, wait)
	})
}

// startAt100 returns a bucket whose clock reads 100 s.
func startAt100(t *testing.T, new New, capacity, refill float64) (*Clock, Bucket) {
	c := &Clock{}
	c.Set(100 * sec)
	return c, new(t, c, limits(capacity, refill)...)
}

func requireTry(t *testing.T, b Bucket, cost float64, want time.Duration) {
	t.Helper()
	wait, ok := b.TryAcquire(cost)
	require.Equal(t, want, wait)
	require.Equal(t, want == 0, ok)
}
