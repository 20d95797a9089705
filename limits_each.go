package tokenbucket

import "time"

// TryAcquireEach is like TryAcquire, with one cost for each limit, in the order of the
// limits: it takes all of the costs or none. The wait is Never if the number of costs
// differs from the number of limits. A limit with a cost of 0 does not count.
func (ls Limits) TryAcquireEach(states []State, now time.Duration, costs ...float64) (wait time.Duration, ok bool) {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return Never, false
	}
	return ls.tryAcquire(states, now, p)
}

// TakeEach is like TryAcquireEach, but returns a Decision. If the costs differ, Remaining
// counts only the limit that the Decision describes. If the number of costs differs from the
// number of limits, Wait is Never, Limit is zero and LimitIndex is -1.
func (ls Limits) TakeEach(states []State, now time.Duration, costs ...float64) (d Decision) {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return wrongNumber()
	}
	ls.take(&d, states, now, p)
	return d
}

// RefundEach gives tokens back at now, one cost to each limit, up to its capacity. It returns
// ErrInvalidCost, and changes nothing, if the number of costs differs from the number of
// limits, or if a cost is below 0 or not finite.
func (ls Limits) RefundEach(states []State, now time.Duration, costs ...float64) error {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return err
	}
	return ls.refund(states, now, p)
}

// ChargeEach takes one cost from each limit at now, even if there are fewer tokens, as Charge
// does. It returns ErrInvalidCost, and changes nothing, if the number of costs differs from
// the number of limits, or if a cost is below 0 or not finite.
func (ls Limits) ChargeEach(states []State, now time.Duration, costs ...float64) error {
	p, err := priceEach(&costs, len(ls))
	if err != nil {
		return err
	}
	return ls.charge(states, now, p)
}

// wrongNumber returns the decision if the number of costs differs from that of the limits.
func wrongNumber() Decision { return Decision{Wait: Never, LimitIndex: -1} }
