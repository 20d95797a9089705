package redisbucket

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// price is the cost of a request, in tokens: the same for every limit, or one for each
// limit. Its methods call those of tokenbucket.Limits for either form.
type price struct {
	cost float64
	each []float64 // in the order of the limits; nil if cost is used, otherwise cost is 0
}

// noCost is a cost above any capacity: the script refuses it, and returns the bucket's state.
// It is also larger than any debt, so giving it back fills every bucket.
const noCost = 1e300

// eachOf returns a price with a cost for each limit. It copies the costs, since a request may
// still need them after the call has returned: to give back what a late answer took.
func eachOf(costs []float64) price {
	return price{each: append([]float64{}, costs...)}
}

// fits reports whether there are as many costs as limits.
func (p price) fits(limits tokenbucket.Limits) bool {
	return p.each == nil || len(p.each) == len(limits)
}

func (p price) isFree() bool {
	for _, cost := range p.each {
		if cost != 0 {
			return false
		}
	}
	return p.cost == 0
}

// takes reports whether any cost is above 0: tokens are taken, not given back.
func (p price) takes() bool {
	for _, cost := range p.each {
		if cost > 0 {
			return true
		}
	}
	return p.cost > 0
}

// reversed returns the price that gives the same tokens back. If the cost is the same for every
// limit, it also gives back more tokens: the further ones that were taken for a lease.
func (p price) reversed(more float64) price {
	back := price{cost: -(p.cost + more)}
	for _, cost := range p.each {
		back.each = append(back.each, -cost)
	}
	return back
}

// full returns the states of a full bucket.
func full(limits tokenbucket.Limits) []tokenbucket.State {
	states := make([]tokenbucket.State, len(limits))
	limits.Fill(states, 0)
	return states
}

// canBePaid reports whether the price can ever be admitted: a full bucket admits it.
func (p price) canBePaid(limits tokenbucket.Limits) bool {
	var few [2]tokenbucket.State
	states := few[:0]
	for _, l := range limits {
		states = append(states, l.Full(0))
	}
	_, ok := p.tryAcquire(limits, states, 0)
	return ok
}

// legible returns the price to send to the script. If the price is free or can never be
// paid, that is noCost: the script takes nothing for it, and returns the bucket's state.
// Buckets.decide then admits a free price.
func (p price) legible(limits tokenbucket.Limits) price {
	if !p.isFree() && p.canBePaid(limits) {
		return p
	}
	return price{cost: noCost}
}

func (p price) tryAcquire(limits tokenbucket.Limits, states []tokenbucket.State, now time.Duration) (time.Duration, bool) {
	if p.each != nil {
		return limits.TryAcquireEach(states, now, p.each...)
	}
	return limits.TryAcquire(states, now, p.cost)
}

func (p price) take(limits tokenbucket.Limits, states []tokenbucket.State, now time.Duration) tokenbucket.Decision {
	if p.each != nil {
		return limits.TakeEach(states, now, p.each...)
	}
	return limits.Take(states, now, p.cost)
}

// checkAmount returns ErrInvalidCost for a price that cannot be given back or charged.
func (p price) checkAmount(limits tokenbucket.Limits) error {
	if p.each != nil {
		return limits.RefundEach(full(limits), 0, p.each...)
	}
	return limits.Refund(full(limits), 0, p.cost)
}

// check returns the error of tokenbucket.Bucket.Wait for a price that can never be paid, and
// nil for all others.
func (p price) check(limits tokenbucket.Limits) error {
	if p.fits(limits) && p.canBePaid(limits) {
		return nil
	}
	var others []tokenbucket.Option
	for _, l := range limits[1:] {
		others = append(others, tokenbucket.WithLimit(l))
	}
	local, err := tokenbucket.New(limits[0], others...)
	if err != nil {
		return err
	}
	if p.each != nil {
		_, err = local.ReserveEach(p.each...)
	} else {
		_, err = local.Reserve(p.cost)
	}
	return err
}

// The optional methods of a Fallback.
type (
	eachTaker interface {
		TakeEach(key string, costs ...float64) tokenbucket.Decision
	}
	eachWaiter interface {
		WaitEach(ctx context.Context, key string, costs ...float64) error
	}
	eachRefunder interface {
		RefundEach(key string, costs ...float64) error
	}
	charger interface {
		Charge(key string, cost float64) error
	}
	eachCharger interface {
		ChargeEach(key string, costs ...float64) error
	}
	peeker interface {
		Peek(key string, cost float64) tokenbucket.Decision
	}
	eachPeeker interface {
		PeekEach(key string, costs ...float64) tokenbucket.Decision
	}
)

// takeFrom asks the fallback. It returns err if the fallback lacks the method.
func (p price) takeFrom(f Fallback, key string, err error) (tokenbucket.Decision, error) {
	if p.each == nil {
		return f.Take(key, p.cost), nil
	}
	if f, ok := f.(eachTaker); ok {
		return f.TakeEach(key, p.each...), nil
	}
	return undecided, err
}

func (p price) waitFor(ctx context.Context, f Fallback, key string, err error) error {
	if p.each == nil {
		return f.Wait(ctx, key, p.cost)
	}
	if f, ok := f.(eachWaiter); ok {
		return f.WaitEach(ctx, key, p.each...)
	}
	return err
}

func (p price) refundTo(f Fallback, key string, err error) error {
	if p.each == nil {
		return f.Refund(key, p.cost)
	}
	if f, ok := f.(eachRefunder); ok {
		return f.RefundEach(key, p.each...)
	}
	return err
}

func (p price) chargeTo(f Fallback, key string, err error) error {
	if one, ok := f.(charger); ok && p.each == nil {
		return one.Charge(key, p.cost)
	}
	if each, ok := f.(eachCharger); ok && p.each != nil {
		return each.ChargeEach(key, p.each...)
	}
	return err
}

func (p price) peekAt(f Fallback, key string, err error) (tokenbucket.Decision, error) {
	if one, ok := f.(peeker); ok && p.each == nil {
		return one.Peek(key, p.cost), nil
	}
	if each, ok := f.(eachPeeker); ok && p.each != nil {
		return each.PeekEach(key, p.each...), nil
	}
	return undecided, err
}
