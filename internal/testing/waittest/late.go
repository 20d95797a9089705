package waittest

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// late tests timers that fire late: the turns of the waiters still count from the
// instants at which they were due.
func late(t *testing.T, new New) {
	t.Run("grants count at the instants they fell due", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Clock{}
			b := new(t, c, limits(2, 1)...)
			b.TryAcquire(2)
			var group sync.WaitGroup
			for range 10 {
				group.Go(func() { assert.NoError(t, b.Wait(background, 1)) })
				synctest.Wait()
			}
			c.Set(10500 * ms) // all waiters wake at once, late
			group.Wait()
			require.Equal(t, 0.5, b.Tokens(), "nothing was lost to the cap")
			require.Zero(t, b.Waiting())
		})
	})
	t.Run("a call that comes first serves those who are due", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Clock{}
			b := new(t, c, limits(1, 1)...)
			b.TryAcquire(1)
			var group sync.WaitGroup
			group.Go(func() { assert.NoError(t, b.Wait(background, 1)) })
			synctest.Wait()
			c.SetLate(5 * sec) // the timer is even later
			wait, ok := b.TryAcquire(1)
			require.True(t, ok, wait)
			require.Zero(t, b.Waiting())
			group.Wait()
		})
	})
}
