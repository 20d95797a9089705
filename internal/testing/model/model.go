// Package model is a token bucket in exact rational arithmetic. It is slow and never
// rounds. Tests compare the answers of the other buckets with it.
//
//	tokens(now) = min(capacity, tokens + (now - at) * refill)
package model

import (
	"math/big"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Bucket has one or several limits. A request must meet all of them at once. It is not
// safe for concurrent use.
type Bucket struct {
	limits []Limit
	tokens []*big.Rat    // the levels at instant at, one for each limit
	at     time.Duration // since the origin
}

// Limit is tokenbucket.Limit in exact numbers: tokens, and tokens per second.
type Limit struct{ Capacity, RefillPerSec *big.Rat }

// New returns a bucket that is full at 0. It uses the exact binary values of the limits.
func New(limits ...tokenbucket.Limit) *Bucket {
	exact := make([]Limit, len(limits))
	for i, l := range limits {
		exact[i] = Limit{Exact(l.Capacity), Exact(l.RefillPerSec)}
	}
	return NewExact(exact...)
}

// NewExact is like New, for limits that are not float64 values.
func NewExact(limits ...Limit) *Bucket {
	b := &Bucket{limits: limits}
	for _, l := range limits {
		b.tokens = append(b.tokens, l.Capacity)
	}
	return b
}

// Exact returns the exact value of a finite number.
func Exact(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

// At returns a copy of the bucket at a later instant, if nothing is taken until then. An
// earlier instant counts as the instant of the bucket.
func (b *Bucket) At(now time.Duration) *Bucket {
	if now <= b.at {
		return &Bucket{b.limits, slices.Clone(b.tokens), b.at}
	}
	later := &Bucket{b.limits, make([]*big.Rat, len(b.tokens)), now}
	seconds := new(big.Rat).SetFrac(elapsed(b.at, later.at), big.NewInt(1e9))
	for i, l := range b.limits {
		gain := new(big.Rat).Mul(seconds, l.RefillPerSec)
		later.tokens[i] = least(l.Capacity, gain.Add(gain, b.tokens[i]))
	}
	return later
}

// Tokens returns the level of one of the limits.
func (b *Bucket) Tokens(limit int) *big.Rat { return b.tokens[limit] }

// Least returns the lowest level of all limits.
func (b *Bucket) Least() *big.Rat { return least(b.tokens...) }

// Wait returns how long a cost has to wait for all limits if nothing else is taken,
// rounded up to the nanosecond. It returns 0 if all limits have the tokens.
func (b *Bucket) Wait(cost *big.Rat) time.Duration { return b.WaitEach(b.same(cost)) }

// WaitEach is like Wait, with one cost for each limit.
func (b *Bucket) WaitEach(costs []*big.Rat) (longest time.Duration) {
	for i, cost := range costs {
		longest = max(longest, b.WaitOf(i, cost))
	}
	return longest
}

// same returns one cost as a cost for each limit.
func (b *Bucket) same(cost *big.Rat) []*big.Rat {
	costs := make([]*big.Rat, len(b.limits))
	for i := range costs {
		costs[i] = cost
	}
	return costs
}

// WaitOf is like Wait, for one limit.
func (b *Bucket) WaitOf(limit int, cost *big.Rat) time.Duration {
	l := b.limits[limit]
	short := new(big.Rat).Sub(cost, b.tokens[limit])
	switch {
	case cost.Sign() < 0 || cost.Cmp(l.Capacity) > 0:
		return tokenbucket.Never
	case cost.Sign() == 0 || short.Sign() <= 0:
		return 0
	default:
		return ceilNanoseconds(short.Quo(short, l.RefillPerSec))
	}
}

// Take takes a cost at now. If the bucket has too few tokens, Take changes nothing and
// returns how long the cost has to wait.
func (b *Bucket) Take(now time.Duration, cost *big.Rat) (wait time.Duration, ok bool) {
	return b.TakeEach(now, b.same(cost))
}

// TakeEach is like Take, with one cost for each limit. It takes all of them or nothing.
func (b *Bucket) TakeEach(now time.Duration, costs []*big.Rat) (wait time.Duration, ok bool) {
	later := b.At(now)
	if wait = later.WaitEach(costs); wait > 0 {
		return wait, false
	}
	*b = *later
	b.spend(costs)
	return 0, true
}

// Charge takes a cost at now, even if the bucket has fewer tokens.
func (b *Bucket) Charge(now time.Duration, cost *big.Rat) { b.ChargeEach(now, b.same(cost)) }

// ChargeEach is like Charge, with one cost for each limit.
func (b *Bucket) ChargeEach(now time.Duration, costs []*big.Rat) {
	*b = *b.At(now)
	b.spend(costs)
}

func (b *Bucket) spend(costs []*big.Rat) {
	for i, tokens := range b.tokens {
		b.tokens[i] = new(big.Rat).Sub(tokens, costs[i])
	}
}

// Refund gives tokens back at now, up to the capacities.
func (b *Bucket) Refund(now time.Duration, tokens *big.Rat) { b.RefundEach(now, b.same(tokens)) }

// RefundEach is like Refund, with one number for each limit.
func (b *Bucket) RefundEach(now time.Duration, tokens []*big.Rat) {
	*b = *b.At(now)
	for i, l := range b.limits {
		b.tokens[i] = least(l.Capacity, new(big.Rat).Add(b.tokens[i], tokens[i]))
	}
}

func elapsed(from, to time.Duration) *big.Int {
	return new(big.Int).Sub(big.NewInt(int64(to)), big.NewInt(int64(from)))
}

func ceilNanoseconds(seconds *big.Rat) time.Duration {
	ns := new(big.Rat).Mul(seconds, big.NewRat(1e9, 1))
	whole, rest := new(big.Int).QuoRem(ns.Num(), ns.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return tokenbucket.Never
	}
	return time.Duration(whole.Int64())
}

func least(numbers ...*big.Rat) *big.Rat {
	smallest := numbers[0]
	for _, x := range numbers[1:] {
		if x.Cmp(smallest) < 0 {
			smallest = x
		}
	}
	return smallest
}
