package integrations_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestKubernetesClient(t *testing.T) {
	requireOneASecond(t, func(bucket *tokenbucket.Bucket) func() error {
		var limiter flowcontrol.RateLimiter = integrations.KubernetesClient{Bucket: bucket}
		return func() error { return limiter.Wait(context.Background()) }
	})
	requireOneASecond(t, func(bucket *tokenbucket.Bucket) func() error {
		limiter := integrations.KubernetesClient{Bucket: bucket}
		return func() error {
			limiter.Accept()
			require.False(t, limiter.TryAccept())
			return nil
		}
	})
	limiter := integrations.KubernetesClient{Bucket: tokenbucket.MustNew(tokenbucket.PerSecond(20))}
	require.Equal(t, float32(20), limiter.QPS())
	require.True(t, limiter.TryAccept())
	limiter.Stop()
}

func TestKubernetesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(tokenbucket.PerSecond(2))
		var limiter workqueue.TypedRateLimiter[string] = integrations.KubernetesQueue[string]{Bucket: bucket}
		for _, want := range []time.Duration{0, 0, 500 * time.Millisecond, time.Second} {
			require.Equal(t, want, limiter.When("pod"))
		}
		limiter.Forget("pod")
		require.Zero(t, limiter.NumRequeues("pod"))

		bucket.Fill() // serves what waits from 2 tokens
		queue := workqueue.NewTypedRateLimitingQueue(limiter)
		start := time.Now()
		for _, item := range []string{"a", "b", "c"} {
			queue.AddRateLimited(item)
		}
		for _, want := range []string{"a", "b", "c"} {
			item, _ := queue.Get()
			require.Equal(t, want, item)
			queue.Done(item)
		}
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
		queue.ShutDown()
		time.Sleep(time.Minute) // until the queue's goroutines have ended
	})
}
