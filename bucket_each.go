package tokenbucket

import (
	"context"
	"time"
)

// TryAcquireEach is TryAcquire with one cost for each limit, in the order of Limits: one
// request and 400 tokens, say. Either all of them are taken, or nothing is, and the wait
// is the longest that a limit asks for. It is Never for another number of costs than limits.
//
// A limit with a cost of 0 is not asked, even in debt; but a queue and a pause hold the
// request unless all costs are 0. Equal costs are the same as one cost for all limits.
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

// TakeEach is TryAcquireEach with everything a header needs. With different costs the
// Decision is in the unit of the limit that it describes, and so is Remaining. For another
// number of costs than limits its Limit is zero and its LimitIndex -1.
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

// Peek returns what Take would return now, and takes nothing. The queue and a pause
// count. It may have changed by the time it returns.
func (b *Bucket) Peek(cost float64) Decision {
	return b.peek(price{all: cost})
}

// PeekEach returns what TakeEach would return now, and takes nothing.
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

// WaitEach is Wait with one cost for each limit, in the order of Limits. Waiters queue in
// the order they come, whichever method they call. It returns ErrInvalidCost for another
// number of costs than limits.
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
	return b.wait(ctx, p)
}

// ReserveEach is Reserve with one cost for each limit, in the order of Limits. It returns
// ErrInvalidCost for another number of costs than limits.
func (b *Bucket) ReserveEach(costs ...float64) (*Reservation, error) {
	p, err := b.price(&costs)
	if err != nil {
		return nil, err
	}
	return b.reserve(p)
}

// RefundEach gives tokens back, one number for each limit, up to its capacity, and then
// serves the queue from what is there. It returns ErrInvalidCost, and changes nothing,
// for another number of costs than limits, and unless each is finite and at least 0.
func (b *Bucket) RefundEach(costs ...float64) error {
	p, err := b.price(&costs)
	if err != nil {
		return err
	}
	return b.refund(p)
}

// ChargeEach takes one cost from each limit, whether it is there or not, as Charge does:
// what a request really used beyond its estimate, say. It returns ErrInvalidCost, and
// changes nothing, for another number of costs than limits, and unless each is finite
// and at least 0.
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
