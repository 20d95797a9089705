// Package tokenbucket limits rates with token buckets. Its answers are exact:
//
//   - A refusal returns, to the nanosecond, the wait after which the same request would be admitted.
//   - Waiters are served in order of arrival, each at the first instant at which the bucket
//     holds its cost.
//   - No sequence of requests gets more than capacity + refill * time.
//
// A [Bucket] holds tokens up to a capacity, starts full, and refills continuously. Each
// request costs a number of tokens. The number of tokens in the bucket is its level; a
// bucket whose level is below zero is in debt. Most callers want [Bucket.TryAcquire],
// to refuse requests that come too fast, or [Bucket.Wait], to slow them down.
// [Limit.Take] does only the arithmetic, for callers that store the [State] themselves.
//
// Package keyed holds one bucket for each of millions of keys. Package httplimit puts
// buckets in front of a net/http handler or behind an http.Client. Package iolimit
// limits bytes per second. Module redisbucket shares buckets between machines.
// golang.org/x/time/rate is enough if all costs are whole numbers, callers need not know
// how long to wait, and no waiting caller gives up.
package tokenbucket

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/sleeper"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// Never is returned as the wait if no wait would be long enough, for example for a cost
// above the capacity. It also stands for any wait that is longer than a time.Duration
// can express (292 years).
const Never time.Duration = math.MaxInt64

// Bucket is a token bucket with one limit, or with several limits that each request
// has to meet at once. Most callers want TryAcquire or Wait.
//
// The queue is served strictly in order of arrival: while a caller waits, no later
// request is admitted unless it costs 0. A waiter holds no tokens until it is served.
// No goroutine runs in the background.
//
// A Bucket may be used by any number of goroutines. With the system clock and under load,
// TryAcquire, Take and Wait usually take no lock for costs that are whole numbers. A
// Bucket must not be copied. The zero Bucket admits only a cost of 0: call New.
type Bucket struct {
	time  timeline.Timeline
	epoch atomic.Pointer[epoch] // nil: the lock decides
	_     [16]byte              // ends a cache line: the fields above are mostly read, those below are written under the lock

	mu    sync.Mutex
	busy  busy // counts decisions until an epoch starts
	queue queue
	holds map[*hold]struct{} // callers of WaitPause
	_     [32]byte           // makes the size a multiple of a cache line
}

// New returns a bucket, which is full unless an option says otherwise. It returns
// ErrInvalidLimit or ErrInvalidOption for numbers out of range, and ErrInvalidOption for a nil
// option.
func New(limit Limit, opts ...Option) (*Bucket, error) {
	c := config{limits: Limits{limit}, maxWaiters: math.MaxInt}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: option %d is nil: leave it out", ErrInvalidOption, i)
		}
		opt(&c)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	b := &Bucket{time: timeline.Start(c.clock)}
	b.queue.init(c.limits, min(max(0, c.latest), timeline.End), c.maxWaiters)
	if c.resume != nil {
		b.time = timeline.Resume(c.clock, c.resume.origin)
		b.queue.resume(b.time.Now(), c.resume.states)
	} else if c.tokens != nil {
		b.queue.lower(*c.tokens)
	}
	return b, nil
}

// MustNew is like New, but panics if New would return an error. It is for package
// variables.
func MustNew(limit Limit, opts ...Option) *Bucket {
	b, err := New(limit, opts...)
	if err != nil {
		panic(err)
	}
	return b
}

// TryAcquire takes the cost, in tokens, if the bucket holds that many and no caller
// waits. Otherwise it takes nothing and returns the wait after which the same request
// would be admitted if no further request came. The wait counts all callers in the queue.
// It is Never for a cost that is negative, NaN or above the capacity.
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

// Take is like TryAcquire, but returns a Decision, which has all that response headers
// need.
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

// Wait takes the cost, in tokens, as soon as the bucket holds that many and all earlier
// callers have left. It returns nil if and only if the cost was taken. Otherwise it took
// nothing and returns one of these errors:
//
//   - the context's error if the context is done, before or while waiting; the waiters behind move up at once
//   - ErrInvalidCost if the cost is negative or NaN
//   - ErrCostExceedsCapacity if the cost is above the capacity, from the start or after SetLimits
//   - a *DeadlineError, at once, if the wait would outlast the context's deadline
//   - ErrTooManyWaiters, at once, if as many waiters are queued as WithMaxWaiters allows
//
// With WithClock, the deadline may be in the time of that clock or in real time. So Wait
// computes the time left by both clocks, and the longer one counts.
//
// The work of Wait does not grow with the length of the queue, with one exception. After a
// Charge, Refund, Pause, Fill or SetLimits, or after a waiter ahead gave up, the first call
// computes the due times of all waiters again. Its time grows with the number of waiters, and
// other callers of the bucket are blocked meanwhile. Use WithMaxWaiters if callers are not
// trusted.
func (b *Bucket) Wait(ctx context.Context, cost float64) error {
	_, err := b.waitAgain(ctx, cost, nil)
	return err
}

// waitAgain is like Wait, but uses a waiter again: pass the one that an earlier call
// returned, or nil. It returns the waiter for the next call.
func (b *Bucket) waitAgain(ctx context.Context, cost float64, kept *waiter) (*waiter, error) {
	if err := ctx.Err(); err != nil {
		return kept, err
	}
	if a, decided := b.epoch.Load().take(&b.time, cost); decided && a.ok {
		return kept, nil
	}
	return b.wait(ctx, price{all: cost}, kept)
}

// Package iolimit waits through this function, so that a stream uses its waiter again.
func init() {
	sleeper.Use(func(ctx context.Context, bucket any, cost float64, kept any) (any, error) {
		w, _ := kept.(*waiter)
		return bucket.(*Bucket).waitAgain(ctx, cost, w)
	})
}

func (b *Bucket) wait(ctx context.Context, p price, kept *waiter) (*waiter, error) {
	w, err := b.admitOrQueue(ctx, p, kept, true)
	if w == nil {
		return kept, err
	}
	for {
		select {
		case <-b.setTimer(w):
		case <-w.nudges:
		case <-ctx.Done():
		}
		if left, err := b.wakeUp(ctx, w); left {
			return w, err
		}
	}
}

// Reserve takes a place in the queue. The cost, in tokens, is taken when the reservation
// is due: at once if the bucket holds that many and no caller waits. Reserve returns
// ErrInvalidCost, ErrCostExceedsCapacity and ErrTooManyWaiters as Wait does.
//
// Some calls are slow, as Wait describes: their time grows with the number of waiters and
// reservations. Use WithMaxWaiters if callers are not trusted.
//
// Reserve is for callers that sleep by themselves; Wait is simpler.
func (b *Bucket) Reserve(cost float64) (*Reservation, error) {
	return b.reserve(price{all: cost})
}

func (b *Bucket) reserve(p price) (*Reservation, error) {
	w, err := b.admitOrQueue(context.Background(), p, nil, false)
	if err != nil {
		return nil, err
	}
	return &Reservation{b, w}, nil
}

// Refund gives tokens back, up to the capacity, and then serves the queue. It returns
// ErrInvalidCost unless the cost, in tokens, is finite and at least 0.
func (b *Bucket) Refund(cost float64) error {
	return b.refund(price{all: cost})
}

func (b *Bucket) refund(p price) error {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.refund(now, p)
}

// Charge takes the cost, in tokens, even if the bucket holds fewer. The level may fall
// below zero, and then all waiters wait longer. Charge is for costs that are known only
// after the work is done. It returns ErrInvalidCost unless the cost is finite and at
// least 0.
func (b *Bucket) Charge(cost float64) error {
	return b.charge(price{all: cost})
}

func (b *Bucket) charge(p price) error {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.charge(now, p)
}

// Pause empties the bucket and closes it for d. Until d has passed, only a cost of 0 is
// admitted, and nothing is refilled. Debt stays. Tokens that are refunded during the pause
// can be taken when it ends. Pause does not shorten a pause that ends later. A pause of
// Never does not end by itself; a d of 0 or less does nothing.
//
// A client calls Pause when a server asks it to retry after d.
func (b *Bucket) Pause(d time.Duration) {
	if d <= 0 {
		return
	}
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.pause(now, d)
}

// Fill makes the bucket full, as a new one is: it removes debt and ends a pause. Then it
// serves the queue.
func (b *Bucket) Fill() {
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.fill(now)
	b.nudgeHoldsLocked()
}

// SetLimits replaces the limits. Pass one new limit for each limit of the bucket, in the
// order of Limits. The tokens in the bucket stay, up to the new capacity, and so does debt.
// Waiters whose cost is above the new capacity get ErrCostExceedsCapacity. SetLimits
// returns ErrInvalidLimit, and changes nothing, if a limit is invalid or the number of
// limits differs.
func (b *Bucket) SetLimits(limits ...Limit) error {
	if err := Limits(limits).Validate(); err != nil {
		return err
	}
	if n := len(b.queue.states); len(limits) != n { // their number never changes
		return fmt.Errorf("%w: %d limits for a bucket with %d: pass as many as Limits returns, in that order", ErrInvalidLimit, len(limits), n)
	}
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.setLimits(now, limits)
	return nil
}

// Limits returns a copy of the limits: the one given to New, then those of WithLimit in
// order.
func (b *Bucket) Limits() []Limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.queue.limits)
}

// Capacity returns the largest cost that the bucket can admit, in tokens: the least capacity
// of its limits, 0 for the zero Bucket. Work that costs more has to be split. Capacity
// allocates nothing. SetLimits may change the capacity before Capacity returns.
func (b *Bucket) Capacity() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue.limits.capacity()
}

// State returns the states, one for each limit, and the origin from which their instants
// are counted. WithState makes a bucket that continues from them. The queue is not part of
// the state.
func (b *Bucket) State() (origin time.Time, states []State) {
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.advance(now)
	return b.time.Origin, slices.Clone(b.queue.states)
}

// Latest returns the latest reading of the clock, for WithLatest. The reading counts
// from the origin that State returns. The reading is later than the present one if the
// clock stepped back.
func (b *Bucket) Latest() time.Duration {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.advance(now)
}

// Tokens returns the number of tokens that are left for the next request: the level minus
// the costs of all callers in the queue. The number may be below zero: in debt, or while
// callers wait. With several limits, Tokens returns the least of these numbers. Other
// callers may change the number before Tokens returns; to take tokens, call TryAcquire.
func (b *Bucket) Tokens() float64 {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.tokens(now)
}

// Waiting returns the number of callers that sleep in Wait or WaitPause, with their timers
// set, plus the number of reservations that are not yet due. A test with a mock clock polls
// Waiting before it advances the clock.
func (b *Bucket) Waiting() int {
	now := b.lock()
	defer b.mu.Unlock()
	return b.queue.waiting(now) + b.sleepingHoldsLocked()
}

// lock locks the bucket, ends the epoch, and returns a reading of the clock. The reading is
// not earlier than the readings of the epoch's decisions, because the clock is read again
// after the epoch has ended. It is stored for the callers that wait for the lock: they may
// have read the clock before those decisions.
func (b *Bucket) lock() (now time.Duration) {
	now = b.time.Now()
	b.mu.Lock()
	if e := b.epoch.Load(); e != nil {
		b.epoch.Store(nil)
		e.end(b.queue.states)
		now = b.queue.advance(b.time.Now())
	}
	return now
}

// admitOrQueue takes the price and returns nil, or queues a waiter and returns it: w, or a new
// one if w is nil. The waiter is a reservation unless it sleeps in Wait.
func (b *Bucket) admitOrQueue(ctx context.Context, p price, w *waiter, sleeps bool) (*waiter, error) {
	now := b.lock()
	defer b.mu.Unlock()
	if err := b.queue.limits.check(p); err != nil {
		return nil, err
	}
	if _, ok := b.queue.tryAcquire(now, p); ok {
		b.noteDecisionLocked(now, p)
		return nil, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		wait := b.queue.wait(now, p) // Never if the turn would come after the end of time
		// wait counts from now, but the time left from the present. The lock was taken in between.
		if wait == Never || wait-(b.time.Now()-now) > b.time.Left(deadline) {
			return nil, &DeadlineError{wait}
		}
	}
	if n := b.queue.len; n >= b.queue.maxLen {
		return nil, fmt.Errorf("%w: %d are queued already: retry later or raise WithMaxWaiters", ErrTooManyWaiters, n)
	}
	if w == nil {
		w = newWaiter(sleeps)
	}
	b.busy.decisions = -decisionsAfterQueue
	b.queue.push(now, p, w)
	return w, nil
}

// setTimer sets the timer of a waiter that is about to sleep. It calls the clock without
// the lock, because some mocks run callbacks before After returns. It also reads w.alarm
// without the lock: after push, only the goroutine that sleeps writes it.
func (b *Bucket) setTimer(w *waiter) <-chan time.Time {
	var timer <-chan time.Time
	if w.alarm != Never {
		timer = b.startTimer(w.alarm, &w.timer)
	}
	b.mu.Lock()
	b.queue.sleep(w)
	b.mu.Unlock()
	return timer
}

// startTimer returns a channel that receives at an instant. If a mock clock moves between
// its reading and the call of After, the timer would ring too late, so startTimer asks for
// another one. An instant in the past gets a closed channel, because After(0) of some mocks
// never rings. The system clock's timer is kept and used again.
func (b *Bucket) startTimer(at time.Duration, kept **time.Timer) (timer <-chan time.Time) {
	for range 3 { // two readings of a running clock always differ, so the tries are bounded
		now := b.time.Now()
		if at <= now {
			due := make(chan time.Time)
			close(due)
			return due
		}
		timer = b.time.After(timeline.Until(now, at), kept)
		if b.time.Clock == nil || b.time.Now() == now {
			break
		}
	}
	return timer
}

// wakeUp reports whether a waiter that woke has left the queue: with a nil error if its cost
// was granted, by this call or by another one. If it has not left, it has to set another
// timer.
func (b *Bucket) wakeUp(ctx context.Context, w *waiter) (left bool, err error) {
	now := b.lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		b.queue.abandon(now, w, err)
	}
	b.queue.wakeUp(now, w)
	return w.left, w.err
}
