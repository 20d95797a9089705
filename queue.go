package tokenbucket

import (
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// waiter is a place in the queue: a goroutine's that sleeps in Wait, or a
// Reservation's. It holds no tokens until it is granted its cost.
type waiter struct {
	cost       float64
	prev, next *waiter
	left       bool  // it is no longer queued
	err        error // why it left, nil if it was granted its cost

	version uint64        // of the plan that has it
	due     time.Duration // the instant of its grant, by that plan

	// These are zero for a reservation. A waiter sleeps until its timer rings, which
	// it sets once; only for the first sleeper in the queue the timer must not ring
	// too late, so when its turn comes sooner it is nudged to set another.
	nudges chan struct{}
	alarm  time.Duration // the instant the timer rings
	asleep bool          // the timer is set
}

// nudge wakes a sleeping waiter. The channel is buffered: a nudge is never lost.
func (w *waiter) nudge() {
	select {
	case w.nudges <- struct{}{}:
	default:
	}
}

// plan is how the queue will be served, worked out from its head as far as anyone
// has asked. It is the same arithmetic as the grants themselves, carried out ahead
// of time, so what a waiter is told is what it gets. Serving the head does not
// change the plan; everything else that changes the states or drops a planned
// waiter starts a new version, which costs nothing until somebody asks.
type plan struct {
	version uint64
	last    *waiter       // the last one planned, nil: nobody yet
	at      time.Duration // its due instant; or where the plan starts
	states  []State       // after it has been served
	queued  float64       // what it and those ahead cost
}

// restartPlanLocked starts a new version of the plan from the present states.
func (b *Bucket) restartPlanLocked() {
	b.plan.version++
	b.plan.last = nil
	b.plan.queued = 0
	b.plan.at = max(b.latest, b.opens)
	copy(b.plan.states, b.states)
}

// planLocked works the plan out as far as a queued waiter; for nil, to the end.
func (b *Bucket) planLocked(upTo *waiter) {
	if b.queue.head == nil {
		b.restartPlanLocked()
		return
	}
	p := &b.plan
	for upTo == nil || upTo.version != p.version {
		w := b.queue.head
		if p.last != nil {
			w = p.last.next
		}
		if w == nil {
			return
		}
		w.version = p.version
		w.due = timeline.Later(p.at, b.limits.wait(p.states, p.at, w.cost))
		b.limits.spend(p.states, w.due, w.cost)
		p.at, p.last = w.due, w
		p.queued += w.cost
	}
}

// serveLocked grants everyone who is due by now its cost. The grant counts at the
// instant it fell due, however late somebody came to make it: so the rate is kept
// although timers are late.
func (b *Bucket) serveLocked() {
	served := false
	for w := b.queue.head; w != nil; w = b.queue.head {
		b.planLocked(w)
		if w.due > b.latest {
			break
		}
		b.limits.spend(b.states, w.due, w.cost)
		b.plan.queued -= w.cost
		b.dropLocked(w, nil)
		served = true
	}
	if served {
		b.rouseLocked()
	}
}

// rouseLocked nudges the first sleeper if its turn comes before its timer rings.
// When it leaves, it does the same for the next: nobody else need be woken.
func (b *Bucket) rouseLocked() {
	w := b.queue.head
	for w != nil && w.nudges == nil {
		w = w.next
	}
	if w == nil {
		return
	}
	if b.planLocked(w); w.due < w.alarm {
		w.asleep = false
		w.nudge()
	}
}

// replanLocked follows a change of the states or of the limits.
func (b *Bucket) replanLocked() {
	b.restartPlanLocked()
	b.serveLocked()
	b.rouseLocked()
}

// abandonLocked drops a waiter that gives up, and lets those behind it move up.
func (b *Bucket) abandonLocked(w *waiter, err error) {
	planned := w.version == b.plan.version
	b.dropLocked(w, err)
	if planned {
		b.replanLocked()
	}
}

// dismissLocked drops everyone whose cost can no longer be met.
func (b *Bucket) dismissLocked() {
	capacity := b.limits.capacity()
	for w := b.queue.head; w != nil; {
		next := w.next
		if err := checkCost(w.cost, capacity); err != nil {
			b.dropLocked(w, err)
		}
		w = next
	}
}

// dropLocked takes a waiter out of the queue, granted its cost if err is nil.
func (b *Bucket) dropLocked(w *waiter, err error) {
	if b.plan.last == w {
		b.plan.last = nil
	}
	b.queue.remove(w)
	w.left, w.err = true, err
	w.nudge()
}

// queue is a list of waiters, first come first.
type queue struct {
	head, tail *waiter
	len        int
}

func (q *queue) push(w *waiter) {
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next, w.prev = w, q.tail
	}
	q.tail = w
	q.len++
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil // a Reservation may outlive its place
	q.len--
}
