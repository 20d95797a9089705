package redisbucket

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// MaxLeases is how many keys a process has leases of at once; beyond, that of the key
// which was used least recently is given back.
const MaxLeases = 1024

// maxRefused is how long a refusal is remembered at most: what others give back is
// seen by then.
const maxRefused = time.Minute

// leases are the tokens that a process has taken from the server and not spent yet,
// by key. It asks the server once for many decisions:
//
//   - Tokens are taken on the server before they are spent here.
//   - A refusal stands until the instant it named, as long as nothing is given back.
//   - For each key one exchange with the server is under way at most. Who comes
//     meanwhile waits for it, and is served in order of arrival.
//
// All times are counted from an origin by the local monotonic clock. One timer ends
// all leases, and is set only while there are any.
type leases struct {
	server *server
	limits tokenbucket.Limits
	prefix string
	size   float64 // tokens that a lease holds at most
	maxAge time.Duration
	origin time.Time

	mu       sync.Mutex
	byKey    map[string]*lease
	idle     list.List // of *lease, nothing under way; the latest used first
	scratch  []tokenbucket.State
	sweeper  *time.Timer
	next     time.Duration // when the sweeper is due, Never if it is not set
	closed   bool
	lost     error          // why a lease was not given back, once closed
	underWay sync.WaitGroup // exchanges with the server
}

// lease is one key's. The leases' mutex guards it.
type lease struct {
	key     string        // without the prefix
	tokens  float64       // taken, and not spent
	expires time.Duration // when they go back
	seen    ledger        // the server's, as of the latest answer

	refused   float64       // the cost that the server refused, 0 for none
	refusedAt time.Duration // when
	until     time.Duration // the instant that the refusal named, at most maxRefused later

	place     *list.Element // among the idle; nil while an exchange is under way
	waiting   []*caller     // for its end, in order of arrival
	refunding bool          // tokens were given back meanwhile: it says nothing about what is refused
}

// ledger is what the server has for a key, as of an answer. The server decided
// between the instants at which it was asked and answered.
type ledger struct {
	states         []tokenbucket.State
	now            time.Duration // by the server's clock
	asked, arrived time.Duration
}

// caller waits for a decision.
type caller struct {
	ctx      context.Context
	cost     float64
	done     chan struct{} // closed when it is settled
	settled  bool
	gone     bool // it does not wait any more
	decision tokenbucket.Decision
	err      error
}

// errNotLeased says that the server is to decide.
var errNotLeased = errors.New("redisbucket: not leased")

func newLeases(s *server, c config) *leases {
	if c.lease == nil {
		return nil
	}
	t := &leases{
		server:  s,
		limits:  c.limits,
		prefix:  c.prefix,
		size:    min(c.lease.tokens, capacity(c.limits)), // nobody can have more
		maxAge:  c.lease.maxAge,
		origin:  time.Now(),
		byKey:   map[string]*lease{},
		scratch: make([]tokenbucket.State, len(c.limits)),
		next:    tokenbucket.Never,
	}
	s.onGiveBack = t.refunded
	return t
}

// covers reports whether a cost is for a lease to decide.
func (t *leases) covers(cost float64) bool {
	return t != nil && cost > 0 && cost <= t.size
}

func (t *leases) now() time.Duration { return time.Since(t.origin) }

// take decides by the key's lease. It returns errNotLeased if there is none, and no
// room for one.
func (t *leases) take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	if err := ctx.Err(); err != nil {
		return tokenbucket.Decision{}, err
	}
	t.mu.Lock()
	l := t.findLocked(key)
	if l == nil {
		t.mu.Unlock()
		return tokenbucket.Decision{}, errNotLeased
	}
	if l.place != nil {
		t.idle.MoveToFront(l.place)
		if d, ok := t.decideLocked(l, cost); ok {
			t.mu.Unlock()
			return d, nil
		}
	}
	c := &caller{ctx: ctx, cost: cost, done: make(chan struct{})}
	l.waiting = append(l.waiting, c)
	if l.place != nil {
		t.askLocked(l)
	}
	t.mu.Unlock()
	return t.await(ctx, l, c)
}

// findLocked returns the key's lease, a new one if there is none, and nil if there is
// no room.
func (t *leases) findLocked(key string) *lease {
	if t.closed {
		return nil
	}
	if l := t.byKey[key]; l != nil {
		return l
	}
	if len(t.byKey) >= MaxLeases {
		oldest := t.idle.Back()
		if oldest == nil {
			return nil
		}
		t.endLocked(oldest.Value.(*lease))
	}
	l := &lease{key: strings.Clone(key)}
	l.place = t.idle.PushFront(l)
	t.byKey[l.key] = l
	return l
}

// decideLocked decides without the server, if it can.
func (t *leases) decideLocked(l *lease, cost float64) (d tokenbucket.Decision, ok bool) {
	switch now := t.now(); {
	case l.tokens > 0 && now >= l.expires: // the timer is late
		return d, false
	case l.tokens >= cost:
		return t.grantLocked(l, now, cost), true
	case t.isRefusedLocked(l, now, cost):
		return t.refuseLocked(l, now, cost), true
	default:
		return d, false
	}
}

// isRefusedLocked reports whether a refusal stands that a cost meets as well. What is
// short of the cost is at least what the server refused, and others only take; so
// the ledger that it refused by says for how long. It is counted from the instant
// at which the server was asked, so it never stands for longer.
func (t *leases) isRefusedLocked(l *lease, now time.Duration, cost float64) bool {
	if l.refused == 0 || cost-l.tokens < l.refused || now-l.refusedAt >= maxRefused {
		return false
	}
	copy(t.scratch, l.seen.states)
	_, ok := t.limits.TryAcquire(t.scratch, l.seen.now+now-l.seen.asked, cost-l.tokens)
	return !ok
}

// grantLocked spends a cost from the lease, and tells the decision.
func (t *leases) grantLocked(l *lease, now time.Duration, cost float64) tokenbucket.Decision {
	at := t.poolLocked(l, now)
	l.tokens -= cost
	d := t.limits.Take(t.scratch, at, cost)
	if !d.OK { // others wait, for tokens that are not there yet
		_ = t.limits.Charge(t.scratch, at, cost)
		d = t.limits.Take(t.scratch, at, cost)
		d.OK, d.Wait = true, 0
	}
	return d
}

// refuseLocked tells the decision on a cost that the server has refused.
func (t *leases) refuseLocked(l *lease, now time.Duration, cost float64) tokenbucket.Decision {
	at := t.poolLocked(l, now)
	d := t.limits.Take(t.scratch, at, cost)
	d.OK, d.Wait = false, max(roundUp(d.Wait), time.Microsecond)
	return d
}

// poolLocked sets scratch to what the server had at its latest answer together with
// what is left here: the bucket as if nobody else had come since. It returns the
// server's time, counted from the instant at which the answer arrived, so that
// waits suffice.
func (t *leases) poolLocked(l *lease, now time.Duration) (at time.Duration) {
	copy(t.scratch, l.seen.states)
	at = (l.seen.now + now - l.seen.arrived).Truncate(time.Microsecond)
	_ = t.limits.Refund(t.scratch, at, l.tokens)
	return at
}

// await waits until a caller is settled or loses patience.
func (t *leases) await(ctx context.Context, l *lease, c *caller) (tokenbucket.Decision, error) {
	bounded := t.server.deadlines.after(ctx)
	select {
	case <-c.done:
		return c.decision, c.err
	case <-bounded.Done():
	case <-ctx.Done():
	}
	if !t.leave(c) {
		return c.decision, c.err
	}
	r := request{key: t.prefix + l.key, cost: c.cost}
	name := t.server.nameFor(r.key)
	if err := ctx.Err(); err != nil {
		return tokenbucket.Decision{}, gaveUp(r, name, err)
	}
	return tokenbucket.Decision{}, explain(r, name, errNoAnswer{t.server.deadlines.timeout})
}

// leave lets a caller go, unless it is settled already.
func (t *leases) leave(c *caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.gone = !c.settled
	return c.gone
}

func (c *caller) settle(d tokenbucket.Decision, err error) {
	if c.gone {
		return
	}
	c.decision, c.err, c.settled = d, err, true
	close(c.done)
}

// askLocked asks the server for what the first who waits is short of, and for as much
// more as the lease holds. Tokens that have expired go back before.
func (t *leases) askLocked(l *lease) {
	if l.tokens > 0 && t.now() >= l.expires {
		t.giveBackLocked(l)
		return
	}
	c := l.waiting[0]
	short := c.cost - l.tokens
	r := request{key: t.prefix + l.key, cost: short, further: t.size - short}
	asked := t.now()
	t.leaveIdleLocked(l)
	t.underWay.Go(func() {
		a, err := t.server.ask(context.WithoutCancel(c.ctx), r)
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			err = t.learnLocked(l, r, a, asked)
		}
		if err == nil {
			l.waiting = l.waiting[1:]
			t.heedLocked(l, a, c, short)
		}
		t.settleLocked(l, err)
	})
}

// learnLocked notes what the server has, and what it gave.
func (t *leases) learnLocked(l *lease, r request, a answer, asked time.Duration) error {
	now, states, err := a.states(t.limits, r)
	if err != nil {
		return err
	}
	l.seen = ledger{states, now, asked, t.now()}
	if a.admitted() {
		taken := r.cost + a.further()
		_ = t.limits.Charge(l.seen.states, now, taken)
		l.tokens += taken
		l.expires = l.seen.arrived + t.maxAge
	}
	return nil
}

// heedLocked settles a caller by the answer to what it was short of.
func (t *leases) heedLocked(l *lease, a answer, c *caller, short float64) {
	now := l.seen.arrived
	if a.admitted() {
		l.refused = 0
		if !c.gone {
			c.settle(t.grantLocked(l, now, c.cost), nil)
			l.tokens = max(0, l.tokens) // the last bit of cost - short
		}
		return
	}
	d := t.refuseLocked(l, now, c.cost)
	if !l.refunding {
		l.refused, l.refusedAt = short, now
		l.until = now + min(d.Wait, maxRefused)
	}
	c.settle(d, nil)
}

// settleLocked serves those who have waited for an exchange that is over, in order of
// arrival, until one of them needs another exchange.
func (t *leases) settleLocked(l *lease, err error) {
	l.refunding = false
	for len(l.waiting) > 0 {
		if c := l.waiting[0]; !c.gone && !t.serveLocked(l, c, err) {
			t.askLocked(l)
			return
		}
		l.waiting = l.waiting[1:]
	}
	l.waiting = nil
	l.place = t.idle.PushFront(l)
	if t.closed || (l.tokens == 0 && l.refused == 0) {
		t.endLocked(l)
		return
	}
	t.setSweeperLocked(l.ends())
}

// serveLocked settles a caller, unless the server has to be asked for it.
func (t *leases) serveLocked(l *lease, c *caller, err error) bool {
	d, ok := t.decideLocked(l, c.cost)
	switch {
	case ok:
		err = nil
	case err != nil:
	case t.closed:
		err = errNotLeased
	default:
		return false
	}
	c.settle(d, err)
	return true
}

// endLocked ends the lease of a key that has nothing under way.
func (t *leases) endLocked(l *lease) {
	if l.tokens > 0 {
		t.giveBackLocked(l)
		return
	}
	t.leaveIdleLocked(l)
	delete(t.byKey, l.key)
}

// giveBackLocked gives the tokens back. Those who come meanwhile wait, so that what
// they are told counts these tokens.
func (t *leases) giveBackLocked(l *lease) {
	r := request{key: t.prefix + l.key, cost: -l.tokens}
	l.tokens, l.refused = 0, 0
	t.leaveIdleLocked(l)
	t.underWay.Go(func() {
		_, err := t.server.ask(context.Background(), r)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.closed && t.lost == nil {
			t.lost = err
		}
		t.settleLocked(l, nil)
	})
}

func (t *leases) leaveIdleLocked(l *lease) {
	if l.place != nil {
		t.idle.Remove(l.place)
		l.place = nil
	}
}

// ends returns when the lease is of no use any more.
func (l *lease) ends() time.Duration {
	if l.refused == 0 || l.tokens > 0 {
		return l.expires
	}
	return max(l.expires, l.until)
}

// setSweeperLocked lets the sweeper come at an instant, or earlier.
func (t *leases) setSweeperLocked(at time.Duration) {
	if at >= t.next {
		return
	}
	t.next = at
	if wait := at - t.now(); t.sweeper == nil {
		t.sweeper = time.AfterFunc(wait, t.sweep)
	} else {
		t.sweeper.Reset(wait)
	}
}

// sweep ends the leases that have aged. It comes at most sixteen times in a lease's
// life, so the tokens of many keys may be given back that much later.
func (t *leases) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	now, next := t.now(), tokenbucket.Never
	for e := t.idle.Front(); e != nil; {
		l := e.Value.(*lease)
		e = e.Next()
		if ends := l.ends(); ends > now {
			next = min(next, ends)
			continue
		}
		t.endLocked(l)
	}
	t.next = tokenbucket.Never
	if next != tokenbucket.Never {
		t.setSweeperLocked(max(next, now+t.maxAge/16))
	}
}

// refunded notes that the server got tokens back for a key: a refusal stands no more.
func (t *leases) refunded(stored string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byKey[strings.TrimPrefix(stored, t.prefix)]; l != nil {
		l.refused, l.refunding = 0, l.place == nil
	}
}

// forget drops what is left of a key's lease, since its bucket is full again.
func (t *leases) forget(stored string) {
	if t == nil {
		return
	}
	t.refunded(stored)
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byKey[strings.TrimPrefix(stored, t.prefix)]; l != nil && l.place != nil {
		l.tokens = 0
	}
}

// close gives all leases back, and lets no other begin.
func (t *leases) close() error {
	t.mu.Lock()
	t.closed = true
	if t.sweeper != nil {
		t.sweeper.Stop()
	}
	for e := t.idle.Front(); e != nil; e = t.idle.Front() {
		t.endLocked(e.Value.(*lease))
	}
	t.mu.Unlock()
	t.underWay.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != nil {
		return fmt.Errorf("redisbucket: leased tokens are lost: %w", t.lost)
	}
	return nil
}
