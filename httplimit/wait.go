package httplimit

import (
	"context"
	"errors"
)

// waiter is the optional method of a Limiter that lets requests wait. All limiters in this
// module have it; other packages, such as grpclimit, use it.
type waiter interface {
	// Wait waits until the cost, in tokens, can be taken, and takes it. It returns nil if
	// and only if the cost was taken.
	Wait(ctx context.Context, key string, cost float64) error
}

func (s shared) Wait(ctx context.Context, _ string, cost float64) error {
	return s.bucket.Wait(ctx, cost)
}

func (p perKey) Wait(ctx context.Context, key string, cost float64) error {
	return p.buckets.Wait(ctx, key, cost)
}

// CanWait reports whether both limiters have Wait. Package grpclimit calls it.
func (b *both) CanWait() bool { return has[waiter](b) }

// Wait waits for the first limiter, then for the second. If the second wait fails, the
// first gets its tokens back.
func (b *both) Wait(ctx context.Context, key string, cost float64) error {
	if !b.CanWait() {
		return unsupported("Wait")
	}
	if err := b.first.(waiter).Wait(ctx, key, cost); err != nil {
		return err
	}
	err := b.second.(waiter).Wait(ctx, key, cost)
	if err != nil && cost != 0 {
		return errors.Join(err, b.first.Refund(context.WithoutCancel(ctx), key, cost))
	}
	return err
}
