package tokenbucket

import (
	"context"
	"time"
)

// TryAcquireEach is like TryAcquire, with one cost for each limit, in the order of Limits,
// such as one request and 400 tokens. It takes all of the costs or none of them. The wait of
// a refusal is the longest that a limit requires. It is Never if the number of costs differs
// from the number of limits.
//
// A limit with a cost of 0 does not count, even if it is in debt. A queue and a pause still
// hold the request back, unless all costs are 0. If all costs are equal, the result is that
// of TryAcquire.
func (b *Bucket) TryAcquireEach(costs ...float64) (wait time.Duration, ok bool) {
	p, err := b.price(&costs)
	switch {
	case err != nil:
		return Never, false
	case p.each == nil:
		return b.TryAcquire(p.all)
	default:
		return b.tryAcquire(p)
	}
}

// TakeEach is like TryAcquireEach, but returns a Decision. If the costs differ, Remaining
// counts only the limit that the Decision describes. If the number of costs differs from
// the number of limits, Wait is Never, Limit is zero and LimitIndex is -1.
func (b *Bucket) TakeEach(costs ...float64) (d Decision) {
	p, err := b.price(&costs)
	switch {
	case err != nil:
		return wrongNumber()
	case p.each == nil:
		return b.Take(p.all)
	default:
		b.take(&d, p)
		return d
	}
}

// Peek returns the Decision that Take would return now, and takes nothing. Peek
// considers the queue and a pause. Other callers may take tokens before Peek returns.
func (b *Bucket) Peek(cost float64) Decision {
	return b.peek(price{all: cost})
}

// PeekEach returns the Decision that TakeEach would return now, and takes nothing.
func (b *Bucket) PeekEach(costs ...float64) Decision {
	p, err := b.price(&costs)
	if err != nil {
		return wrongNumber()
	}
	return b.peek(p)
}

func (b *Bucket) peek(p price) Decision {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.peek(now, p)
}

// WaitEach is like Wait, with one cost for each limit, in the order of Limits. The callers
// of Wait and of WaitEach share one queue. WaitEach returns ErrInvalidCost if the number of
// costs differs from the number of limits.
func (b *Bucket) WaitEach(ctx context.Context, costs ...float64) error {
	p, err := b.price(&costs)
	switch {
	case err != nil:
		return err
	case p.each == nil:
		return b.Wait(ctx, p.all)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err = b.wait(ctx, p, nil)
	return err
}

// ReserveEach is like Reserve, with one cost for each limit, in the order of Limits. It
// returns ErrInvalidCost if the number of costs differs from the number of limits.
func (b *Bucket) ReserveEach(costs ...float64) (*Reservation, error) {
	p, err := b.price(&costs)
	if err != nil {
		return nil, err
	}
	return b.reserve(p)
}

// RefundEach gives tokens back, one cost to each limit, up to its capacity, and then serves
// the queue. It returns ErrInvalidCost, and changes nothing, if the number of costs differs
// from the number of limits, or if a cost is below 0 or not finite.
func (b *Bucket) RefundEach(costs ...float64) error {
	p, err := b.price(&costs)
	if err != nil {
		return err
	}
	return b.refund(p)
}

// ChargeEach takes one cost from each limit, even if a limit holds fewer tokens, as
// Charge does. For example, it takes the tokens that a request used beyond its estimate.
// It returns ErrInvalidCost, and changes nothing, if the number of costs differs from the
// number of limits, or if a cost is below 0 or not finite.
func (b *Bucket) ChargeEach(costs ...float64) error {
	p, err := b.price(&costs)
	if err != nil {
		return err
	}
	return b.charge(p)
}

func (b *Bucket) price(costs *[]float64) (price, error) {
	return priceEach(costs, len(b.queue.states)) // their number never changes
}
