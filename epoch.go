package tokenbucket

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// epoch is a time in which the limits and the anchors of a bucket stay as they are and
// nobody waits. Whole costs then need no lock but are a matter of one word: an
// admission adds to it, and a refusal only reads it, so that a flood of requests that
// are refused does not slow the others down.
//
// Decisions open an epoch once they have found the bucket so for a while. Whatever else
// is done closes it, and goes on from what was spent.
type epoch struct {
	limits   Limits   // never changed
	states   []State  // at its beginning
	single   [1]State // where they are, if it is one
	capacity float64  // of the least limit
	_        [56]byte // what decisions write is a cache line of its own

	spent atomic.Int64 // whole tokens since then, or epochOver
	_     [56]byte
}

const epochOver = math.MinInt64

// answer is a decision of an epoch.
type answer struct {
	spent int64         // after it
	now   time.Duration // the reading of the clock by which it was made
	ok    bool
	wait  time.Duration // 0 when ok
}

// take decides about a whole cost, if the epoch lasts; a nil one is over.
//
// Others spend at the same time, some of them by later readings of the clock. An
// admission is right if its own reading pays for all that was spent: since then more
// has been refilled, which what it tells is left does not count. A refusal is right
// only if nothing was spent between the reading and the decision.
func (e *epoch) take(t *timeline.Timeline, cost float64) (a answer, decided bool) {
	whole, ok := wholeCost(cost)
	if e == nil || !ok || cost > e.capacity {
		return a, false
	}
	before := e.spent.Load()
	now := t.Now()
	for spent := before; spent != epochOver; spent = e.spent.Load() {
		wait, lasts := e.wait(spent, now, cost)
		switch {
		case wait > 0:
			return answer{spent, now, false, wait}, e.spent.Load() == before
		case !lasts:
			return a, false
		case e.spent.CompareAndSwap(spent, spent+whole):
			return answer{spent + whole, now, true, 0}, true
		}
	}
	return a, false
}

// wait is Limits.wait after so many tokens. If it is 0, lasts is whether an admission
// only adds to them: no state is to be anchored anew, and none has rounded, since the
// next cost rounds what was left by then.
func (e *epoch) wait(spent int64, now time.Duration, cost float64) (longest time.Duration, lasts bool) {
	lasts = true
	for i := range e.limits {
		l, s := &e.limits[i], e.states[i].after(spent)
		elapsed, need := s.elapsed(now), l.need(s, cost-l.slack(s))
		if l.gain(elapsed) < need {
			longest = max(longest, l.search(elapsed, need))
		} else if l.IsFull(s, now) || l.isFar(s, now) || s.Balance+float64(spent) != e.states[i].Balance {
			lasts = false
		}
	}
	return longest, lasts
}

// appendStates appends what the states are after so many tokens.
func (e *epoch) appendStates(states []State, spent int64) []State {
	for _, s := range e.states {
		states = append(states, s.after(spent))
	}
	return states
}

func (s State) after(spent int64) State {
	s.Balance -= float64(spent)
	return s
}

// wholeCost returns a cost that an epoch can count.
func wholeCost(cost float64) (tokens int64, ok bool) {
	tokens = int64(cost) // if out of range, anything
	return tokens, float64(tokens) == cost && cost > 0
}

// steady counts the decisions since an epoch that left the anchors where they are.
type steady struct {
	anchors   time.Duration // their sum, which may wrap: all that matters is whether it changes
	decisions int
}

// decisionsToOpen is how many open an epoch: to begin one allocates, and to end one
// reads the clock again, which a bucket that is mostly full, or refunded, is to be spared.
const decisionsToOpen = 16

// openEpochLocked notes a decision, and opens an epoch if there were many about whole
// costs that were a matter of the states alone. That takes the system clock, which never
// steps back, since an epoch does not note the latest reading.
func (b *Bucket) openEpochLocked(now time.Duration, p price) {
	q := &b.queue
	if _, ok := wholeCost(p.all); !ok || p.each != nil || !q.isOpen() {
		return
	}
	anchors := time.Duration(0)
	for i := range q.states {
		anchors += q.states[i].Anchor
	}
	if anchors != b.steady.anchors {
		b.steady = steady{anchors: anchors}
	}
	b.steady.decisions++
	if b.steady.decisions >= decisionsToOpen && b.time.Clock == nil && now >= q.latest {
		e := &epoch{limits: q.limits, capacity: q.limits.capacity()}
		e.states = append(e.single[:0], q.states...)
		b.epoch.Store(e)
	}
}
