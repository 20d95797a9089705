package tokenbucket

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// checkAmount returns ErrInvalidCost unless cost is a finite number, 0 or more.
func checkAmount(cost float64) error {
	if cost >= 0 && cost-cost == 0 { // Inf - Inf is NaN
		return nil
	}
	return fmt.Errorf("%w: %v: pass a finite number of tokens, 0 or more", ErrInvalidCost, cost)
}

// checkCost returns ErrInvalidCost for a negative cost or NaN, and
// ErrCostExceedsCapacity for a cost above the capacity.
func checkCost(cost, capacity float64) error {
	switch {
	case cost >= 0 && cost <= capacity:
		return nil
	case cost > capacity:
		return fmt.Errorf("%w: cost %v, capacity %v: split the request or raise the capacity",
			ErrCostExceedsCapacity, cost, capacity)
	default:
		return fmt.Errorf("%w: %v: pass a number of tokens, 0 or more", ErrInvalidCost, cost)
	}
}

// Costs is a price list: it maps names of kinds of requests to prices, in tokens. A
// name that is not on the list costs 1; a price of 0 makes a request free. The nil list
// is empty and ready to use.
//
// Any number of goroutines may read Costs at the same time, as long as none writes.
type Costs map[string]float64

// Of returns the price of name in tokens, 1 if name is not on the list.
func (c Costs) Of(name string) float64 {
	if cost, ok := c[name]; ok {
		return cost
	}
	return 1
}

// Validate checks the list against the capacity of a bucket, in tokens. Call it at
// start-up, to find a wrong price before a request does. It returns nil, or one error that
// names every bad entry in the order of the names. A price that is negative or NaN is an
// ErrInvalidCost, and a price above the capacity is an ErrCostExceedsCapacity.
//
// With several limits, pass the smallest capacity.
func (c Costs) Validate(capacity float64) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if err := checkCost(c[name], capacity); err != nil {
			errs = append(errs, fmt.Errorf("price of %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
