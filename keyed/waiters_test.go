package keyed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// The bound holds for each key, and for the queue of the overflow bucket.
func TestWithMaxWaiters(t *testing.T) {
	for _, most := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(2), keyed.WithMaxWaiters(most))
			ctx, stop := context.WithCancel(context.Background())
			var group sync.WaitGroup
			for _, key := range []string{"a", "b", "without room"} {
				require.NoError(t, b.Wait(ctx, key, 10), "nobody has to wait")
				for range most {
					group.Go(func() { assert.ErrorIs(t, b.Wait(ctx, key, 10), context.Canceled) })
				}
				synctest.Wait()
				require.ErrorIs(t, b.Wait(ctx, key, 1), tokenbucket.ErrTooManyWaiters)
				require.Equal(t, most, b.Waiting(key))
			}
			require.ErrorIs(t, b.Wait(ctx, "without room, too", 1), tokenbucket.ErrTooManyWaiters)
			require.NoError(t, b.Wait(ctx, "a", 0))
			stop()
			group.Wait()
			require.Zero(t, b.Waiting("a"))
		})
	}
}

// BenchmarkBesideALongQueue measures decisions about one key while another key of the
// same shard has many waiters, and each charge of that key walks its queue.
func BenchmarkBesideALongQueue(b *testing.B) {
	for _, waiters := range []int{0, 50_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			buckets := newBuckets[string](b, nil, []tokenbucket.Limit{limit(1e9, 1)}, keyed.WithMaxKeys(10))
			require.NoError(b, buckets.Charge("queue", 2e9))
			ctx, stop := context.WithCancel(context.Background())
			var group sync.WaitGroup
			for range waiters {
				group.Go(func() { _ = buckets.Wait(ctx, "queue", 1) })
			}
			for buckets.Waiting("queue") < waiters {
				time.Sleep(time.Millisecond)
			}
			group.Go(func() {
				for ctx.Err() == nil {
					_ = buckets.Charge("queue", 1)
					buckets.Tokens("queue")
				}
			})
			for b.Loop() {
				buckets.TryAcquire("other", 1)
			}
			stop()
			group.Wait()
		})
	}
}
