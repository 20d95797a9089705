package tokenbucket

import "time"

// TryAcquireEach is TryAcquire with one cost for each limit, in the order of the limits:
// it admits all of them or takes nothing. The wait is Never for another number of costs
// than limits. A limit with a cost of 0 is not asked.
func (ls Limits) TryAcquireEach(states []State, now time.Duration, costs ...float64) (wait time.Duration, ok bool) {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return Never, false
	}
	return ls.tryAcquire(states, now, p)
}

// TakeEach is TryAcquireEach with everything a header needs. With different costs,
// Remaining counts only the limit that Limit describes. For another number of costs than
// limits the Limit is zero and LimitIndex is -1.
func (ls Limits) TakeEach(states []State, now time.Duration, costs ...float64) (d Decision) {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return wrongNumber()
	}
	ls.take(&d, states, now, p)
	return d
}

// RefundEach gives tokens back at now, one number for each limit, up to its capacity. It
// returns ErrInvalidCost, and changes nothing, for another number of costs than limits,
// and unless each is finite and at least 0.
func (ls Limits) RefundEach(states []State, now time.Duration, costs ...float64) error {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return err
	}
	return ls.refund(states, now, p)
}

// ChargeEach takes one cost from each limit at now, whether it is there or not, as Charge
// does. It returns ErrInvalidCost, and changes nothing, for another number of costs than
// limits, and unless each is finite and at least 0.
func (ls Limits) ChargeEach(states []State, now time.Duration, costs ...float64) error {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return err
	}
	return ls.charge(states, now, p)
}

// wrongNumber returns the decision for another number of costs than limits.
func wrongNumber() Decision { return Decision{Wait: Never, LimitIndex: -1} }
