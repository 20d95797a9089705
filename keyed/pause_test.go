package keyed_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

func TestWaitPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(10, 1)})
		waited, err := b.WaitPause(context.Background(), "unknown")
		require.NoError(t, err)
		require.Zero(t, waited)
		require.Zero(t, b.Len())

		b.Pause("a", 5*sec)
		b.Pause("forgotten", time.Hour)
		waited, err = b.WaitPause(context.Background(), "b")
		require.NoError(t, err)
		require.Zero(t, waited)
		var group sync.WaitGroup
		for key, want := range map[string]time.Duration{"a": 5 * sec, "forgotten": sec} {
			group.Go(func() {
				waited, err := b.WaitPause(context.Background(), key)
				assert.NoError(t, err)
				assert.Equal(t, want, waited)
			})
		}
		synctest.Wait()
		require.Equal(t, 1, b.Waiting("a"))
		time.Sleep(sec)
		b.Forget("forgotten")
		group.Wait()
		require.Zero(t, b.Tokens("a"))

		ctx, stop := context.WithTimeout(context.Background(), sec)
		defer stop()
		b.Pause("a", tokenbucket.Never)
		waited, err = b.WaitPause(ctx, "a")
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, sec, waited)
	})
}

// New keys for which there is no room share a bucket, and so its pause.
func TestWaitPauseOfTheOverflowBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(10, 1e-6)}, keyed.WithMaxKeys(1))
		b.TryAcquire("known", 5)
		b.Pause("newcomer", sec)
		waited, err := b.WaitPause(context.Background(), "another")
		require.NoError(t, err)
		require.Equal(t, sec, waited)
	})
}
