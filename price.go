package tokenbucket

import (
	"fmt"
	"slices"
)

// price is the cost of a request, in tokens: one cost for all limits, or one for each limit.
// It is small enough to be passed in registers.
type price struct {
	all  float64
	each *[]float64 // in the order of the limits, not all of them equal; nil: all is the cost
}

// of returns the cost for one limit.
func (p price) of(limit int) float64 {
	if p.each == nil {
		return p.all
	}
	return (*p.each)[limit]
}

// isFree reports whether the costs for all limits are 0.
func (p price) isFree() bool { return p.each == nil && p.all == 0 }

// firstAsked returns the index of the first limit with a cost other than 0, and 0 if there is
// one cost for all limits.
func (p price) firstAsked() int {
	if p.each == nil {
		return 0
	}
	return slices.IndexFunc(*p.each, func(cost float64) bool { return cost != 0 })
}

// checkAmount returns ErrInvalidCost unless every cost is a finite number, 0 or more.
func (p price) checkAmount() error {
	if p.each == nil {
		return checkAmount(p.all)
	}
	for _, cost := range *p.each {
		if err := checkAmount(cost); err != nil {
			return err
		}
	}
	return nil
}

// priceEach returns the price for one cost for each limit. Equal costs become one cost for
// all limits. The price refers to the slice. It returns ErrInvalidCost if the number of costs
// is not that of the limits.
func priceEach(slice *[]float64, limits int) (price, error) {
	costs := *slice
	if len(costs) != limits {
		return price{}, fmt.Errorf("%w: %d costs for %d limits: pass one for each, in the order of Limits",
			ErrInvalidCost, len(costs), limits)
	}
	for _, cost := range costs {
		if cost != costs[0] {
			return price{each: slice}, nil
		}
	}
	if limits == 0 {
		return price{}, nil
	}
	return price{all: costs[0]}, nil
}
