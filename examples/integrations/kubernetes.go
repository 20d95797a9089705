package integrations

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// KubernetesClient is a flowcontrol.RateLimiter, for RateLimiter of a rest.Config. Clients
// that share a Bucket share its rate. QPS and Burst, in contrast, count for each client
// alone.
type KubernetesClient struct {
	Bucket *tokenbucket.Bucket
}

// TryAccept takes a token if there is one.
func (k KubernetesClient) TryAccept() bool {
	_, ok := k.Bucket.TryAcquire(1)
	return ok
}

// Accept waits for a token.
func (k KubernetesClient) Accept() { _ = k.Bucket.Wait(context.Background(), 1) }

// Wait waits for a token until ctx ends.
func (k KubernetesClient) Wait(ctx context.Context) error { return k.Bucket.Wait(ctx, 1) }

// QPS returns the refill, in tokens per second.
func (k KubernetesClient) QPS() float32 { return float32(k.Bucket.Limits()[0].RefillPerSec) }

// Stop does nothing, like that of client-go's own limiter.
func (k KubernetesClient) Stop() {}

// KubernetesQueue is a workqueue.TypedRateLimiter: items that AddRateLimited adds leave the
// queue at the rate of the bucket. To add a backoff for each item that fails, combine it
// with an exponential limiter by workqueue.NewTypedMaxOfRateLimiter.
type KubernetesQueue[T comparable] struct {
	Bucket *tokenbucket.Bucket
}

// When returns how long an item has to wait.
func (k KubernetesQueue[T]) When(T) time.Duration {
	place, err := k.Bucket.Reserve(1)
	if err != nil {
		return time.Hour // the queue is full, by WithMaxWaiters, or the capacity is below 1
	}
	return place.Delay()
}

// Forget does nothing: items have no state.
func (k KubernetesQueue[T]) Forget(T) {}

// NumRequeues returns 0: failures are not counted.
func (k KubernetesQueue[T]) NumRequeues(T) int { return 0 }
