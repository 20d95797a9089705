package waittest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wakeups tests that a waiter sets one timer and wakes once, unless the state of the
// bucket has changed.
func wakeups(t *testing.T, new New) {
	synctest.Test(t, func(t *testing.T) {
		c := &Clock{}
		b := new(t, c, limits(10, 1)...)
		b.TryAcquire(10)
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { assert.NoError(t, b.Wait(background, 1)) })
			synctest.Wait()
		}
		require.Equal(t, 100, c.Afters())
		for i := range 100 {
			c.Set(time.Duration(i+1) * sec)
			synctest.Wait()
			require.Equal(t, 99-i, b.Waiting())
		}
		group.Wait()
		require.Equal(t, 100, c.Afters(), "a grant wakes one, not all")
	})
	t.Run("ten thousand cancellations do not wake everybody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Clock{}
			b := new(t, c, limits(10, 1)...)
			b.TryAcquire(10)
			ctx, stop := context.WithCancel(background)
			var group sync.WaitGroup
			for i := range 20_000 {
				own := background
				if i%2 == 0 {
					own = ctx
				}
				group.Go(func() { _ = b.Wait(own, 1) })
			}
			synctest.Wait()
			before := c.Afters()
			stop()
			synctest.Wait()
			require.Equal(t, 10_000, b.Waiting())
			require.LessOrEqual(t, c.Afters()-before, 100, "only the head needs a timer that is right")
			require.NoError(t, b.Charge(1e6))
			_ = b.Refund(1)
			c.Set(2_000_000 * sec)
			group.Wait()
		})
	})
}
