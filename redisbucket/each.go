package redisbucket

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// TryAcquireEach is like TryAcquire, with one cost for each limit, in the order of Limits:
// for example, one request and 400 tokens. It takes all of the costs or none of them. The
// wait of a refusal is the longest that a limit requires. It is Never if the number of
// costs differs from the number of limits. A limit with a cost of 0 does not count, even if
// it is in debt. Leases are not used.
func (b *Buckets) TryAcquireEach(ctx context.Context, key string, costs ...float64) (wait time.Duration, ok bool, err error) {
	p := eachOf(costs)
	if p.fits(b.limits) && p.isFree() {
		return 0, true, nil
	}
	return b.tryAcquire(ctx, key, p)
}

// TakeEach is like TryAcquireEach, but returns a Decision. If the costs differ, Remaining
// counts only the limit that the Decision describes. If the number of costs differs from
// the number of limits, Wait is Never, Limit is zero and LimitIndex is -1.
func (b *Buckets) TakeEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error) {
	p := eachOf(costs)
	if !p.fits(b.limits) {
		return p.take(b.limits, nil, 0), nil
	}
	return b.take(ctx, key, p)
}

// WaitEach is like Wait, with one cost for each limit, in the order of Limits. It returns
// ErrInvalidCost if the number of costs differs from the number of limits.
func (b *Buckets) WaitEach(ctx context.Context, key string, costs ...float64) error {
	return b.wait(ctx, key, eachOf(costs))
}

// RefundEach is like Refund, with one number of tokens for each limit, in the order of
// Limits. It returns ErrInvalidCost if the number of costs differs from the number of
// limits.
func (b *Buckets) RefundEach(ctx context.Context, key string, costs ...float64) error {
	return b.refund(ctx, key, eachOf(costs))
}

// ChargeEach is like Charge, with one cost for each limit, in the order of Limits. It
// returns ErrInvalidCost if the number of costs differs from the number of limits.
func (b *Buckets) ChargeEach(ctx context.Context, key string, costs ...float64) error {
	return b.charge(ctx, key, eachOf(costs))
}

// Peek returns what Take would return now. It takes nothing and writes nothing to Redis.
// If the key has a lease, Peek counts the leased tokens as Take does; see WithLease.
func (b *Buckets) Peek(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	d, held, ok := b.leases.peek(short(key), cost)
	if ok {
		return d, nil
	}
	return b.peek(ctx, key, price{cost: cost}, held)
}

// PeekEach returns what TakeEach would return now. It takes nothing and writes nothing to
// Redis.
func (b *Buckets) PeekEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error) {
	p := eachOf(costs)
	if !p.fits(b.limits) {
		return p.take(b.limits, nil, 0), nil
	}
	return b.peek(ctx, key, p, 0)
}

// peek asks the server, and adds held, the tokens that this process holds for the key.
func (b *Buckets) peek(ctx context.Context, key string, p price, held float64) (tokenbucket.Decision, error) {
	r := request{key: b.stored(key), price: price{cost: noCost}, mode: looks}
	a, err := b.server.ask(ctx, r)
	if b.fallsBack(err) {
		return p.peekAt(b.fallback, key, err)
	}
	if err != nil {
		return undecided, err
	}
	now, states, err := a.states(b.server.limits, r)
	if err != nil {
		return undecided, err
	}
	if held > 0 {
		_ = b.limits.Refund(states, now, held)
	}
	d := p.take(b.limits, states, now)
	return roundWait(d, d.OK), nil
}
