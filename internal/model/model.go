// Package model is the token bucket in exact rational arithmetic: what the others
// are to answer, worked out slowly and without a rounding.
package model

import (
	"math/big"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Bucket has one limit or several, which a request has to meet at once. It is not
// safe for concurrent use.
type Bucket struct {
	levels []level
	at     time.Duration
}

type level struct {
	Limit
	tokens *big.Rat
}

// Limit is tokenbucket.Limit in exact numbers.
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

// NewExact returns a bucket that is full at 0.
func NewExact(limits ...Limit) *Bucket {
	b := &Bucket{}
	for _, l := range limits {
		b.levels = append(b.levels, level{l, new(big.Rat).Set(l.Capacity)})
	}
	return b
}

// Exact returns the exact value of a finite number.
func Exact(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

// Advance refills the bucket up to now. An earlier instant changes nothing.
func (b *Bucket) Advance(now time.Duration) {
	if now <= b.at {
		return
	}
	for _, l := range b.levels {
		gain := new(big.Rat).SetFrac(elapsed(b.at, now), big.NewInt(1e9))
		l.tokens.Add(l.tokens, gain.Mul(gain, l.RefillPerSec))
		if l.tokens.Cmp(l.Capacity) > 0 {
			l.tokens.Set(l.Capacity)
		}
	}
	b.at = now
}

func elapsed(from, to time.Duration) *big.Int {
	return new(big.Int).Sub(big.NewInt(int64(to)), big.NewInt(int64(from)))
}

// Tokens returns the present level of one of the limits.
func (b *Bucket) Tokens(limit int) *big.Rat { return new(big.Rat).Set(b.levels[limit].tokens) }

// Least returns the least of the present levels.
func (b *Bucket) Least() *big.Rat {
	least := b.levels[0].tokens
	for _, l := range b.levels[1:] {
		if l.tokens.Cmp(least) < 0 {
			least = l.tokens
		}
	}
	return new(big.Rat).Set(least)
}

// Wait returns how long a cost has to wait from the present, for all the limits.
func (b *Bucket) Wait(cost *big.Rat) (longest time.Duration) {
	for i := range b.levels {
		longest = max(longest, b.WaitOf(i, cost))
	}
	return longest
}

// WaitOf is Wait for one of the limits.
func (b *Bucket) WaitOf(limit int, cost *big.Rat) time.Duration {
	l := b.levels[limit]
	short := new(big.Rat).Sub(cost, l.tokens)
	switch {
	case cost.Sign() == 0:
		return 0
	case cost.Cmp(l.Capacity) > 0:
		return tokenbucket.Never
	case short.Sign() <= 0:
		return 0
	}
	ns := short.Quo(short, l.RefillPerSec)
	ns.Mul(ns, big.NewRat(1e9, 1))
	wait, rest := new(big.Int).QuoRem(ns.Num(), ns.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		wait.Add(wait, big.NewInt(1))
	}
	if !wait.IsInt64() {
		return tokenbucket.Never
	}
	return time.Duration(wait.Int64())
}

// Spend takes a cost, whether it is there or not.
func (b *Bucket) Spend(cost *big.Rat) {
	for _, l := range b.levels {
		l.tokens.Sub(l.tokens, cost)
	}
}

// Refund gives tokens back, up to the capacities.
func (b *Bucket) Refund(tokens *big.Rat) {
	for _, l := range b.levels {
		if l.tokens.Add(l.tokens, tokens); l.tokens.Cmp(l.Capacity) > 0 {
			l.tokens.Set(l.Capacity)
		}
	}
}

// Take admits a cost at now and spends it, or returns how long it has to wait.
func (b *Bucket) Take(now time.Duration, cost *big.Rat) (wait time.Duration, ok bool) {
	b.Advance(now)
	if wait = b.Wait(cost); wait > 0 {
		return wait, false
	}
	b.Spend(cost)
	return 0, true
}
