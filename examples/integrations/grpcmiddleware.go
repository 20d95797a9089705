package integrations

import (
	"context"
	"fmt"

	"github.com/aa014e13/tokenbucket"
)

// GRPCLimiter is a Limiter for the server interceptors of go-grpc-middleware v2's
// ratelimit. A refused call ends with ResourceExhausted and a text.
type GRPCLimiter struct {
	Bucket *tokenbucket.Bucket
}

// Limit returns nil if a call may begin.
func (l GRPCLimiter) Limit(context.Context) error {
	if wait, ok := l.Bucket.TryAcquire(1); !ok {
		return fmt.Errorf("retry in %v", wait)
	}
	return nil
}

// GRPCWaiter is a Limiter for the client interceptors: calls wait for tokens.
type GRPCWaiter struct {
	Bucket *tokenbucket.Bucket
}

// Limit waits until a call may begin, or returns the reason why it can't.
func (w GRPCWaiter) Limit(ctx context.Context) error { return w.Bucket.Wait(ctx, 1) }
