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
	"errors"
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

// Errors to match with errors.Is; what is returned wraps them with the numbers
// that offend. Whichever comes back, nothing was taken and nothing was changed.
var (
	ErrInvalidLimit        = errors.New("tokenbucket: invalid limit")
	ErrInvalidCost         = errors.New("tokenbucket: invalid cost")
	ErrInvalidOption       = errors.New("tokenbucket: invalid option")
	ErrCostExceedsCapacity = errors.New("tokenbucket: cost exceeds the capacity")
	ErrTooManyWaiters      = errors.New("tokenbucket: too many waiters")
)

// DeadlineError says that a wait would outlast the context's deadline. Nothing
// was taken. It unwraps to context.DeadlineExceeded.
type DeadlineError struct {
	Wait time.Duration // what the request would have had to wait
}

func (e *DeadlineError) Error() string {
	if e.Wait == Never {
		return "tokenbucket: the wait would never end, but the context has a deadline: wait without one for the limits to change"
	}
	return fmt.Sprintf("tokenbucket: the wait of %v would outlast the context's deadline: allow more time or retry after the wait", e.Wait)
}

// Unwrap returns context.DeadlineExceeded.
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// Timeout returns true, as net.Error has it.
func (e *DeadlineError) Timeout() bool { return true }

// Limit is the shape of a bucket. Its methods are the arithmetic, pure: they
// depend on their arguments alone, and may be called by any number of goroutines.
// All instants are counted from the same origin, which is the caller's to choose.
//
// The zero Limit is invalid: it admits nothing but a cost of 0.
type Limit struct {
	Capacity     float64 // tokens, above 0, at most 2^42
	RefillPerSec float64 // tokens per second, above 0
}

const maxCapacity = 1 << 42

// PerSecond returns Per(n, time.Second).
func PerSecond(n float64) Limit { return Per(n, time.Second) }

// PerMinute returns Per(n, time.Minute).
func PerMinute(n float64) Limit { return Per(n, time.Minute) }

// PerHour returns Per(n, time.Hour).
func PerHour(n float64) Limit { return Per(n, time.Hour) }

// Per returns a limit of n tokens per d on average: capacity n, refill n over d. A
// full bucket plus what is refilled meanwhile passes up to 2n in one window of d;
// where n in any window is a promise, use Within. Numbers that are not above 0
// yield a limit that Validate refuses.
func Per(n float64, d time.Duration) Limit {
	return Limit{Capacity: n, RefillPerSec: perSec(n, d)}
}

// Within returns a limit that never passes more than n tokens in any window of
// length d, wherever it starts: capacity burst, refill n - burst over d. The
// smaller the burst, in tokens, the nearer the rate comes to n over d. A burst
// that is not above 0 and below n, or a d of 0 or less, yields a limit that
// Validate refuses.
//
// That is by the instants at which tokens are granted. A waiter whose timer is late
// is granted its tokens as of the instant they fell due, so when a process stalls
// its backlog leaves at once: whoever is banned for good by another's clock keeps
// the queue short, or n smaller than allowed.
func Within(n float64, d time.Duration, burst float64) Limit {
	return Limit{Capacity: burst, RefillPerSec: perSec(n-burst, d)}
}

func perSec(tokens float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return tokens * 1e9 / float64(d.Nanoseconds())
}

// Validate returns nil, or an ErrInvalidLimit that says what to change.
func (l Limit) Validate() error {
	switch {
	case !(l.Capacity > 0 && l.Capacity <= maxCapacity):
		return fmt.Errorf("%w: capacity %v: choose one above 0 and at most 2^42 tokens", ErrInvalidLimit, l.Capacity)
	case !(l.RefillPerSec > 0 && l.RefillPerSec <= math.MaxFloat64):
		return fmt.Errorf("%w: refill %v: choose a finite one above 0 tokens per second", ErrInvalidLimit, l.RefillPerSec)
	default:
		return nil
	}
}

// State is all that a bucket remembers. It is a ledger: while the bucket is below
// its capacity, spending only lowers Balance and Anchor stays, so the balance may
// be far below zero while the level is not.
//
//	level = min(Capacity, Balance + (now - Anchor) * RefillPerSec)
//
// It is tempting to keep the level itself and the instant of the last request.
// But then every request rounds the level anew, and the errors add up; this way
// one multiplication and one division lead from whole nanoseconds to the level,
// however many requests there were. Only the costs are still added up: exactly
// while they have few binary digits, as whole numbers, halves and quarters do;
// where they do not, the balance rounds in its last place.
//
// Debts stop growing at a balance of -2^960, about -1e289 tokens. What is deeper is
// no state of a bucket.
//
// The zero State is an empty bucket at the origin; [Limit.Full] makes a full one.
type State struct {
	Balance float64       // tokens at Anchor, less what was spent since
	Anchor  time.Duration // since the origin
}

// elapsed returns the nanoseconds from the anchor to now. An instant before the
// anchor counts as the anchor: clocks step back, and nothing is minted then.
func (s State) elapsed(now time.Duration) uint64 {
	if now <= s.Anchor {
		return 0
	}
	return uint64(now) - uint64(s.Anchor)
}

// Full returns the state of a bucket that is full now.
func (l Limit) Full(now time.Duration) State {
	return State{Balance: l.Capacity, Anchor: now}
}

// IsFull reports whether a bucket has had time to fill by now. It then is the
// same as Full(now), so that forgetting it loses nothing.
func (l Limit) IsFull(s State, now time.Duration) bool {
	return l.gain(s.elapsed(now)) >= l.need(s, l.Capacity)
}

func (l Limit) untilFull(s State, now time.Duration) time.Duration {
	return l.until(s, now, l.need(s, l.Capacity))
}

// Tokens returns the level at now; below 0 it is debt. A level that pays for a
// whole number of tokens is told as that number, whatever its last bits.
func (l Limit) Tokens(s State, now time.Duration) float64 {
	return l.wholeTokens(s, now)
}

// Take admits a request of the given cost at now and returns the state after it,
// or refuses it and returns the state as it was. A refusal's Wait is the least
// whole number of nanoseconds after which the same request would be admitted if
// nothing else were taken: at 1 ns less it would still be refused.
//
// A cost of 0 is always admitted. A cost that is negative, NaN or above the
// capacity never is.
func (l Limit) Take(s State, now time.Duration, cost float64) (State, Decision) {
	limits, states := [1]Limit{l}, [1]State{s}
	d := Limits(limits[:]).Take(states[:], now, cost)
	return states[0], d
}

// tolerance, relative to the larger of capacity and balance, is a shortfall that
// counts as none: the level and the cost are sums of rounded numbers, and 0.3 is
// to pay for 0.1 three times. What is borrowed so stays in the ledger.
const tolerance = 1.0 / (1 << 50)

func (l Limit) slack(s State) float64 {
	if -s.Balance > l.Capacity {
		return float64(tolerance * -s.Balance)
	}
	return float64(tolerance * l.Capacity)
}

// gain returns a billion times the tokens that so many nanoseconds bring, cap or
// no cap: a product that is exact for ordinary numbers.
func (l Limit) gain(elapsed uint64) float64 {
	return float64(elapsed) * l.RefillPerSec
}

// need returns the gain that lifts the balance to a level. To compare the two is
// as exact as to compare levels, and does without a division.
func (l Limit) need(s State, level float64) float64 {
	return (level - s.Balance) * 1e9
}

func (l Limit) level(s State, now time.Duration) float64 {
	return min(l.Capacity, s.Balance+l.gain(s.elapsed(now))/1e9)
}

// wholeTokens returns the level, or the largest whole number that it pays for.
func (l Limit) wholeTokens(s State, now time.Duration) float64 {
	level := l.level(s, now)
	paid, refused := math.Floor(level)+1, math.Floor(l.Capacity)+1
	if paid >= refused || !l.pays(s, now, paid) {
		return level
	}
	for { // many tokens are within the tolerance of a deep debt
		middle := math.Floor((paid + refused) / 2)
		switch {
		case middle <= paid || middle >= refused:
			return paid
		case l.pays(s, now, middle):
			paid = middle
		default:
			refused = middle
		}
	}
}

// pays is the admission test for a cost above 0 and up to the capacity.
func (l Limit) pays(s State, now time.Duration, cost float64) bool {
	return l.gain(s.elapsed(now)) >= l.need(s, cost-l.slack(s))
}

// wait returns 0 if a cost is admitted at now, else the least wait after which it is.
func (l Limit) wait(s State, now time.Duration, cost float64) time.Duration {
	switch {
	case cost == 0:
		return 0
	case !(cost > 0 && cost <= l.Capacity):
		return Never
	default:
		return l.until(s, now, l.need(s, cost-l.slack(s)))
	}
}

// until returns the least wait after which the gain is what is needed, 0 if it is.
func (l Limit) until(s State, now time.Duration, need float64) time.Duration {
	elapsed := s.elapsed(now)
	if l.gain(elapsed) >= need {
		return 0
	}
	return timeline.Later(l.search(elapsed, need), timeline.Until(now, s.Anchor))
}

// search returns the least wait after which the gain is what is needed, if it is not yet:
//
//	ceil(need / RefillPerSec) - elapsed
//
// It is tempting to return just that, but it is off by a nanosecond now and then.
// It is an estimate here; the comparison that admits decides.
func (l Limit) search(elapsed uint64, need float64) time.Duration {
	least := uint64(int64(math.Ceil(need / l.RefillPerSec))) // if out of range, anything
	if least > elapsed && l.gain(least-1) < need && l.gain(least) >= need {
		return time.Duration(least - elapsed)
	}
	refused, admitted := uint64(0), min(uint64(Never), math.MaxUint64-elapsed) // to the end of time
	if l.gain(elapsed+admitted) < need {
		return Never
	}
	for admitted-refused > 1 {
		middle := refused + (admitted-refused)/2
		if l.gain(elapsed+middle) >= need {
			admitted = middle
		} else {
			refused = middle
		}
	}
	return time.Duration(admitted)
}

// Precision thins as the ledger grows away from its anchor. Beyond these it is
// anchored anew at the present level.
const (
	maxElapsed = 1 << 46 // ns, 19 hours: whole nanoseconds times refill stay exact
	maxDebt    = 1 << 10 // capacities: one token of 2^42 is not lost in 2^52
)

// leastBalance keeps what a debt needs, 1e9 times as much, a finite number.
const leastBalance = -0x1p960

// spend returns the state after a cost has been taken at now, whatever the level.
func (l Limit) spend(s State, now time.Duration, cost float64) State {
	if l.IsFull(s, now) {
		s = l.Full(max(now, s.Anchor))
	} else if l.isFar(s, now) {
		s = l.reanchor(s, now)
	}
	s.Balance -= cost
	return s
}

// isFar reports whether a ledger has grown so far away from its anchor.
func (l Limit) isFar(s State, now time.Duration) bool {
	return s.elapsed(now) > maxElapsed || s.Balance < -maxDebt*l.Capacity
}

// reanchor anchors a state at its present level, where that gains precision. A
// debt that deep in the level itself is left alone until half of it is paid:
// anchoring it again at each request would round at each request.
func (l Limit) reanchor(s State, now time.Duration) State {
	level := l.level(s, now)
	if s.elapsed(now) > maxElapsed || level > s.Balance/2 {
		return State{Balance: level, Anchor: now}
	}
	return s
}

// charge is spend for costs of any size.
func (l Limit) charge(s State, now time.Duration, cost float64) State {
	s = l.spend(s, now, 0)
	s.Balance = max(s.Balance-cost, leastBalance)
	return s
}

// refund returns the state after tokens have been given back at now.
func (l Limit) refund(s State, now time.Duration, tokens float64) State {
	s = l.spend(s, now, 0)
	if l.level(s, now)+tokens >= l.Capacity {
		return l.Full(max(now, s.Anchor))
	}
	s.Balance += tokens
	return s
}

// Limits are several limits that a request has to meet at once: it is admitted
// if each of them admits it, and a refusal by one takes nothing from another. Its
// methods work on one State for each limit, in the same order, which the caller
// keeps and guards; all instants are counted from one origin.
//
// No limits at all admit nothing but a cost of 0.
type Limits []Limit

// Validate returns nil, or the ErrInvalidLimit of the first that is invalid.
func (ls Limits) Validate() error {
	for _, l := range ls {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// capacity returns the largest cost that can ever be met, in tokens.
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

// TryAcquire admits a cost at now and spends it from every state, or changes
// nothing and returns the wait of the limit that makes it wait longest.
func (ls Limits) TryAcquire(states []State, now time.Duration, cost float64) (wait time.Duration, ok bool) {
	if len(ls) == 0 && cost != 0 {
		return Never, false
	}
	if wait = ls.wait(states, now, cost); wait > 0 {
		return wait, false
	}
	ls.spend(states, now, cost)
	return 0, true
}

// Take is TryAcquire with everything a header needs.
func (ls Limits) Take(states []State, now time.Duration, cost float64) (d Decision) {
	d.Wait, d.OK = ls.TryAcquire(states, now, cost)
	ls.tell(&d, states, now, cost)
	return d
}

// tell adds to a decision what is left after it.
func (ls Limits) tell(d *Decision, states []State, now time.Duration, cost float64) {
	if binding := ls.binding(states, now, cost); binding >= 0 {
		d.Limit = ls[binding]
		d.Tokens = d.Limit.Tokens(states[binding], now)
	}
	if len(ls) > 1 {
		if least := ls.Tokens(states, now); least < d.Tokens {
			d.isShort, d.least = true, least
		}
	}
}

// Tokens returns the least of the levels at now.
func (ls Limits) Tokens(states []State, now time.Duration) float64 {
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

// UntilFull returns how long from now every limit has had time to fill: 0 if it has,
// Never beyond 292 years.
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
	if err := checkAmount(tokens); err != nil {
		return err
	}
	for i, l := range ls {
		states[i] = l.refund(states[i], now, tokens)
	}
	return nil
}

// Charge takes a cost from every state at now, whether it is there or not; only at
// about 1e289 tokens does a debt stop growing. It returns ErrInvalidCost unless the
// cost is finite and at least 0.
func (ls Limits) Charge(states []State, now time.Duration, cost float64) error {
	if err := checkAmount(cost); err != nil {
		return err
	}
	for i, l := range ls {
		states[i] = l.charge(states[i], now, cost)
	}
	return nil
}

func (ls Limits) wait(states []State, now time.Duration, cost float64) (longest time.Duration) {
	for i, l := range ls {
		longest = max(longest, l.wait(states[i], now, cost))
	}
	return longest
}

func (ls Limits) spend(states []State, now time.Duration, cost float64) {
	for i, l := range ls {
		states[i] = l.spend(states[i], now, cost)
	}
}

// binding returns the index of the limit that makes a cost wait longest at now,
// the first of several, -1 of none.
func (ls Limits) binding(states []State, now time.Duration, cost float64) int {
	if len(ls) < 2 {
		return len(ls) - 1
	}
	binding, longest := 0, time.Duration(0)
	for i, l := range ls {
		if wait := l.wait(states[i], now, cost); wait > longest {
			binding, longest = i, wait
		}
	}
	return binding
}

// Decision is the answer to one request, with everything that a response header
// needs. With several limits its figures are those of the limit that binds: on a
// refusal the one with the longest wait, on admission the one that would make
// the same cost wait longest next, the first of them on a tie.
type Decision struct {
	OK     bool          // whether the request was admitted
	Wait   time.Duration // until the same request would be; 0 when OK; Never when it can't ever be
	Tokens float64       // left for the next request, after this decision; below 0 in debt or behind a queue
	Limit  Limit

	paused time.Duration // until a pause ends, before which nothing is admitted and nothing refilled
	queued bool          // somebody waits, and nothing is admitted before them

	isShort bool    // a limit that does not bind has less left:
	least   float64 // so much
}

// Remaining returns the largest whole cost that would be admitted now, in tokens,
// 0 or more. It counts all limits, not only the one that binds.
func (d Decision) Remaining() int64 {
	tokens := d.Tokens
	if d.isShort {
		tokens = d.least
	}
	switch {
	case d.paused > 0 || d.queued || !(tokens > 0):
		return 0
	case tokens >= math.MaxInt64:
		return math.MaxInt64
	default:
		return int64(tokens)
	}
}

// Reset returns the time until the bucket is full if nothing more is taken: 0 if
// it is full now, Never beyond 292 years. It is worked out from Tokens, which are
// rounded: a bucket that has long been below its capacity may be full a nanosecond
// earlier.
func (d Decision) Reset() time.Duration {
	filling := d.Limit.wait(State{Balance: d.Tokens}, 0, d.Limit.Capacity)
	return timeline.Later(filling, d.paused)
}

// RetryAfter returns the wait in whole seconds, as the function of that name does.
func (d Decision) RetryAfter() (seconds int64, ok bool) { return RetryAfter(d.Wait) }

// Option configures New.
type Option func(*config)

type config struct {
	limits     Limits
	clock      Clock
	tokens     *float64 // nil: full
	resume     *resume  // nil: start anew
	latest     time.Duration
	maxWaiters int
}

type resume struct {
	origin time.Time
	states []State
}

func (c *config) validate() error {
	if err := c.limits.Validate(); err != nil {
		return err
	}
	if c.tokens != nil && !(*c.tokens >= 0 && *c.tokens <= c.largestCapacity()) {
		return fmt.Errorf("%w: WithTokens(%v): choose from 0 to the capacity of %v", ErrInvalidOption, *c.tokens, c.largestCapacity())
	}
	if c.resume != nil && !c.resume.fits(c.limits) {
		return fmt.Errorf("%w: WithState(%v): pass what State of a bucket with as many limits returned", ErrInvalidOption, c.resume.states)
	}
	if c.resume != nil && !c.resume.isNear(c.clock) {
		return fmt.Errorf("%w: WithState: the origin %v is too far away: store the one that State returned beside the states", ErrInvalidOption, c.resume.origin)
	}
	if c.maxWaiters < 0 {
		return fmt.Errorf("%w: WithMaxWaiters(%d): choose 0 or more, or leave it out for no bound", ErrInvalidOption, c.maxWaiters)
	}
	return nil
}

func (r *resume) fits(limits Limits) bool {
	return len(r.states) == len(limits) && !slices.ContainsFunc(r.states, func(s State) bool {
		return !(s.Balance >= leastBalance && s.Balance <= math.MaxFloat64)
	})
}

// isNear reports whether time can be counted from the origin: a Duration can hold it,
// so that it passes, and by the system clock it never steps back, since package time
// keeps monotonic readings in the years 1885 to 2157.
func (r *resume) isNear(clock Clock) bool {
	t := timeline.Timeline{Clock: clock, Origin: r.origin}
	now, year := t.Now(), r.origin.UTC().Year()
	return now > math.MinInt64 && now < timeline.End && (clock != nil || 1885 <= year && year <= 2157)
}

func (c *config) largestCapacity() (largest float64) {
	for _, l := range c.limits {
		largest = max(largest, l.Capacity)
	}
	return largest
}

// WithClock sets the clock that the bucket reads and sleeps on. By default, and
// for nil, it is the system clock.
func WithClock(clock Clock) Option {
	return func(c *config) { c.clock = clock }
}

// WithTokens sets what the bucket holds at first, in tokens from 0 to the
// capacity; with several limits each is filled up to that level or its capacity.
// By default, it is full.
func WithTokens(initial float64) Option {
	return func(c *config) { c.tokens = &initial }
}

// WithState lets the bucket go on from what State of an earlier one returned, with
// as many limits: after a restart, say, so that nobody gets a second burst. It
// overrides WithTokens. By default, a bucket starts anew.
//
// The time in between counts. It is told by the wall clock if the origin was
// stored and has lost its monotonic reading. New returns ErrInvalidOption for
// another number of states, for a balance that no State has and for an origin 292
// years away or more, such as the zero time, or by the system clock not between the
// years 1885 and 2157.
func WithState(origin time.Time, states []State) Option {
	r := &resume{origin, slices.Clone(states)}
	return func(c *config) { c.resume = r }
}

// WithLatest sets the latest reading of the clock so far, as Latest of the earlier
// bucket returned it, since WithState's origin: earlier ones count as this. It is
// for clocks that may have stepped back in between. By default, and for 0 or less,
// nothing is known of one, and a state that is anchored in the future is paused.
func WithLatest(reading time.Duration) Option {
	return func(c *config) { c.latest = reading }
}

// WithMaxWaiters bounds how many waiters and reservations may be queued at once;
// with 0 nobody may wait. Whoever comes after them gets ErrTooManyWaiters. By
// default, there is no bound.
func WithMaxWaiters(n int) Option {
	return func(c *config) { c.maxWaiters = n }
}

// WithLimit adds a further limit, which every request has to meet as well: 30 a
// minute and 300 an hour, say. A refusal by one takes nothing from another. By
// default, there is only the limit given to New.
func WithLimit(limit Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}

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
	plan   plan     // how the queue will be served
	_      [56]byte // so that Buckets begin with a cache line
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

// Waiting returns how many waiters are queued, their timers set, and how many
// reservations are not yet due. A test with a mock clock polls it before it
// advances the clock.
func (b *Bucket) Waiting() int {
	b.lock()
	defer b.mu.Unlock()
	waiting := 0
	for w := b.queue.head; w != nil; w = w.next {
		if w.nudges == nil || w.asleep && w.alarm > b.latest {
			waiting++
		}
	}
	return waiting
}

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

// openEpochLocked notes a decision that was a matter of the states alone, and opens an
// epoch if there were many about whole costs. That takes the system clock, which never
// steps back, since an epoch does not note the latest reading.
func (b *Bucket) openEpochLocked(now time.Duration, cost float64) {
	if _, ok := wholeCost(cost); !ok {
		return
	}
	anchors := time.Duration(0)
	for i := range b.states {
		anchors += b.states[i].Anchor
	}
	if anchors != b.steady.anchors {
		b.steady = steady{anchors: anchors}
	}
	b.steady.decisions++
	if b.steady.decisions >= decisionsToOpen && b.time.Clock == nil && now >= b.latest {
		e := &epoch{limits: b.limits, capacity: b.limits.capacity()}
		e.states = append(e.single[:0], b.states...)
		b.epoch.Store(e)
	}
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
	if binding := b.limits.binding(b.plan.states, b.plan.at, cost); binding >= 0 {
		d.Limit = b.limits[binding]
		d.Tokens = b.tokensLocked(binding, at)
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

// Reservation is a place in a bucket's queue. Its methods may be called by any
// number of goroutines.
type Reservation struct {
	bucket *Bucket
	waiter *waiter // nil: paid at once
}

// Delay returns how long to wait until the reservation is due and paid, then 0.
// It may shrink when others cancel or tokens are refunded, and grow when the
// bucket is charged or paused: when it has passed, ask again. It is Never for a
// reservation that was cancelled, or whose cost is above the capacity since the
// limits changed.
func (r *Reservation) Delay() time.Duration {
	if r.waiter == nil {
		return 0
	}
	b := r.bucket
	now, _ := b.lock()
	defer b.mu.Unlock()
	switch {
	case !r.waiter.left:
		b.planLocked(r.waiter)
		return timeline.Until(now, r.waiter.due)
	case r.waiter.err != nil:
		return Never
	default:
		return 0
	}
}

// Cancel gives the place in the queue up, so that those behind it move up, and
// returns true. It returns false, and changes nothing, once the reservation is
// due or has left the queue otherwise; Refund gives tokens back then.
func (r *Reservation) Cancel() bool {
	if r.waiter == nil {
		return false
	}
	b := r.bucket
	b.lock()
	defer b.mu.Unlock()
	if r.waiter.left {
		return false
	}
	b.abandonLocked(r.waiter, errCancelled)
	return true
}

var errCancelled = errors.New("tokenbucket: reservation cancelled")

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
