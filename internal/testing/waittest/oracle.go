package waittest

import (
	"math"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Oracle is a bucket with a queue in integer arithmetic: other buckets must give its answers.
// Capacities and refills must be whole numbers, and costs multiples of a billionth of a
// token. Methods with costs take one cost for all limits, or one for each. An Oracle is not
// safe for concurrent use.
type Oracle struct {
	limits []tokenbucket.Limit
	levels []int64       // one for each limit, in billionths of a token: a refill of 1 per second adds one each nanosecond
	at     time.Duration // the instant of the levels; in the future during a pause
	now    time.Duration
	queue  []*Place
}

// Place is a place in the queue of an Oracle.
type Place struct {
	Served bool
	Due    time.Duration // the instant of the grant, if Served
	costs  []int64       // one for each limit
}

// NewOracle returns a bucket that is full at 0.
func NewOracle(limits ...tokenbucket.Limit) *Oracle {
	o := &Oracle{limits: slices.Clone(limits)}
	for _, l := range limits {
		o.levels = append(o.levels, nano(l.Capacity))
	}
	return o
}

// costs returns one cost for each limit, in billionths of a token.
func (o *Oracle) costs(tokens []float64) []int64 {
	costs := make([]int64, len(o.limits))
	for i := range costs {
		costs[i] = nano(tokens[min(i, len(tokens)-1)])
	}
	return costs
}

func isFree(costs []int64) bool { return slices.Max(costs) == 0 }

func nano(tokens float64) int64 { return int64(math.Round(tokens * 1e9)) }

// Advance serves the waiters that are due by now, and refills. An instant before the latest
// one counts as the latest one.
func (o *Oracle) Advance(now time.Duration) {
	o.now = max(o.now, now)
	for len(o.queue) > 0 {
		head := o.queue[0]
		due := o.at + o.wait(head.costs)
		if due > o.now {
			break
		}
		o.take(due, head.costs)
		head.Served, head.Due = true, due
		o.queue = o.queue[1:]
	}
	o.refill(o.now)
}

func (o *Oracle) refill(to time.Duration) {
	if to <= o.at {
		return
	}
	for i, l := range o.limits {
		o.levels[i] = min(nano(l.Capacity), o.levels[i]+int64(to-o.at)*int64(l.RefillPerSec))
	}
	o.at = to
}

func (o *Oracle) take(at time.Duration, costs []int64) {
	o.refill(at)
	for i := range o.levels {
		o.levels[i] -= costs[i]
	}
}

// wait returns how long after o.at the bucket holds the costs.
func (o *Oracle) wait(costs []int64) (longest time.Duration) {
	for i, l := range o.limits {
		if refill := int64(l.RefillPerSec); costs[i] > 0 {
			longest = max(longest, time.Duration((costs[i]-o.levels[i]+refill-1)/refill))
		}
	}
	return longest
}

// Try returns what TryAcquire must return.
func (o *Oracle) Try(tokens ...float64) (wait time.Duration, ok bool) {
	costs := o.costs(tokens)
	if wait = o.due(nil, costs) - o.now; wait > 0 && !isFree(costs) {
		return wait, false
	}
	o.take(o.at, costs)
	return 0, true
}

// Due returns the instant at which a place is served if nothing changes.
func (o *Oracle) Due(place *Place) time.Duration { return o.due(place, nil) }

// due is Due for a place or, if place is nil, for a new waiter with costs.
func (o *Oracle) due(place *Place, costs []int64) time.Duration {
	ahead := Oracle{limits: o.limits, levels: slices.Clone(o.levels), at: o.at}
	places := o.queue
	if place == nil {
		place = &Place{costs: costs}
		places = append(slices.Clone(o.queue), place)
	}
	for _, p := range places {
		due := ahead.at + ahead.wait(p.costs)
		if p == place {
			return due
		}
		ahead.take(due, p.costs)
	}
	return max(ahead.at, o.now)
}

// Wait takes the costs if the bucket holds them and the queue is empty. Otherwise it
// takes a place in the queue.
func (o *Oracle) Wait(tokens ...float64) *Place {
	p := &Place{costs: o.costs(tokens)}
	if wait := o.due(nil, p.costs) - o.now; wait <= 0 || isFree(p.costs) {
		o.take(o.at, p.costs)
		p.Served, p.Due = true, o.now
		return p
	}
	o.queue = append(o.queue, p)
	return p
}

// Cancel removes a place from the queue, and reports whether the place was in it.
func (o *Oracle) Cancel(p *Place) bool {
	i := slices.Index(o.queue, p)
	if i < 0 {
		return false
	}
	o.queue = slices.Delete(slices.Clone(o.queue), i, i+1)
	o.Advance(o.now)
	return true
}

// Refund gives tokens back.
func (o *Oracle) Refund(tokens ...float64) {
	costs := o.costs(tokens)
	for i, l := range o.limits {
		o.levels[i] = min(nano(l.Capacity), o.levels[i]+costs[i])
	}
	o.Advance(o.now)
}

// Charge takes tokens even if the bucket holds fewer.
func (o *Oracle) Charge(tokens ...float64) { o.take(o.at, o.costs(tokens)) }

// Fill makes the bucket full, as if new.
func (o *Oracle) Fill() {
	for i, l := range o.limits {
		o.levels[i] = nano(l.Capacity)
	}
	o.at = o.now
	o.Advance(o.now)
}

// Pause empties the bucket, which refills only after d.
func (o *Oracle) Pause(d time.Duration) {
	for i := range o.levels {
		o.levels[i] = min(0, o.levels[i])
	}
	o.at = max(o.at, o.now+d)
}

// SetLimits changes the limits. Waiters whose cost is above the new capacity leave.
func (o *Oracle) SetLimits(limits ...tokenbucket.Limit) {
	o.limits = slices.Clone(limits)
	for i, l := range limits {
		o.levels[i] = min(o.levels[i], nano(l.Capacity))
	}
	o.queue = slices.DeleteFunc(slices.Clone(o.queue), func(p *Place) bool {
		for i, l := range limits {
			if p.costs[i] > nano(l.Capacity) {
				return true
			}
		}
		return false
	})
	o.Advance(o.now)
}

// Queued reports whether a place is still in the queue.
func (o *Oracle) Queued(p *Place) bool { return slices.Contains(o.queue, p) }

// Waiting returns the number of waiters in the queue.
func (o *Oracle) Waiting() int { return len(o.queue) }

// Tokens returns the lowest level, minus the costs in the queue, in tokens.
func (o *Oracle) Tokens() float64 {
	levels := slices.Clone(o.levels)
	for _, p := range o.queue {
		for i := range levels {
			levels[i] -= p.costs[i]
		}
	}
	return float64(slices.Min(levels)) / 1e9
}
