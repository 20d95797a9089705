package integrations

import (
	"github.com/go-kratos/aegis/ratelimit"

	"github.com/aa014e13/tokenbucket"
)

// Aegis is a Limiter of kratos' aegis, for ratelimit.WithLimiter of kratos' middleware. A
// request whose handler fails costs as much as any other.
type Aegis struct {
	Bucket *tokenbucket.Bucket
}

// Allow returns aegis' own error for a refusal.
func (a Aegis) Allow() (ratelimit.DoneFunc, error) {
	if _, ok := a.Bucket.TryAcquire(1); !ok {
		return nil, ratelimit.ErrLimitExceed
	}
	return func(ratelimit.DoneInfo) {}, nil
}
