package tokenbucket

import (
	"math"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// queue is the state of a bucket: its limits, their states, the pause, and the waiters,
// first come first served. It has no lock, so only one goroutine at a time may call its
// methods. It has no clock: its methods get a reading of the clock, and first serve the
// waiters that are due by then.
//
// A reading earlier than the latest one counts as the latest one: goroutines may get the
// lock in another order than they read the clock, and clocks may step back. So a clock that
// steps back adds no tokens, and no request is refused only because its reading is a little
// earlier than that of another request.
//
// The plan holds the turns of the waiters: when each is due, and the states after it. It is
// computed from the head, as far as it was needed. A turn is computed by the same arithmetic
// as a grant, ahead of time, so each waiter is granted its cost exactly when the plan says.
// Each planned waiter stores the states after its turn. So a newcomer needs only the last
// turn, and serving the head leaves the plan as it is. A waiter that gives up changes only
// the turns behind it. A change of the states or the limits drops the plan; it is computed
// again when it is needed.
type queue struct {
	latest time.Duration // the latest reading of the clock
	opens  time.Duration // the end of the latest pause; 0, and so not after latest: there was none
	single [1]State      // the array behind states if there is one limit
	head   *waiter
	tail   *waiter
	limits Limits  // never changed in place
	states []State // one for each limit, after the latest grant

	len          int
	maxLen       int
	reservations int       // how many waiters are reservations
	sleeper      *waiter   // the first waiter that sleeps in Wait; nil: none
	asleep       int       // how many waiters are asleep
	queued       []float64 // the sum of the waiters' costs, for each limit

	planned *waiter       // the last waiter that is planned: all before it are, too; nil: none
	begins  time.Duration // the instant from which the head's turn is planned
	recount time.Duration // from this instant on, asleep may count waiters whose timers have rung before their turns
}

// init makes a queue with full states at now.
func (q *queue) init(limits Limits, now time.Duration, maxLen int) {
	q.limits, q.maxLen, q.latest = limits, maxLen, now
	q.states = append(q.single[:0], make([]State, len(limits))...)
	q.queued = make([]float64, len(limits))
	limits.Fill(q.states, now)
}

// resume continues from earlier states. A state that is anchored in the future means a pause
// until then.
func (q *queue) resume(now time.Duration, states []State) {
	now = max(q.latest, now)
	for i, s := range states {
		q.states[i] = State{Balance: min(s.Balance, q.limits[i].Capacity), Anchor: s.Anchor}
		if s.Anchor > now {
			q.opens = max(q.opens, s.Anchor)
		}
	}
}

// lower lowers each balance to at most a number of tokens.
func (q *queue) lower(tokens float64) {
	for i := range q.states {
		q.states[i].Balance = min(q.states[i].Balance, tokens)
	}
}

// advance stores a reading of the clock, serves the waiters that are due, and returns the
// instant that the reading counts as.
func (q *queue) advance(now time.Duration) time.Duration {
	q.latest = max(q.latest, now)
	if q.head != nil {
		q.serve()
	}
	return q.latest
}

// isOpen reports whether the states alone decide about a request: the queue is empty and the
// bucket is not paused.
func (q *queue) isOpen() bool {
	return q.head == nil && q.latest >= q.opens
}

// tryAcquire takes a price, or takes nothing and returns how long a newcomer has to wait.
func (q *queue) tryAcquire(now time.Duration, p price) (wait time.Duration, ok bool) {
	at := q.advance(now)
	if !q.isOpen() {
		wait = q.wait(now, p)
		return wait, wait == 0
	}
	if wait, ok = q.limits.tryAcquire(q.states, at, p); !ok {
		wait = timeline.Later(wait, at-now)
	}
	return wait, ok
}

// take is like tryAcquire, but sets d, which is zero before.
func (q *queue) take(d *Decision, now time.Duration, p price) {
	at := q.advance(now)
	if !q.isOpen() {
		*d = q.decide(now, p)
		return
	}
	if q.limits.take(d, q.states, at, p); !d.OK {
		d.Wait = timeline.Later(d.Wait, at-now)
	}
}

// peek returns the decision that take would set, and takes nothing.
func (q *queue) peek(now time.Duration, p price) (d Decision) {
	q.advance(now)
	if !q.isOpen() {
		return q.decide(now, p)
	}
	var few [2]State
	before := append(few[:0], q.states...)
	q.take(&d, now, p)
	copy(q.states, before)
	return d
}

// wait returns how long a newcomer has to wait behind the queue and any pause. The wait
// counts from now itself, even if now is earlier than the latest reading.
func (q *queue) wait(now time.Duration, p price) time.Duration {
	if p.isFree() {
		return 0
	}
	at, states := q.end()
	return timeline.Until(now, timeline.Later(at, q.limits.wait(states, at, p)))
}

// decide is take for a bucket that is not open.
func (q *queue) decide(now time.Duration, p price) Decision {
	wait := q.wait(now, p)
	d := Decision{OK: wait == 0, Wait: wait, held: true}
	at, states := q.end()
	d.LimitIndex = q.limits.binding(states, at, p)
	if i := d.LimitIndex; i >= 0 {
		d.Limit = q.limits[i]
		d.Tokens = q.tokensOf(i)
		d.reset = timeline.Later(timeline.Until(now, at), d.Limit.untilFull(states[i], at))
	}
	return d
}

// end returns the instant at which the last waiter will have been served, and the states
// then. If there is no waiter, it is the instant from which tokens can be taken.
func (q *queue) end() (at time.Duration, states []State) {
	if q.tail == nil {
		return q.now(), q.states
	}
	q.plan(q.tail)
	return q.tail.due, q.tail.after()
}

// now returns the instant at which a change of the states counts: the latest reading or, in a
// pause, its end.
func (q *queue) now() time.Duration { return max(q.latest, q.opens) }

// tokens returns the number of tokens that are left for a newcomer: the least of the levels,
// minus the costs of the waiters.
func (q *queue) tokens(now time.Duration) float64 {
	q.advance(now)
	if len(q.limits) == 0 {
		return 0
	}
	least := math.Inf(1)
	for i := range q.limits {
		least = min(least, q.tokensOf(i))
	}
	return least
}

func (q *queue) tokensOf(limit int) float64 {
	return q.limits[limit].Tokens(q.states[limit], q.now()) - q.queued[limit]
}

// waiting returns the number of waiters that sleep with their timers set, plus the number of
// reservations that are not yet due.
func (q *queue) waiting(now time.Duration) int {
	if q.advance(now) >= q.recount {
		q.recountAsleep()
	}
	return q.reservations + q.asleep
}

// recountAsleep finds the sleepers whose timers have rung before their turns: they are about
// to set another one. That needs a walk along the queue only after a change of the plan, since
// a timer is set for the turn.
func (q *queue) recountAsleep() {
	q.recount = Never
	for w := q.head; w != nil; w = w.next {
		switch q.plan(w); {
		case !w.asleep || w.alarm >= w.due:
		case w.alarm <= q.latest:
			q.setAsleep(w, false)
		default:
			q.recount = min(q.recount, w.alarm)
		}
	}
}

// refund gives tokens back and then serves the queue.
func (q *queue) refund(now time.Duration, p price) error {
	q.advance(now)
	if err := q.limits.refund(q.states, q.now(), p); err != nil {
		return err
	}
	q.replan()
	return nil
}

// charge takes a price, even if there are fewer tokens.
func (q *queue) charge(now time.Duration, p price) error {
	q.advance(now)
	if err := q.limits.charge(q.states, q.now(), p); err != nil {
		return err
	}
	q.replan()
	return nil
}

// pause empties the states and stops their refill for d, which is above 0.
func (q *queue) pause(now, d time.Duration) {
	at := q.advance(now)
	closed := q.now()
	q.opens = max(q.opens, timeline.Later(at, d))
	for i, l := range q.limits {
		q.states[i] = State{Balance: min(0, l.level(q.states[i], closed)), Anchor: q.opens}
	}
	q.replan()
}

// fill makes the states full and ends a pause.
func (q *queue) fill(now time.Duration) {
	at := q.advance(now)
	q.opens = 0
	q.limits.Fill(q.states, at)
	q.replan()
}

// setLimits changes the limits. The new ones are valid, and their number is the same. Waiters
// whose cost is above the new capacity leave with ErrCostExceedsCapacity.
func (q *queue) setLimits(now time.Duration, limits Limits) {
	q.advance(now)
	q.limits.Change(q.states, q.now(), limits)
	q.limits = slices.Clone(limits)
	for w := q.head; w != nil; {
		next := w.next
		if err := q.limits.check(w.price()); err != nil {
			q.drop(w, err)
		}
		w = next
	}
	q.replan()
}

// push queues a waiter that is new or has left. If its nudges are nil, it is a reservation.
func (q *queue) push(now time.Duration, p price, w *waiter) {
	q.advance(now)
	w.begin(p, len(q.limits))
	if q.tail == nil {
		q.head = w
		q.restart()
	} else {
		q.tail.next, w.prev = w, q.tail
		w.number = q.tail.number + 1
	}
	q.tail = w
	q.count(w, 1)
	if w.nudges != nil && q.sleeper == nil {
		q.sleeper = w
	}
	q.plan(w)
	w.alarm = w.due
}

// sleep notes that the timer of a waiter is set.
func (q *queue) sleep(w *waiter) {
	if !w.left && len(w.nudges) == 0 { // after a nudge it wakes and sets another timer
		q.setAsleep(w, true)
	}
}

func (q *queue) setAsleep(w *waiter, asleep bool) {
	if w.asleep == asleep {
		return
	}
	w.asleep = asleep
	if asleep {
		q.asleep++
	} else {
		q.asleep--
	}
}

// wakeUp notes that a waiter is awake. If it is still queued, it has to set another timer, for
// its alarm.
func (q *queue) wakeUp(now time.Duration, w *waiter) {
	w.awake = true
	q.advance(now)
	w.awake = false
	if !w.left {
		q.setAsleep(w, false)
		q.plan(w)
		w.alarm = w.due
	}
}

// delay returns the time until a waiter is granted its cost: 0 if it has been granted, Never
// if the waiter left without it.
func (q *queue) delay(now time.Duration, w *waiter) time.Duration {
	q.advance(now)
	switch {
	case !w.left:
		q.plan(w)
		return timeline.Until(now, w.due)
	case w.err != nil:
		return Never
	default:
		return 0
	}
}

// abandon drops a waiter that gives up for a reason; the waiters behind it move up. It
// returns false if the waiter has already left.
func (q *queue) abandon(now time.Duration, w *waiter, reason error) bool {
	q.advance(now)
	if w.left {
		return false
	}
	q.drop(w, reason)
	q.settle()
	return true
}

// plan computes the plan up to and including a queued waiter.
func (q *queue) plan(upTo *waiter) {
	for !q.isPlanned(upTo) {
		w, at, states := q.head, q.begins, q.states
		if last := q.planned; last != nil {
			w, at, states = last.next, last.due, last.after()
		}
		after := w.after()
		copy(after, states)
		w.due = timeline.Later(at, q.limits.wait(after, at, w.price()))
		q.limits.spend(after, w.due, w.price())
		q.planned = w
	}
}

func (q *queue) isPlanned(w *waiter) bool {
	return q.planned != nil && w.number <= q.planned.number
}

// restart drops the plan. The next plan begins from the present states.
func (q *queue) restart() {
	q.planned = nil
	q.begins = q.now()
}

// replan drops the plan and settles. It is called after each change of the states or the
// limits.
func (q *queue) replan() {
	q.restart()
	q.settle()
}

// settle serves the waiters that are due, and nudges the first sleeper if it must wake
// earlier. It is called after each change of the plan.
func (q *queue) settle() {
	q.recount = 0
	q.serve()
	q.rouse()
}

// serve grants each waiter that is due its cost. A grant counts at the instant at
// which it was due, even if serve is called later. So late timers do not lower the rate.
func (q *queue) serve() {
	served := false
	for w := q.head; w != nil; w = q.head {
		if q.plan(w); w.due > q.latest {
			break
		}
		copy(q.states, w.after())
		q.begins = w.due
		q.drop(w, nil)
		served = true
	}
	if served {
		q.rouse()
	}
}

// rouse nudges the first sleeper if its turn comes before its timer rings. No other sleeper
// needs a nudge: each is the first one when its turn comes, and serve calls rouse then.
func (q *queue) rouse() {
	w := q.sleeper
	if w == nil {
		return
	}
	if q.plan(w); w.due < w.alarm {
		q.setAsleep(w, false)
		w.nudge()
	}
}

// drop removes a waiter from the queue. If err is nil, the waiter is the head and was granted
// its cost: the turns behind it stay planned. Otherwise they are dropped from the plan.
func (q *queue) drop(w *waiter, err error) {
	switch {
	case err != nil && w == q.head:
		q.restart()
	case err != nil && q.isPlanned(w) || q.planned == w:
		q.planned = w.prev
	}
	if w == q.sleeper {
		q.sleeper = w.nextSleeper()
	}
	q.setAsleep(w, false)
	q.count(w, -1)
	q.unlink(w)
	w.left, w.err = true, err
	w.nudge()
}

// count counts a waiter that comes, if by is 1, or leaves, if by is -1.
func (q *queue) count(w *waiter, by int) {
	q.len += by
	if w.nudges == nil {
		q.reservations += by
	}
	for i := range q.queued {
		q.queued[i] += float64(by) * w.price().of(i)
	}
	if q.len == 0 {
		clear(q.queued) // the sums may have rounded
	}
}

func (q *queue) unlink(w *waiter) {
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
	w.prev, w.next = nil, nil // a Reservation may live longer than its place
}
