package integrations

import (
	"context"

	"github.com/go-kit/kit/ratelimit"

	"github.com/aa014e13/tokenbucket"
)

// GoKitAllower is for ratelimit.NewErroringLimiter of go-kit, which refuses requests that
// come too fast with ratelimit.ErrLimited.
func GoKitAllower(bucket *tokenbucket.Bucket) ratelimit.Allower {
	return ratelimit.AllowerFunc(func() bool {
		_, ok := bucket.TryAcquire(1)
		return ok
	})
}

// GoKitWaiter is for ratelimit.NewDelayingLimiter of go-kit, which waits.
func GoKitWaiter(bucket *tokenbucket.Bucket) ratelimit.Waiter {
	return ratelimit.WaiterFunc(func(ctx context.Context) error { return bucket.Wait(ctx, 1) })
}
