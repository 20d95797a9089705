package tokenbucket

import (
	"fmt"
	"slices"
)

// price is what a request costs, in tokens: the same of every limit, or a cost of its own
// for each of them. It is small enough to be passed in registers.
type price struct {
	all  float64
	each *[]float64 // in the order of the limits; nil if all counts. Not all of them are equal
}

// of returns the cost for one limit.
func (p price) of(limit int) float64 {
	if p.each == nil {
		return p.all
	}
	return (*p.each)[limit]
}

// isFree reports whether the request costs nothing at all.
func (p price) isFree() bool { return p.each == nil && p.all == 0 }

// firstAsked returns the first limit that the request costs anything.
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

// priceEach returns the price for one cost a limit. Equal costs are the same as one cost
// for all limits. The price refers to the slice.
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
