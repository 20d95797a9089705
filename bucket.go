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
	time  timeline.Timeline
	epoch atomic.Pointer[epoch] // nil: the lock decides
	_     [16]byte              // so that what each decision writes is one cache line, and what is above another

	mu    sync.Mutex
	busy  busy // starts an epoch
	queue queue
	holds map[*hold]struct{} // callers of WaitPause
	_     [24]byte           // so that Buckets begin with a cache line
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
	b := &Bucket{time: timeline.Start(c.clock)}
	b.queue.init(c.limits, max(0, c.latest), c.maxWaiters)
	if c.resume != nil {
		b.time = timeline.Resume(c.clock, c.resume.origin)
		b.queue.resume(b.time.Now(), c.resume.states)
	} else if c.tokens != nil {
		b.queue.lower(*c.tokens)
	}
	return b, nil
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
	return b.tryAcquire(price{all: cost})
}

func (b *Bucket) tryAcquire(p price) (wait time.Duration, ok bool) {
	now := b.lock()
	wait, ok = b.queue.tryAcquire(now, p)
	b.noteDecisionLocked(now, p)
	b.mu.Unlock()
	return wait, ok
}

// Take is TryAcquire with everything a header needs.
func (b *Bucket) Take(cost float64) (d Decision) {
	e := b.epoch.Load()
	if a, decided := e.take(&b.time, cost); decided {
		var few [2]State
		d.OK, d.Wait = a.ok, a.wait
		e.limits.describe(&d, e.appendStates(few[:0], a.word), a.now, price{all: cost})
		return d
	}
	b.take(&d, price{all: cost})
	return d
}

func (b *Bucket) take(d *Decision, p price) {
	now := b.lock()
	b.queue.take(d, now, p)
	b.noteDecisionLocked(now, p)
	b.mu.Unlock()
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
//
// A long queue does not make Wait slower, but the first call after a Charge, a Refund, a
// Pause, a Fill, a SetLimits, or after a waiter ahead gave up, works out the turns of the
// whole queue anew: its time grows with the number of waiters, and other callers of the
// bucket wait for it. Use WithMaxWaiters where callers are not trusted.
func (b *Bucket) Wait(ctx context.Context, cost float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a, decided := b.epoch.Load().take(&b.time, cost); decided && a.ok {
		return nil
	}
	return b.wait(ctx, price{all: cost})
}

func (b *Bucket) wait(ctx context.Context, p price) error {
	w, err := b.admitOrQueue(ctx, p, true)
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
// As with Wait, the first call after the turns of the queue changed takes a time that grows
// with the number of waiters and reservations: use WithMaxWaiters where callers are not trusted.
//
// It is for callers that do their own sleeping; Wait is simpler.
func (b *Bucket) Reserve(cost float64) (*Reservation, error) {
	return b.reserve(price{all: cost})
}

func (b *Bucket) reserve(p price) (*Reservation, error) {
	w, err := b.admitOrQueue(context.Background(), p, false)
	if err != nil {
		return nil, err
	}
	return &Reservation{b, w}, nil
}

// Refund gives tokens back, up to the capacity, and then serves the queue from
// what is there. It returns ErrInvalidCost unless the cost is finite and at least 0.
func (b *Bucket) Refund(cost float64) error {
	return b.refund(price{all: cost})
}

func (b *Bucket) refund(p price) error {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.refund(now, p)
}

// Charge takes the cost, in tokens, whether it is there or not: the level may fall
// below zero, and everyone queued waits for longer. It is for costs that are known
// only afterwards. It returns ErrInvalidCost unless the cost is finite and at least 0.
func (b *Bucket) Charge(cost float64) error {
	return b.charge(price{all: cost})
}

func (b *Bucket) charge(p price) error {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.charge(now, p)
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
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.pause(now, d)
}

// Fill makes the bucket full, as if new: debts are forgiven and a pause ends. Then
// the queue is served from what is there.
func (b *Bucket) Fill() {
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.fill(now)
	b.nudgeHoldsLocked()
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
	if n := len(b.queue.states); len(limits) != n { // their number never changes
		return fmt.Errorf("%w: %d limits for a bucket of %d: pass one for each, in the order of Limits", ErrInvalidLimit, len(limits), n)
	}
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.setLimits(now, limits)
	return nil
}

// Limits returns the limits, New's first, then those of WithLimit in order.
func (b *Bucket) Limits() []Limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.queue.limits)
}

// State returns what the bucket remembers, a state for each limit, and the origin
// from which their instants are counted, for WithState. The queue is not part of it.
func (b *Bucket) State() (origin time.Time, states []State) {
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.advance(now)
	return b.time.Origin, slices.Clone(b.queue.states)
}

// Latest returns the latest reading of the clock, since the origin that State
// returns, for WithLatest. It is later than the present one if the clock stepped back.
func (b *Bucket) Latest() time.Duration {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.advance(now)
}

// Tokens returns what is left for a newcomer, in tokens: below zero in debt or
// behind a queue. With several limits it is the least of the levels. It may have
// changed by the time it returns; to take tokens, call TryAcquire.
func (b *Bucket) Tokens() float64 {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.tokens(now)
}

// Waiting returns how many waiters are queued or in WaitPause, their timers set, and
// how many reservations are not yet due. A test with a mock clock polls it before it
// advances the clock.
func (b *Bucket) Waiting() int {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.waiting(now) + b.sleepingHoldsLocked()
}

// lock locks the bucket, ends the epoch, and returns a reading of the clock that is
// not earlier than those by which the epoch decided.
func (b *Bucket) lock() (now time.Duration) {
	now = b.time.Now()
	b.mu.Lock()
	if e := b.epoch.Load(); e != nil {
		b.epoch.Store(nil)
		e.end(b.queue.states)
		now = b.time.Now()
	}
	return now
}

// admitOrQueue takes the price and returns no waiter, or queues one: a sleeper, or a
// reservation.
func (b *Bucket) admitOrQueue(ctx context.Context, p price, sleeps bool) (*waiter, error) {
	now := b.lock()
	defer b.mu.Unlock()
	if err := b.queue.limits.check(p); err != nil {
		return nil, err
	}
	if _, ok := b.queue.tryAcquire(now, p); ok {
		b.noteDecisionLocked(now, p)
		return nil, nil
	}
	wait := b.queue.wait(now, p) // Never if the turn would come after the end of time
	if deadline, ok := ctx.Deadline(); ok && (wait == Never || wait-(b.time.Now()-now) > b.time.Left(deadline)) {
		return nil, &DeadlineError{wait}
	}
	var nudges chan struct{}
	if sleeps {
		nudges = make(chan struct{}, 1)
	}
	return b.queue.push(now, p, nudges)
}

// setTimer sets the timer of a waiter that is about to sleep. It calls the clock
// without the lock: some mocks run what is due before they answer.
func (b *Bucket) setTimer(w *waiter) <-chan time.Time {
	var timer <-chan time.Time
	if w.alarm != Never {
		timer = b.startTimer(w.alarm)
	}
	b.mu.Lock()
	b.queue.sleep(w)
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
	now := b.lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		b.queue.abandon(now, w, err)
	}
	b.queue.wakeUp(now, w)
	return w.left, w.err
}
