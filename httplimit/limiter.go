package httplimit

import (
	"context"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// Limiter decides about requests. It must be safe for concurrent use.
//
// A Limiter may have more methods, which some options need. All limiters in this module
// have them:
//
//	Limits() []tokenbucket.Limit
//	    RateLimit-Policy lists them, and New checks prices against them.
//	    Limits may change; their number should not.
//	TakeEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error)
//	    is needed by WithCostEach.
//	Refund(ctx context.Context, key string, cost float64) error
//	Charge(ctx context.Context, key string, cost float64) error
//	    are needed by WithAdmission.
//	RefundEach(ctx context.Context, key string, costs ...float64) error
//	ChargeEach(ctx context.Context, key string, costs ...float64) error
//	    are needed by WithAdmission together with WithCostEach.
type Limiter interface {
	// Take takes the cost, in tokens, from the key's bucket, or refuses and takes nothing.
	// An error means that the limiter could not decide.
	Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error)
}

// Refunder is a Limiter that takes tokens back.
type Refunder interface {
	Limiter
	// Refund gives tokens back to the key's bucket, up to its capacity.
	Refund(ctx context.Context, key string, cost float64) error
}

type (
	limited interface{ Limits() []tokenbucket.Limit }
	charger interface {
		Charge(ctx context.Context, key string, cost float64) error
	}
	eachTaker interface {
		TakeEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error)
	}
	eachRefunder interface {
		RefundEach(ctx context.Context, key string, costs ...float64) error
	}
	eachCharger interface {
		ChargeEach(ctx context.Context, key string, costs ...float64) error
	}
)

func limitsOf(l Limiter) []tokenbucket.Limit {
	if l, ok := l.(limited); ok {
		return l.Limits()
	}
	return nil
}

// has reports whether a limiter has a method. Both has the methods that both of its limiters
// have.
func has[Method any](l Limiter) bool {
	if b, ok := l.(*both); ok {
		return has[Method](b.first) && has[Method](b.second)
	}
	_, ok := l.(Method)
	return ok
}

// canGiveBack reports whether each first limiter of Both takes tokens back.
func canGiveBack(l Limiter) bool {
	b, ok := l.(*both)
	return !ok || has[Refunder](b.first) && canGiveBack(b.first) && canGiveBack(b.second)
}

// canTakeEach reports whether a limiter takes one cost for each limit. In Both, the first
// limiter must also take such costs back.
func canTakeEach(l Limiter) bool {
	if b, ok := l.(*both); ok {
		return canDivide(l) && has[eachRefunder](b.first) && canTakeEach(b.first) && canTakeEach(b.second)
	}
	return has[eachTaker](l)
}

// canDivide reports whether costs for the limits of Both can be divided: each first limiter
// must report its limits.
func canDivide(l Limiter) bool {
	b, ok := l.(*both)
	return !ok || b.divides
}

func reportsLimits(l Limiter) bool {
	if b, ok := l.(*both); ok {
		return reportsLimits(b.first) && reportsLimits(b.second)
	}
	return len(limitsOf(l)) > 0
}

// Shared returns a Limiter with one bucket for all keys. For a nil bucket it returns nil,
// and New then returns an error.
func Shared(bucket *tokenbucket.Bucket) Refunder {
	if bucket == nil {
		return nil
	}
	return shared{bucket}
}

type shared struct{ bucket *tokenbucket.Bucket }

func (s shared) Limits() []tokenbucket.Limit { return s.bucket.Limits() }

func (s shared) Take(_ context.Context, _ string, cost float64) (tokenbucket.Decision, error) {
	return s.bucket.Take(cost), nil
}

func (s shared) Refund(_ context.Context, _ string, cost float64) error {
	return s.bucket.Refund(cost)
}

func (s shared) Charge(_ context.Context, _ string, cost float64) error {
	return s.bucket.Charge(cost)
}

func (s shared) TakeEach(_ context.Context, _ string, costs ...float64) (tokenbucket.Decision, error) {
	return s.bucket.TakeEach(costs...), nil
}

func (s shared) RefundEach(_ context.Context, _ string, costs ...float64) error {
	return s.bucket.RefundEach(costs...)
}

func (s shared) ChargeEach(_ context.Context, _ string, costs ...float64) error {
	return s.bucket.ChargeEach(costs...)
}

// PerKey returns a Limiter with a bucket for each key. For nil it returns nil, and New then
// returns an error.
func PerKey(buckets *keyed.Buckets[string]) Refunder {
	if buckets == nil {
		return nil
	}
	return perKey{buckets}
}

type perKey struct{ buckets *keyed.Buckets[string] }

func (p perKey) Limits() []tokenbucket.Limit { return p.buckets.Limits() }

func (p perKey) Take(_ context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return p.buckets.Take(key, cost), nil
}

func (p perKey) Refund(_ context.Context, key string, cost float64) error {
	return p.buckets.Refund(key, cost)
}

func (p perKey) Charge(_ context.Context, key string, cost float64) error {
	return p.buckets.Charge(key, cost)
}

func (p perKey) TakeEach(_ context.Context, key string, costs ...float64) (tokenbucket.Decision, error) {
	return p.buckets.TakeEach(key, costs...), nil
}

func (p perKey) RefundEach(_ context.Context, key string, costs ...float64) error {
	return p.buckets.RefundEach(key, costs...)
}

func (p perKey) ChargeEach(_ context.Context, key string, costs ...float64) error {
	return p.buckets.ChargeEach(key, costs...)
}
