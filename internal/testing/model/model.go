// Package model is the token bucket in exact rational arithmetic: what the others
// are to answer, worked out slowly and without a rounding.
//
//	tokens(now) = min(capacity, tokens + (now - at) * refill)
package model

import (
	"math/big"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Bucket has one limit or several, which a request has to meet at once. It is not
// safe for concurrent use.
type Bucket struct {
	limits []Limit
	tokens []*big.Rat    // the levels at that instant, one for each limit
	at     time.Duration // since the origin
}

// Limit is tokenbucket.Limit in exact numbers: tokens, and tokens per second.
type Limit struct{ Capacity, RefillPerSec *big.Rat }

// New returns a bucket that is full at 0. The numbers of the limits count at their
// exact binary values.
func New(limits ...tokenbucket.Limit) *Bucket {
	exact := make([]Limit, len(limits))
	for i, l := range limits {
		exact[i] = Limit{Exact(l.Capacity), Exact(l.RefillPerSec)}
	}
	return NewExact(exact...)
}

// NewExact is New for limits that no float64 holds.
func NewExact(limits ...Limit) *Bucket {
	b := &Bucket{limits: limits}
	for _, l := range limits {
		b.tokens = append(b.tokens, l.Capacity)
	}
	return b
}

// Exact returns the exact value of a finite number.
func Exact(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

// At returns the bucket as it is at a later instant if nothing is taken until
// then. An earlier instant counts as the one that the bucket is at.
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

// Least returns the least of the levels.
func (b *Bucket) Least() *big.Rat { return least(b.tokens...) }

// Wait returns how long a cost has to wait, for all the limits, if nothing else is
// taken: 0 if it is there, else rounded up to the nanosecond.
func (b *Bucket) Wait(cost *big.Rat) time.Duration { return b.WaitEach(b.same(cost)) }

// WaitEach is Wait with one cost for each limit.
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

// WaitOf is Wait for one of the limits.
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

// Take admits a cost at now and spends it, or changes nothing and returns how long
// it has to wait.
func (b *Bucket) Take(now time.Duration, cost *big.Rat) (wait time.Duration, ok bool) {
	return b.TakeEach(now, b.same(cost))
}

// TakeEach is Take with one cost for each limit: all of them are spent or none.
func (b *Bucket) TakeEach(now time.Duration, costs []*big.Rat) (wait time.Duration, ok bool) {
	later := b.At(now)
	if wait = later.WaitEach(costs); wait > 0 {
		return wait, false
	}
	*b = *later
	b.spend(costs)
	return 0, true
}

// Charge spends a cost at now, whether it is there or not.
func (b *Bucket) Charge(now time.Duration, cost *big.Rat) { b.ChargeEach(now, b.same(cost)) }

// ChargeEach is Charge with one cost for each limit.
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

// RefundEach is Refund with tokens for each limit.
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
