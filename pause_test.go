package tokenbucket_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

func TestWaitPause(t *testing.T) {
	for _, row := range []struct {
		name   string
		act    func(b *tokenbucket.Bucket) // at 2 s, with a pause to 10 s
		leaves time.Duration
	}{
		{"to the end", func(*tokenbucket.Bucket) {}, 10 * sec},
		{"a longer pause", func(b *tokenbucket.Bucket) { b.Pause(20 * sec) }, 22 * sec},
		{"a shorter pause", func(b *tokenbucket.Bucket) { b.Pause(sec) }, 10 * sec},
		{"Fill", (*tokenbucket.Bucket).Fill, 2 * sec},
		{"debt", func(b *tokenbucket.Bucket) { assert.NoError(t, b.Charge(100)) }, 10 * sec},
		{"a refund", func(b *tokenbucket.Bucket) { assert.NoError(t, b.Refund(100)) }, 10 * sec},
		{"another limit", func(b *tokenbucket.Bucket) { assert.NoError(t, b.SetLimits(Limit{5, 5})) }, 10 * sec},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, b := time.Now(), newBucket(t, nil, Limit{10, 1})
				b.Pause(10 * sec)
				time.Sleep(sec)
				var group sync.WaitGroup
				for range 3 {
					group.Go(func() {
						waited, err := b.WaitPause(context.Background())
						assert.NoError(t, err)
						assert.Equal(t, row.leaves, time.Since(start))
						assert.Equal(t, row.leaves-sec, waited)
					})
				}
				synctest.Wait()
				require.Equal(t, 3, b.Waiting())
				time.Sleep(sec)
				row.act(b)
				group.Wait()
				require.Zero(t, b.Waiting())
			})
		})
	}
}

func TestWaitPauseWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, nil, Limit{10, 1})
		require.NoError(t, b.Charge(100)) // debt is no pause
		for range 100 {
			b.TryAcquire(1)
		}
		waited, err := b.WaitPause(context.Background())
		require.NoError(t, err)
		require.Zero(t, waited)
		require.Equal(t, -90.0, b.Tokens())

		b.Pause(sec)
		time.Sleep(sec)
		waited, err = b.WaitPause(context.Background())
		require.NoError(t, err)
		require.Zero(t, waited)
		require.Equal(t, sec, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
	})
}

// A caller of WaitPause does not wait for the queue, and the queue does not wait for it.
func TestWaitPauseIsNotInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, b := time.Now(), newBucket(t, nil, Limit{10, 1})
		b.Pause(10 * sec)
		var group sync.WaitGroup
		group.Go(func() {
			assert.NoError(t, b.Wait(context.Background(), 5))
			assert.Equal(t, 15*sec, time.Since(start))
		})
		synctest.Wait()
		group.Go(func() {
			_, err := b.WaitPause(context.Background())
			assert.NoError(t, err)
			assert.Equal(t, 10*sec, time.Since(start))
		})
		group.Wait()
		require.Zero(t, b.Tokens())
	})
}

func TestWaitPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, b := time.Now(), newBucket(t, nil, Limit{10, 1})
		b.Pause(Never)
		ctx, stop := context.WithTimeout(context.Background(), 3*sec)
		defer stop()
		waited, err := b.WaitPause(ctx)
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 3*sec, waited)
		require.Equal(t, 3*sec, time.Since(start))
		require.Zero(t, b.Waiting())

		_, err = b.WaitPause(ctx)
		require.Equal(t, context.DeadlineExceeded, err)
		b.Fill()
		_, err = b.WaitPause(ctx)
		require.NoError(t, err, "nothing to wait for")
	})
}

// The bucket's clock decides when a pause ends, and Waiting counts the callers of WaitPause.
func TestWaitPauseOnAMockClock(t *testing.T) {
	mock := clock.NewMock()
	b := newBucket(t, mock, Limit{10, 1})
	b.Pause(time.Hour)
	done := make(chan time.Duration)
	go func() {
		waited, err := b.WaitPause(context.Background())
		assert.NoError(t, err)
		done <- waited
	}()
	for b.Waiting() == 0 {
		time.Sleep(ms)
	}
	b.Pause(2 * time.Hour)
	mock.Add(time.Hour)
	for b.Waiting() == 0 {
		time.Sleep(ms)
	}
	mock.Add(time.Hour)
	require.Equal(t, 2*time.Hour, <-done)
}

// An epoch decides without the lock; a pause ends it.
func TestWaitPauseAfterManyDecisionsWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, nil, Limit{1000, 1})
		for range 200 {
			b.TryAcquire(1)
			waited, err := b.WaitPause(context.Background())
			require.NoError(t, err)
			require.Zero(t, waited)
		}
		b.Pause(sec)
		waited, err := b.WaitPause(context.Background())
		require.NoError(t, err)
		require.Equal(t, sec, waited)
	})
}
