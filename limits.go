package tokenbucket

import (
	"math"
	"time"
)

// Limits are several limits that a request has to meet at once. A request is admitted if
// each limit admits it; a refusal by one limit takes nothing from the others.
//
// The methods work on a slice with one State for each limit, in the same order. The caller
// stores the states and guards them against concurrent use. All instants count from one
// origin.
//
// Empty Limits admit only a cost of 0.
type Limits []Limit

// Validate returns nil if all limits are valid, otherwise the ErrInvalidLimit of the first
// invalid one.
func (ls Limits) Validate() error {
	for _, l := range ls {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// capacity returns the largest cost that all limits can admit, in tokens.
func (ls Limits) capacity() float64 {
	if len(ls) == 0 {
		return 0
	}
	least := ls[0].Capacity
	for _, l := range ls[1:] {
		least = min(least, l.Capacity)
	}
	return least
}

// TryAcquire admits a cost at now and takes it from every state, or changes
// nothing and returns the longest wait that a limit requires.
func (ls Limits) TryAcquire(states []State, now time.Duration, cost float64) (wait time.Duration, ok bool) {
	return ls.tryAcquire(states, now, price{all: cost})
}

// tryAcquire does the work of wait and spend without calling them: the two calls would take
// a quarter of its time.
func (ls Limits) tryAcquire(states []State, now time.Duration, p price) (wait time.Duration, ok bool) {
	if len(ls) == 0 && !p.isFree() {
		return Never, false
	}
	for i := range ls {
		wait = max(wait, ls[i].wait(states[i], now, p.of(i)))
	}
	if wait > 0 {
		return wait, false
	}
	for i := range ls {
		states[i] = ls[i].spend(states[i], now, p.of(i))
	}
	return 0, true
}

// Take is like TryAcquire, but returns a Decision, which has all that response headers
// need.
func (ls Limits) Take(states []State, now time.Duration, cost float64) (d Decision) {
	ls.take(&d, states, now, price{all: cost})
	return d
}

// take sets a decision, which is zero before. It takes a pointer because each function that
// returns a Decision copies 80 bytes: through three layers, that took a quarter of its time.
func (ls Limits) take(d *Decision, states []State, now time.Duration, p price) {
	d.Wait, d.OK = ls.tryAcquire(states, now, p)
	ls.describe(d, states, now, p)
}

// describe adds to a decision the limit that binds, and the levels after the decision.
func (ls Limits) describe(d *Decision, states []State, now time.Duration, p price) {
	i := 0
	if len(ls) != 1 { // the call takes a twentieth of the time
		if i = ls.binding(states, now, p); i < 0 {
			d.LimitIndex = -1
			return
		}
	}
	d.LimitIndex, d.Limit, d.Tokens = i, ls[i], ls[i].Tokens(states[i], now)
	if ls[i] == (Limit{}) {
		d.LimitIndex = -1
	}
	if len(ls) == 1 || p.each != nil {
		return
	}
	least := d.Tokens
	for i := range ls {
		if ls[i].level(states[i], now) < least { // the method Tokens takes longer, and never returns less
			least = min(least, ls[i].Tokens(states[i], now))
		}
	}
	if least < d.Tokens {
		d.isShort, d.least = true, least
	}
}

// Tokens returns the least of the levels at now, 0 if there are no limits.
func (ls Limits) Tokens(states []State, now time.Duration) float64 {
	if len(ls) == 0 {
		return 0
	}
	least := math.Inf(1)
	for i, l := range ls {
		least = min(least, l.Tokens(states[i], now))
	}
	return least
}

// IsFull reports whether every limit has had time to fill by now.
func (ls Limits) IsFull(states []State, now time.Duration) bool {
	for i, l := range ls {
		if !l.IsFull(states[i], now) {
			return false
		}
	}
	return true
}

// UntilFull returns the time from now until every limit has had time to fill: 0 if every
// limit has had that time by now, Never beyond 292 years.
func (ls Limits) UntilFull(states []State, now time.Duration) (longest time.Duration) {
	for i, l := range ls {
		longest = max(longest, l.untilFull(states[i], now))
	}
	return longest
}

// Fill makes every state full at now.
func (ls Limits) Fill(states []State, now time.Duration) {
	for i, l := range ls {
		states[i] = l.Full(now)
	}
}

// Refund gives tokens back to every state at now, up to its capacity. It returns
// ErrInvalidCost unless tokens is finite and at least 0.
func (ls Limits) Refund(states []State, now time.Duration, tokens float64) error {
	return ls.refund(states, now, price{all: tokens})
}

func (ls Limits) refund(states []State, now time.Duration, p price) error {
	if err := p.checkAmount(); err != nil {
		return err
	}
	for i, l := range ls {
		states[i] = l.refund(states[i], now, p.of(i))
	}
	return nil
}

// Charge takes a cost from every state at now, even if there are fewer tokens. A debt stops
// growing at about 1e289 tokens. Charge returns ErrInvalidCost unless the cost is finite and
// at least 0.
func (ls Limits) Charge(states []State, now time.Duration, cost float64) error {
	return ls.charge(states, now, price{all: cost})
}

func (ls Limits) charge(states []State, now time.Duration, p price) error {
	if err := p.checkAmount(); err != nil {
		return err
	}
	for i, l := range ls {
		states[i] = l.charge(states[i], now, p.of(i))
	}
	return nil
}

// check returns nil if the limits can admit a price at some time, otherwise ErrInvalidCost or
// ErrCostExceedsCapacity.
func (ls Limits) check(p price) error {
	if p.each == nil {
		return checkCost(p.all, ls.capacity())
	}
	for _, cost := range *p.each {
		if err := checkCost(cost, math.Inf(1)); err != nil {
			return err
		}
	}
	for i, cost := range *p.each {
		if err := checkCost(cost, ls[i].Capacity); err != nil {
			return err
		}
	}
	return nil
}

// Change converts states of the limits ls into states of new limits, which are the last
// argument. Pass one new limit for each limit of ls, in the same order. Each state is
// brought to its level at now under its old limit. Tokens stay, up to the new capacity, and
// so do debts. A state whose Anchor is after now, because its bucket is paused until then,
// keeps its Anchor. A state whose limit stays the same is not changed, so that it is not
// rounded.
func (ls Limits) Change(states []State, now time.Duration, to Limits) {
	for i, l := range to {
		if s := states[i]; l != ls[i] {
			at := max(now, s.Anchor)
			states[i] = State{Balance: min(l.Capacity, ls[i].level(s, at)), Anchor: at}
		}
	}
}

func (ls Limits) wait(states []State, now time.Duration, p price) (longest time.Duration) {
	if len(ls) == 0 && !p.isFree() {
		return Never
	}
	for i, l := range ls {
		longest = max(longest, l.wait(states[i], now, p.of(i)))
	}
	return longest
}

func (ls Limits) spend(states []State, now time.Duration, p price) {
	for i, l := range ls {
		states[i] = l.spend(states[i], now, p.of(i))
	}
}

// binding returns the index of the limit with the longest wait for a price at now, among the
// limits with a cost above 0. On a tie it is the first one. It is -1 if there are no limits.
func (ls Limits) binding(states []State, now time.Duration, p price) int {
	if len(ls) < 2 {
		return len(ls) - 1
	}
	binding, longest := p.firstAsked(), time.Duration(0)
	for i, l := range ls {
		if wait := l.wait(states[i], now, p.of(i)); wait > longest {
			binding, longest = i, wait
		}
	}
	return binding
}
