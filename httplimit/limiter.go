package httplimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// Limiter decides about requests. It must be safe for concurrent use.
//
// If it has a method Limits() []tokenbucket.Limit, as all in this module do, the
// policy header lists them and prices are checked against them at start-up. Limits
// may change, how many there are should not.
type Limiter interface {
	// Take takes the cost, in tokens, from what the key has, or refuses and takes
	// nothing. An error means that it could not decide.
	Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error)
}

// Refunder is a Limiter that takes tokens back.
type Refunder interface {
	Limiter
	// Refund gives tokens back to what the key has, up to its capacity.
	Refund(ctx context.Context, key string, cost float64) error
}

type limited interface{ Limits() []tokenbucket.Limit }

func limitsOf(l Limiter) []tokenbucket.Limit {
	if l, ok := l.(limited); ok {
		return l.Limits()
	}
	return nil
}

// Shared lets all clients together use one bucket, whatever their keys.
func Shared(bucket *tokenbucket.Bucket) Refunder {
	if bucket == nil {
		return nil // and New says so
	}
	return shared{bucket}
}

type shared struct{ *tokenbucket.Bucket }

func (s shared) Take(_ context.Context, _ string, cost float64) (tokenbucket.Decision, error) {
	return s.Bucket.Take(cost), nil
}

func (s shared) Refund(_ context.Context, _ string, cost float64) error {
	return s.Bucket.Refund(cost)
}

// PerKey gives every client a bucket of its own.
func PerKey(buckets *keyed.Buckets[string]) Refunder {
	if buckets == nil {
		return nil // and New says so
	}
	return perKey{buckets}
}

type perKey struct{ *keyed.Buckets[string] }

func (p perKey) Take(_ context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return p.Buckets.Take(key, cost), nil
}

func (p perKey) Refund(_ context.Context, key string, cost float64) error {
	return p.Buckets.Refund(key, cost)
}

// Both takes from two limiters, a client's own and everybody's, say. The first is
// asked first, so that a client that is refused there takes nothing from the others.
// When the second refuses or fails, what the first gave is given back to it; until
// then, for as long as the second takes to answer, other requests for the same key
// find it gone. If giving back fails, that is an error of Both.
//
// A refusal is told as by the one that refused: the second is not asked about what
// the first refuses, and may make whoever comes back wait once more. An admission is
// told as by the one that would make the same cost wait longer next, or, if they would
// not differ, by the one that has less left. What remains is what both would admit.
func Both(first Refunder, second Limiter) Limiter {
	if first == nil || second == nil {
		return nil // and New says so
	}
	return both{first, second}
}

type both struct {
	first  Refunder
	second Limiter
}

func (b both) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	o, err := b.take(ctx, key, cost)
	return o.decision, err
}

// outcome is a decision and what it does not tell itself if two limiters decide.
type outcome struct {
	decision  tokenbucket.Decision
	isTold    bool  // its limit: a Limiter of somebody else's may leave that out
	start     int   // where among the limits those start that it is of: two limiters may have equal ones
	remaining int64 // the largest whole cost that would be admitted now, by both
}

func (b both) take(ctx context.Context, key string, cost float64) (outcome, error) {
	own, err := takeFrom(ctx, b.first, key, cost)
	if err != nil || !own.decision.OK {
		return own, err
	}
	common, err := takeFrom(ctx, b.second, key, cost)
	common.start += len(limitsOf(b.first))
	if err != nil || !common.decision.OK {
		// Given back even if the request has been called off meanwhile.
		err = errors.Join(err, b.first.Refund(context.WithoutCancel(ctx), key, cost))
		common.remaining = min(common.remaining, own.remaining+wholeTokens(cost))
		return common, err
	}
	tighter := own
	if isTighter(common, own, cost) {
		tighter = common
	}
	tighter.remaining = min(own.remaining, common.remaining)
	return tighter, nil
}

// wholeTokens returns tokens rounded down, from 0 to maxInteger.
func wholeTokens(tokens float64) int64 {
	if !(tokens > 0) {
		return 0
	}
	return int64(min(tokens, maxInteger))
}

func takeFrom(ctx context.Context, l Limiter, key string, cost float64) (o outcome, err error) {
	if b, ok := l.(both); ok {
		return b.take(ctx, key, cost)
	}
	o.decision, err = l.Take(ctx, key, cost)
	o.remaining = maxInteger
	if o.isTold = isLimit(o.decision.Limit); o.isTold {
		o.remaining = o.decision.Remaining()
	}
	return o, err
}

// isLimit reports whether a limit is valid. One that is left out is not validated: the
// error would take longer than the decision.
func isLimit(l tokenbucket.Limit) bool {
	return l != tokenbucket.Limit{} && l.Validate() == nil
}

// isTighter compares two admissions. One that does not tell its limit is not tighter.
func isTighter(a, b outcome, cost float64) bool {
	x, y := a.decision, b.decision
	if !a.isTold || !b.isTold {
		return a.isTold
	}
	return cmp.Or(
		cmp.Compare(refillTime(y.Limit, y.Tokens, cost), refillTime(x.Limit, x.Tokens, cost)),
		cmp.Compare(a.remaining, b.remaining),
		cmp.Compare(x.Tokens, y.Tokens)) < 0
}

// Limits returns the limits of both, in order.
func (b both) Limits() []tokenbucket.Limit {
	return slices.Concat(limitsOf(b.first), limitsOf(b.second)) // not appended: what they return may be what they keep
}

// refillTime returns how long it takes to get from one level to another, in tokens.
func refillTime(l tokenbucket.Limit, from, to float64) time.Duration {
	_, d := l.Take(tokenbucket.State{Balance: from}, 0, to)
	return d.Wait
}
