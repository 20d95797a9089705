package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Both returns a Limiter that takes from two limiters, for example from a client's own
// and from one for all clients. The first is asked first, so a request that it refuses
// takes nothing from the second. If the second refuses or fails, the first gets its tokens
// back. Until then, while the second decides, other requests for the same key cannot use
// these tokens. If giving them back fails, Take returns that error. Both limiters get the
// same key; for two different keys, nest two middlewares.
//
// On a refusal, the decision is that of the limiter that refused. The second is not asked
// if the first refuses, so the client may have to wait once more for the second. On
// admission, the decision is that of the limiter that would make the same request wait
// longer if it came again. On a tie, it is that of the limiter with fewer tokens left. If
// WithCostEach sets costs that differ, tokens cannot be compared. Then, on a tie, it is
// that of the first limiter, or that of the second if only the cost for the first is 0.
// LimitIndex counts the limits of the limiter that decided; an Event also has its
// LimiterIndex.
//
// If both limiters are asked, X-RateLimit-Remaining and the r of RateLimit are the largest
// whole cost that both would admit next. But if WithCostEach sets costs that differ, both
// fields count only the limiter that decided.
//
// The Limiter returned also has Limits, TakeEach, Refund, RefundEach, Charge and
// ChargeEach. The costs of the methods that end in Each are in the order of Limits:
// first those of the first limiter, then those of the second. A method that one of the
// two limiters lacks returns errors.ErrUnsupported, and changes nothing. The methods that
// end in Each do so too if the first limiter lacks Limits, and TakeEach if it lacks
// RefundEach.
func Both(first Refunder, second Limiter) Limiter {
	if first == nil || second == nil {
		return nil // New returns an error for it
	}
	divides := reportsLimits(first) && canDivide(second)
	return &both{first, second, len(limitsOf(first)), len(limitsOf(second)), countLimiters(first), divides}
}

type both struct {
	first        Refunder
	second       Limiter
	limits       int  // how many the first has, 0 if it does not report them
	secondLimits int  // how many the second has, 0 if it does not report them
	limiters     int  // how many the first consists of: more than 1 if Both made it
	divides      bool // see canDivide
}

func countLimiters(l Limiter) int {
	if b, ok := l.(*both); ok {
		return b.limiters + countLimiters(b.second)
	}
	return 1
}

func (b *both) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	var o outcome
	err := b.take(ctx, &ask{key: key, cost: cost}, &o)
	return o.decision, err
}

func (b *both) TakeEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error) {
	if !canTakeEach(b) {
		return tokenbucket.Decision{LimitIndex: -1}, unsupported("TakeEach; in Both, the first needs Limits and RefundEach as well")
	}
	var o outcome
	err := b.take(ctx, &ask{key: key, each: true, costs: costs}, &o)
	return o.decision, err
}

func (b *both) Refund(ctx context.Context, key string, cost float64) error {
	if !has[Refunder](b) {
		return unsupported("Refund")
	}
	return b.settle(ctx, ask{key: key, cost: cost}, ask.refund)
}

func (b *both) RefundEach(ctx context.Context, key string, costs ...float64) error {
	if !has[eachRefunder](b) || !canDivide(b) {
		return unsupported("RefundEach; in Both, the first needs Limits as well")
	}
	return b.settle(ctx, ask{key: key, each: true, costs: costs}, ask.refund)
}

func (b *both) Charge(ctx context.Context, key string, cost float64) error {
	if !has[charger](b) {
		return unsupported("Charge")
	}
	return b.settle(ctx, ask{key: key, cost: cost}, ask.charge)
}

func (b *both) ChargeEach(ctx context.Context, key string, costs ...float64) error {
	if !has[eachCharger](b) || !canDivide(b) {
		return unsupported("ChargeEach; in Both, the first needs Limits as well")
	}
	return b.settle(ctx, ask{key: key, each: true, costs: costs}, ask.charge)
}

// settle calls the function do for both limiters, or for neither if the costs are invalid.
// Both limiters have the method that do calls.
func (b *both) settle(ctx context.Context, a ask, do func(ask, context.Context, Limiter) error) error {
	own, common, ok := b.split(a)
	switch {
	case !ok:
		return fmt.Errorf("%w: %v: pass one cost for each limit, in the order of Limits", tokenbucket.ErrInvalidCost, a.costs)
	case !a.isFinite():
		return fmt.Errorf("%w: %v: pass finite numbers of tokens, 0 or more", tokenbucket.ErrInvalidCost, a.given())
	}
	return errors.Join(do(own, ctx, b.first), do(common, ctx, b.second))
}

// split returns the costs for each of the two limiters; ok is false if the number of
// costs is wrong.
func (b *both) split(a ask) (own, common ask, ok bool) {
	own, common = a, a
	if !a.each {
		return own, common, true
	}
	if len(a.costs) < b.limits || b.secondLimits > 0 && len(a.costs) != b.limits+b.secondLimits {
		return own, common, false
	}
	own.costs, common.costs = a.costs[:b.limits:b.limits], a.costs[b.limits:]
	return own, common, true
}

// outcome is a decision with data that a Decision does not contain: which of several
// limiters decided, and the largest cost that all of them would admit.
type outcome struct {
	decision  tokenbucket.Decision
	isKnown   bool    // whether the decision has a valid limit: a Limiter may leave it out
	start     int     // index of the first limit of the limiter that decided, among the limits of all
	limiter   int     // index of the limiter that decided
	cost      float64 // for the limit that the decision describes, in tokens
	remaining int64   // the largest whole cost that all limiters would admit now
}

// take asks both, and stores their decision in o.
func (b *both) take(ctx context.Context, a *ask, o *outcome) error {
	ownAsk, commonAsk, ok := b.split(*a)
	if !ok {
		*o = outcome{decision: tokenbucket.Decision{Wait: tokenbucket.Never, LimitIndex: -1}}
		return nil
	}
	var own outcome
	if err := takeFrom(ctx, b.first, &ownAsk, &own); err != nil || !own.decision.OK {
		*o = own
		return err
	}
	err := takeFrom(ctx, b.second, &commonAsk, o)
	o.start += b.limits
	o.limiter += b.limiters
	unequal := a.isUnequal()
	if err != nil || !o.decision.OK {
		// The refund must happen even if the request has been cancelled meanwhile.
		err = errors.Join(err, ownAsk.refund(context.WithoutCancel(ctx), b.first))
		if !unequal {
			o.remaining = min(o.remaining, min(own.remaining, maxInteger)+wholeTokens(own.cost))
		}
		return err
	}
	remaining := min(own.remaining, o.remaining)
	if !isTighter(o, &own, unequal) {
		*o = own
	}
	if !unequal {
		o.remaining = remaining
	}
	return nil
}

// takeFrom asks a limiter and stores its decision in o. It does not return an outcome,
// since copying one is slow. If a.each, the limiter must have TakeEach.
func takeFrom(ctx context.Context, l Limiter, a *ask, o *outcome) (err error) {
	if b, ok := l.(*both); ok {
		return b.take(ctx, a, o)
	}
	if a.each {
		o.decision, err = l.(eachTaker).TakeEach(ctx, a.key, a.costs...)
	} else {
		o.decision, err = l.Take(ctx, a.key, a.cost)
	}
	o.cost = a.costOf(o.decision.LimitIndex)
	o.remaining = maxInteger
	if o.isKnown = isLimit(&o.decision.Limit); o.isKnown {
		o.remaining = o.decision.Remaining()
	}
	return err
}

// isLimit reports whether a limit is valid. It does not validate a zero Limit: making the
// error takes longer than a decision.
func isLimit(l *tokenbucket.Limit) bool {
	return *l != tokenbucket.Limit{} && l.Validate() == nil
}

// isTighter reports whether admission a leaves less than admission b. It is false if a
// has no valid limit. With unequal costs the tokens of the two have different units, so
// only the waits are compared.
func isTighter(a, b *outcome, unequal bool) bool {
	x, y := &a.decision, &b.decision
	if !a.isKnown || !b.isKnown {
		return a.isKnown
	}
	longer := cmp.Compare(refillTime(y.Limit, y.Tokens, b.cost), refillTime(x.Limit, x.Tokens, a.cost))
	if unequal {
		return longer < 0 || longer == 0 && a.cost > 0 && b.cost == 0 // a limit with a cost of 0 does not count
	}
	return cmp.Or(
		longer,
		cmp.Compare(a.remaining, b.remaining),
		cmp.Compare(x.Tokens, y.Tokens)) < 0
}

// Limits returns the limits of both, in order.
func (b *both) Limits() []tokenbucket.Limit {
	return slices.Concat(limitsOf(b.first), limitsOf(b.second)) // not appended: the slices may be the limiters' own
}

// refillTime returns how long it takes to get from one level to another, in tokens.
func refillTime(l tokenbucket.Limit, from, to float64) time.Duration {
	_, d := l.Take(tokenbucket.State{Balance: from}, 0, to)
	return d.Wait
}

// wholeTokens returns tokens rounded down, from 0 to maxInteger.
func wholeTokens(tokens float64) int64 {
	if !(tokens > 0) {
		return 0
	}
	return int64(min(tokens, maxInteger))
}
