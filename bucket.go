// Package tokenbucket limits rates with token buckets whose answers are exact: a
// refusal says, to the nanosecond, when that very request would be admitted,
// waiters leave first come first served at the instants their turns are paid
// for, and no sequence of requests gets more than capacity + refill * time.
//
// A [Bucket] holds tokens up to a capacity, starts full, and refills
// continuously; a request costs some of them. Most callers want
// [Bucket.TryAcquire] to refuse what is too fast, or [Bucket.Wait] to slow it
// down. [Limit.Take] is the arithmetic alone, for who keeps the [State] elsewhere.
//
// Package keyed holds one bucket for each of millions of keys, package httplimit
// puts either in front of a net/http handler or behind an http.Client, and module
// redisbucket shares buckets between machines. golang.org/x/time/rate is enough
// where nobody is told when to come back and all requests cost the same.
package tokenbucket

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// Never is the wait for what no wait brings about, such as a cost above the
// capacity, or what takes longer than a time.Duration can say (292 years).
const Never time.Duration = math.MaxInt64

// Bucket is a token bucket, or several that a request has to meet at once. Most
// callers want TryAcquire or Wait.
//
// The queue is strictly first come first served: as long as anybody waits, no
// other request is admitted unless it costs 0. No goroutine runs in the
// background, and nobody holds tokens before being granted them.
//
// A Bucket may be used by any number of goroutines; by the system clock and under load,
// TryAcquire, Take and Wait decide about whole costs without a lock. It must not be
// copied. The zero Bucket admits nothing but a cost of 0; use New.
type Bucket struct {
	time       timeline.Timeline
	maxWaiters int
	limits     Limits                // the mutex guards it; what is in it is never changed
	states     []State               // the mutex guards what is in it: one for each limit
	epoch      atomic.Pointer[epoch] // nil: the lock decides
	_          [24]byte              // so that what each decision writes is one cache line, and what is above another

	mu     sync.Mutex
	latest time.Duration // the latest reading of the clock: earlier ones count as this
	opens  time.Duration // the end of the latest pause; states are anchored no earlier until then
	single [1]State      // where the states are, if it is one
	steady steady        // opens an epoch
	queue  queue
	plan   plan               // how the queue will be served
	holds  map[*hold]struct{} // callers of WaitPause
	_      [48]byte           // so that Buckets begin with a cache line
}

// New returns a full bucket. It returns ErrInvalidLimit or ErrInvalidOption for
// numbers out of range.
func New(limit Limit, opts ...Option) (*Bucket, error) {
	c := config{limits: Limits{limit}, maxWaiters: math.MaxInt}
	for _, opt := range opts {
		opt(&c)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	b := &Bucket{
		time:       timeline.Start(c.clock),
		maxWaiters: c.maxWaiters,
		limits:     c.limits,
		latest:     max(0, c.latest),
		plan:       plan{states: make([]State, len(c.limits))},
	}
	b.states = append(b.single[:0], make([]State, len(c.limits))...)
	if c.resume != nil {
		b.resume(c.resume.origin, c.resume.states)
		return b, nil
	}
	b.limits.Fill(b.states, b.latest)
	if c.tokens != nil {
		for i := range b.states {
			b.states[i].Balance = min(b.states[i].Balance, *c.tokens)
		}
	}
	return b, nil
}

// resume goes on from states that may be anchored in the future: at the end of a pause.
func (b *Bucket) resume(origin time.Time, states []State) {
	b.time = timeline.Resume(b.time.Clock, origin)
	now := max(b.latest, b.time.Now())
	for i, s := range states {
		b.states[i] = State{Balance: min(s.Balance, b.limits[i].Capacity), Anchor: s.Anchor}
		if s.Anchor > now {
			b.opens = max(b.opens, s.Anchor)
		}
	}
}

// MustNew is New for package variables: it panics where New returns an error.
func MustNew(limit Limit, opts ...Option) *Bucket {
	b, err := New(limit, opts...)
	if err != nil {
		panic(err)
	}
	return b
}

// TryAcquire takes the cost, in tokens, if it is there and nobody waits for it.
// Otherwise it takes nothing and returns how long to wait until the same request
// would be admitted if nobody else came: everyone queued is counted. The wait is
// Never for a cost that is negative, NaN or above the capacity.
func (b *Bucket) TryAcquire(cost float64) (wait time.Duration, ok bool) {
	if a, decided := b.epoch.Load().take(&b.time, cost); decided {
		return a.wait, a.ok
	}
	now, at := b.lock()
	if b.isOpenLocked(at) {
		wait, ok = b.limits.TryAcquire(b.states, at, cost)
		if !ok {
			wait = timeline.Later(wait, at-now)
		}
		b.openEpochLocked(now, cost)
	} else {
		wait = b.quoteLocked(now, cost)
		ok = wait == 0
	}
	b.mu.Unlock()
	return wait, ok
}

// Take is TryAcquire with everything a header needs.
func (b *Bucket) Take(cost float64) (d Decision) {
	e := b.epoch.Load()
	if a, decided := e.take(&b.time, cost); decided {
		var few [2]State
		d.OK, d.Wait = a.ok, a.wait
		e.limits.tell(&d, e.appendStates(few[:0], a.spent), a.now, cost)
		return d
	}
	now, at := b.lock()
	if !b.isOpenLocked(at) {
		d = b.decideLocked(now, at, cost)
	} else {
		if d = b.limits.Take(b.states, at, cost); !d.OK {
			d.Wait = timeline.Later(d.Wait, at-now)
		}
		b.openEpochLocked(now, cost)
	}
	b.mu.Unlock()
	return d
}

// Wait takes the cost, in tokens, as soon as it is there and everyone who came
// before has left. It returns nil if and only if the cost was taken:
//
//   - the context's error if it is done, then or while waiting; those behind move up at once
//   - ErrInvalidCost for a cost that is negative or NaN
//   - ErrCostExceedsCapacity for one that can never be met, or no longer since the limits changed
//   - a *DeadlineError, at once, if the wait would outlast the context's deadline,
//     told by the bucket's clock and by the real one
//   - ErrTooManyWaiters, at once, if WithMaxWaiters says so
func (b *Bucket) Wait(ctx context.Context, cost float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, err := b.admitOrQueue(ctx, cost)
	if w == nil {
		return err
	}
	for {
		select {
		case <-b.setTimer(w):
		case <-w.nudges:
		case <-ctx.Done():
		}
		if left, err := b.wakeUp(ctx, w); left {
			return err
		}
	}
}

// Reserve takes a place in the queue, and the cost, in tokens, once it is due; if
// it is there already and nobody waits, at once. It returns ErrInvalidCost,
// ErrCostExceedsCapacity and ErrTooManyWaiters as Wait does.
//
// It is for callers who do their own sleeping; Wait is simpler.
func (b *Bucket) Reserve(cost float64) (*Reservation, error) {
	now, at := b.lock()
	defer b.mu.Unlock()
	w, err := b.admitOrQueueLocked(context.Background(), now, at, cost)
	if err != nil {
		return nil, err
	}
	return &Reservation{b, w}, nil
}

// Refund gives tokens back, up to the capacity, and then serves the queue from
// what is there. It returns ErrInvalidCost unless the cost is finite and at least 0.
func (b *Bucket) Refund(cost float64) error {
	_, at := b.lock()
	defer b.mu.Unlock()
	err := b.limits.Refund(b.states, max(at, b.opens), cost)
	b.replanLocked()
	return err
}

// Charge takes the cost, in tokens, whether it is there or not: the level may fall
// below zero, and everyone queued waits for longer. It is for costs that are known
// only afterwards. It returns ErrInvalidCost unless the cost is finite and at least 0.
func (b *Bucket) Charge(cost float64) error {
	_, at := b.lock()
	defer b.mu.Unlock()
	err := b.limits.Charge(b.states, max(at, b.opens), cost)
	b.replanLocked()
	return err
}

// Pause empties the bucket and closes it for d: until then nothing but a cost of 0
// is admitted and nothing is refilled, and refunds are kept for afterwards. Debt
// stays. A pause that would end before a present one does not shorten it; Never
// lasts for good; 0 or less does nothing. It is what a client does when a server
// tells it to retry after d.
func (b *Bucket) Pause(d time.Duration) {
	if d <= 0 {
		return
	}
	_, at := b.lock()
	defer b.mu.Unlock()
	closed := max(at, b.opens)
	b.opens = max(b.opens, timeline.Later(at, d))
	for i, l := range b.limits {
		b.states[i] = State{Balance: min(0, l.level(b.states[i], closed)), Anchor: b.opens}
	}
	b.replanLocked()
}

// Fill makes the bucket full, as if new: debts are forgiven and a pause ends. Then
// the queue is served from what is there.
func (b *Bucket) Fill() {
	_, at := b.lock()
	defer b.mu.Unlock()
	b.opens = 0
	b.limits.Fill(b.states, at)
	b.nudgeHoldsLocked()
	b.replanLocked()
}

// SetLimits changes the limits, one for each that the bucket has, in the order of
// Limits. The tokens there are stay, up to the new capacity, and so does debt. A
// waiter whose cost is above the new capacity gets ErrCostExceedsCapacity. It
// returns ErrInvalidLimit, and changes nothing, if a limit is invalid or their
// number is not the same.
func (b *Bucket) SetLimits(limits ...Limit) error {
	if err := Limits(limits).Validate(); err != nil {
		return err
	}
	if len(limits) != len(b.states) {
		return fmt.Errorf("%w: %d limits for a bucket of %d: pass one for each, in the order of Limits", ErrInvalidLimit, len(limits), len(b.states))
	}
	_, at := b.lock()
	defer b.mu.Unlock()
	at = max(at, b.opens)
	for i, l := range limits {
		if l == b.limits[i] {
			continue // its ledger need not round
		}
		b.states[i] = State{Balance: min(l.Capacity, b.limits[i].level(b.states[i], at)), Anchor: at}
	}
	b.limits = slices.Clone(limits)
	b.dismissLocked()
	b.replanLocked()
	return nil
}

// Limits returns the limits, New's first, then those of WithLimit in order.
func (b *Bucket) Limits() []Limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.limits)
}

// State returns what the bucket remembers, a state for each limit, and the origin
// from which their instants are counted, for WithState. The queue is not part of it.
func (b *Bucket) State() (origin time.Time, states []State) {
	b.lock()
	defer b.mu.Unlock()
	return b.time.Origin, slices.Clone(b.states)
}

// Latest returns the latest reading of the clock, since the origin that State
// returns, for WithLatest. It is later than the present one if the clock stepped back.
func (b *Bucket) Latest() time.Duration {
	_, latest := b.lock()
	defer b.mu.Unlock()
	return latest
}

// Tokens returns what is left for a newcomer, in tokens: below zero in debt or
// behind a queue. With several limits it is the least of the levels. It may have
// changed by the time it returns; to take tokens, call TryAcquire.
func (b *Bucket) Tokens() float64 {
	_, at := b.lock()
	defer b.mu.Unlock()
	least := math.Inf(1)
	for i := range b.limits {
		least = min(least, b.tokensLocked(i, at))
	}
	if len(b.limits) == 0 {
		return 0
	}
	return least
}

// Waiting returns how many waiters are queued or in WaitPause, their timers set, and
// how many reservations are not yet due. A test with a mock clock polls it before it
// advances the clock.
func (b *Bucket) Waiting() int {
	b.lock()
	defer b.mu.Unlock()
	waiting := b.sleepingHoldsLocked()
	for w := b.queue.head; w != nil; w = w.next {
		if w.nudges == nil || w.asleep && w.alarm > b.latest {
			waiting++
		}
	}
	return waiting
}

// lock locks the bucket, closes the epoch, and takes note of a reading of the clock that
// is not earlier than those by which the epoch decided.
func (b *Bucket) lock() (now, at time.Duration) {
	now = b.time.Now()
	b.mu.Lock()
	if e := b.epoch.Load(); e != nil {
		b.epoch.Store(nil)
		e.appendStates(b.states[:0], e.spent.Swap(epochOver))
		b.steady.decisions = 0
		now = b.time.Now()
	}
	return now, b.advanceLocked(now)
}

// advanceLocked takes note of a reading of the clock, serves whoever is due, and
// returns the instant that the reading counts as. Goroutines read the clock in one
// order and get the lock in another, and clocks step back: an earlier reading
// counts as the latest one, so that nothing is minted and no part of a burst refused.
func (b *Bucket) advanceLocked(now time.Duration) time.Duration {
	b.latest = max(b.latest, now)
	if b.queue.head != nil {
		b.serveLocked()
	}
	return b.latest
}

// isOpenLocked reports whether a request is a matter of the states alone: nobody
// is queued and no pause lasts.
func (b *Bucket) isOpenLocked(at time.Duration) bool {
	return b.queue.head == nil && at >= b.opens
}

// quoteLocked returns how long a newcomer would have to wait behind the queue and
// any pause, told from now itself even where that counts as a later instant.
func (b *Bucket) quoteLocked(now time.Duration, cost float64) time.Duration {
	if cost == 0 {
		return 0
	}
	b.planLocked(nil)
	return timeline.Until(now, timeline.Later(b.plan.at, b.limits.wait(b.plan.states, b.plan.at, cost)))
}

// decideLocked is quoteLocked with everything a header needs.
func (b *Bucket) decideLocked(now, at time.Duration, cost float64) Decision {
	wait := b.quoteLocked(now, cost)
	d := Decision{OK: wait == 0, Wait: wait, paused: timeline.Until(now, b.opens), queued: b.queue.head != nil}
	b.planLocked(nil)
	d.LimitIndex = b.limits.binding(b.plan.states, b.plan.at, cost)
	if d.LimitIndex >= 0 {
		d.Limit = b.limits[d.LimitIndex]
		d.Tokens = b.tokensLocked(d.LimitIndex, at)
	}
	return d
}

// tokensLocked returns what one limit leaves for a newcomer: its level, less what
// is queued for.
func (b *Bucket) tokensLocked(limit int, at time.Duration) float64 {
	b.planLocked(nil)
	return b.limits[limit].Tokens(b.states[limit], max(at, b.opens)) - b.plan.queued
}

// admitOrQueue takes the cost and returns no waiter, or queues one.
func (b *Bucket) admitOrQueue(ctx context.Context, cost float64) (*waiter, error) {
	if a, decided := b.epoch.Load().take(&b.time, cost); decided && a.ok {
		return nil, nil
	}
	now, at := b.lock()
	defer b.mu.Unlock()
	w, err := b.admitOrQueueLocked(ctx, now, at, cost)
	if w != nil {
		w.nudges = make(chan struct{}, 1)
		w.alarm = w.due
	}
	return w, err
}

func (b *Bucket) admitOrQueueLocked(ctx context.Context, now, at time.Duration, cost float64) (*waiter, error) {
	if err := checkCost(cost, b.limits.capacity()); err != nil {
		return nil, err
	}
	if b.isOpenLocked(at) {
		if _, ok := b.limits.TryAcquire(b.states, at, cost); ok {
			b.openEpochLocked(now, cost)
			return nil, nil
		}
	}
	wait := b.quoteLocked(now, cost)
	if wait == 0 {
		return nil, nil
	}
	if deadline, ok := ctx.Deadline(); ok && (wait == Never || wait-(b.time.Now()-now) > b.time.Left(deadline)) {
		return nil, &DeadlineError{wait}
	}
	if b.queue.len >= b.maxWaiters {
		return nil, fmt.Errorf("%w: %d are queued already: retry later or raise WithMaxWaiters", ErrTooManyWaiters, b.queue.len)
	}
	w := &waiter{cost: cost}
	b.queue.push(w)
	b.planLocked(w)
	return w, nil
}

// setTimer sets the timer of a waiter that is about to sleep. It calls the clock
// without the lock: some mocks run what is due before they answer.
func (b *Bucket) setTimer(w *waiter) <-chan time.Time {
	var timer <-chan time.Time
	if w.alarm != Never {
		timer = b.startTimer(w.alarm)
	}
	b.mu.Lock()
	w.asleep = len(w.nudges) == 0 // with a nudge ahead it is about to set another
	b.mu.Unlock()
	return timer
}

// startTimer returns what rings at an instant. A mock may move between being read
// and being asked for a timer, which then rings too late: it is asked again. Nor
// does every mock's After(0) ring.
func (b *Bucket) startTimer(at time.Duration) (timer <-chan time.Time) {
	for range 3 { // another clock than a mock moves all the time
		now := b.time.Now()
		if at <= now {
			due := make(chan time.Time)
			close(due)
			return due
		}
		timer = b.time.After(timeline.Until(now, at))
		if b.time.Clock == nil || b.time.Now() == now {
			break
		}
	}
	return timer
}

// wakeUp lets a waiter that woke see whether it is its turn. It leaves with nil
// if it was granted its cost, whoever served it; otherwise with an error, or it
// has to set another timer.
func (b *Bucket) wakeUp(ctx context.Context, w *waiter) (left bool, err error) {
	b.lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil && !w.left {
		b.abandonLocked(w, err)
	}
	if !w.left {
		b.planLocked(w)
		w.asleep, w.alarm = false, w.due
	}
	return w.left, w.err
}
