package httplimit

import (
	"context"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// Limiter decides about requests. It must be safe for concurrent use.
//
// It may also have Limits() []tokenbucket.Limit, as all in this module do: for the
// policy header, and to check prices at start-up.
type Limiter interface {
	// Take admits a request of a cost, in tokens, for a key, or refuses it and takes
	// nothing. An error means that it could not decide.
	Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error)
}

// Refunder is a Limiter that takes tokens back.
type Refunder interface {
	Limiter
	// Refund gives tokens back to a key, up to its capacity.
	Refund(ctx context.Context, key string, cost float64) error
}

type limited interface{ Limits() []tokenbucket.Limit }

func limitsOf(l Limiter) []tokenbucket.Limit {
	if l, ok := l.(limited); ok {
		return l.Limits()
	}
	return nil
}

// Shared limits all clients together with one bucket, whatever the key.
func Shared(b *tokenbucket.Bucket) Refunder { return shared{b} }

type shared struct{ *tokenbucket.Bucket }

func (s shared) Take(_ context.Context, _ string, cost float64) (tokenbucket.Decision, error) {
	return s.Bucket.Take(cost), nil
}

func (s shared) Refund(_ context.Context, _ string, cost float64) error {
	return s.Bucket.Refund(cost)
}

// PerKey limits every client with a bucket of its own.
func PerKey(b *keyed.Buckets[string]) Refunder { return perKey{b} }

type perKey struct{ *keyed.Buckets[string] }

func (p perKey) Take(_ context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return p.Buckets.Take(key, cost), nil
}

func (p perKey) Refund(_ context.Context, key string, cost float64) error {
	return p.Buckets.Refund(key, cost)
}

// Both takes from two limiters, a client's own and everybody's, say: the first is
// asked first, and gets back what it gave when the second refuses or fails. An
// admission is told by the one that leaves less, the first on a tie; a refusal by
// the one that refused.
func Both(first Refunder, second Limiter) Limiter { return both{first, second} }

type both struct {
	first  Refunder
	second Limiter
}

func (b both) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	own, err := b.first.Take(ctx, key, cost)
	if err != nil || !own.OK {
		return own, err
	}
	common, err := b.second.Take(ctx, key, cost)
	switch {
	case err != nil || !common.OK:
		// Given back even if the request has been called off meanwhile.
		if refundErr := b.first.Refund(context.WithoutCancel(ctx), key, cost); err == nil {
			err = refundErr
		}
		return common, err
	case common.Tokens < own.Tokens:
		return common, nil
	default:
		return own, nil
	}
}

// Limits returns the limits of both, in order.
func (b both) Limits() []tokenbucket.Limit {
	return append(limitsOf(b.first), limitsOf(b.second)...)
}
