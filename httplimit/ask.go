package httplimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ask is the cost of a request: one cost for all limits, or one cost for each limit.
type ask struct {
	key   string
	each  bool
	cost  float64   // tokens, unless each
	costs []float64 // tokens, if each
}

// given returns the costs as the caller passed them, for errors.
func (a *ask) given() any {
	if a.each {
		return a.costs
	}
	return a.cost
}

// costOf returns the cost for the limit of that index, 0 if there is none.
func (a *ask) costOf(limit int) float64 {
	switch {
	case !a.each:
		return a.cost
	case limit < 0 || limit >= len(a.costs):
		return 0
	default:
		return a.costs[limit]
	}
}

// isUnequal reports whether the costs for the limits differ. Equal costs are the same as
// one cost for all.
func (a *ask) isUnequal() bool {
	if a.each {
		for _, cost := range a.costs {
			if cost != a.costs[0] {
				return true
			}
		}
	}
	return false
}

// isFree reports whether the request costs nothing.
func (a *ask) isFree() bool {
	if !a.each {
		return a.cost == 0
	}
	return len(a.costs) > 0 && !slices.ContainsFunc(a.costs, func(cost float64) bool { return cost != 0 })
}

// isFinite reports whether all costs are finite numbers, 0 or more.
func (a *ask) isFinite() bool {
	for _, cost := range a.costs {
		if !(cost >= 0 && cost-cost == 0) { // Inf - Inf is NaN
			return false
		}
	}
	return a.each || a.cost >= 0 && a.cost-a.cost == 0
}

func (a ask) refund(ctx context.Context, l Limiter) error {
	if a.each {
		if l, ok := l.(eachRefunder); ok {
			return l.RefundEach(ctx, a.key, a.costs...)
		}
		return unsupported("RefundEach")
	}
	if l, ok := l.(Refunder); ok {
		return l.Refund(ctx, a.key, a.cost)
	}
	return unsupported("Refund")
}

func (a ask) charge(ctx context.Context, l Limiter) error {
	if a.each {
		if l, ok := l.(eachCharger); ok {
			return l.ChargeEach(ctx, a.key, a.costs...)
		}
		return unsupported("ChargeEach")
	}
	if l, ok := l.(charger); ok {
		return l.Charge(ctx, a.key, a.cost)
	}
	return unsupported("Charge")
}

func unsupported(method string) error {
	return fmt.Errorf("httplimit: %w: the limiter has no %s: add the method, or use a limiter of this module", errors.ErrUnsupported, method)
}
