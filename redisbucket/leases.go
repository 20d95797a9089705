package redisbucket

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// MaxLeases is how many keys a process has leases of at once; beyond, that of the key
// which was used least recently is given back.
const MaxLeases = 1024

// leases are the tokens that a process has taken from the server and not spent yet,
// by key. It asks the server once for many decisions:
//
//   - Tokens are taken on the server before they are spent here.
//   - What the server told bounds what it has, as long as nothing is given back: what
//     it would refuse by that is refused here.
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
	sweeper  *time.Timer
	next     time.Duration // when the sweeper is due, Never if it is not set
	served   []*caller     // to be woken
	closed   bool
	lost     error          // why a lease was not given back, once closed
	underWay sync.WaitGroup // exchanges with the server
}

// caller waits for an outcome.
type caller struct {
	ctx     context.Context
	cost    float64
	done    chan struct{} // closed once it is settled
	settled bool
	gone    bool // it does not wait any more
	outcome outcome
	err     error
}

// errNotLeased says that the server is to decide.
var errNotLeased = errors.New("redisbucket: not leased")

func newLeases(s *server, c config) *leases {
	if c.lease == nil {
		return nil
	}
	t := &leases{
		server: s,
		limits: c.limits,
		prefix: c.prefix,
		size:   min(c.lease.tokens, capacity(c.limits)), // nobody can have more
		maxAge: c.lease.maxAge,
		origin: time.Now(),
		byKey:  map[string]*lease{},
		next:   tokenbucket.Never,
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
func (t *leases) take(ctx context.Context, key string, cost float64) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	t.mu.Lock()
	l := t.findLocked(key)
	if l == nil {
		t.mu.Unlock()
		return outcome{}, errNotLeased
	}
	if l.place != nil {
		if o, ok := l.decide(t.limits, t.now(), cost); ok {
			t.idle.MoveToFront(l.place)
			t.mu.Unlock()
			return o, nil
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

// await waits until a caller is settled or loses patience.
func (t *leases) await(ctx context.Context, l *lease, c *caller) (outcome, error) {
	bounded := t.server.deadlines.after(ctx)
	select {
	case <-c.done:
		return c.outcome, c.err
	case <-bounded.Done():
	case <-ctx.Done():
	}
	if !t.leave(c) {
		return c.outcome, c.err
	}
	r := request{key: t.prefix + l.key, cost: c.cost}
	name := t.server.nameFor(r.key)
	if err := ctx.Err(); err != nil {
		return outcome{}, gaveUp(r, name, err)
	}
	return outcome{}, explain(r, name, errNoAnswer{t.server.deadlines.timeout})
}

// leave lets a caller go, unless it is settled already.
func (t *leases) leave(c *caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.gone = !c.settled
	return c.gone
}

func (t *leases) settleLocked(c *caller, o outcome, err error) {
	if c.gone {
		return
	}
	c.outcome, c.err, c.settled = o, err, true
	t.served = append(t.served, c)
}

// unlock unlocks, and then wakes those who have been served.
func (t *leases) unlock() {
	served := t.served
	t.served = nil
	t.mu.Unlock()
	for _, c := range served {
		close(c.done)
	}
}

// askLocked asks the server for what the first who waits is short of, and for as much
// more as the lease holds. Tokens that have expired go back before.
func (t *leases) askLocked(l *lease) {
	if l.hasExpired(t.now()) {
		t.giveBackLocked(l)
		return
	}
	ctx := context.WithoutCancel(l.waiting[0].ctx)
	t.leaveIdleLocked(l)
	t.underWay.Go(func() {
		runtime.Gosched() // others may come at the same time
		r, asked := t.newRequest(l)
		a, err := t.server.ask(ctx, r)
		t.mu.Lock()
		defer t.unlock()
		if err == nil {
			err = t.heedLocked(l, r, a, asked)
		}
		t.serveLocked(l, err)
	})
}

// newRequest returns what is to be taken for those who wait, and besides up to a whole
// lease.
func (t *leases) newRequest(l *lease) (r request, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, others := l.waiting[0], 0.0
	for _, c := range l.waiting[1:] {
		if !c.gone {
			others += c.cost
		}
	}
	return request{key: t.prefix + l.key, cost: first.cost - l.tokens, further: t.size - first.cost + others}, t.now()
}

// heedLocked notes what the server answered, and settles the first who waits by it.
func (t *leases) heedLocked(l *lease, r request, a answer, asked time.Duration) error {
	now, states, err := a.states(t.limits, r)
	if err != nil {
		return err
	}
	l.seen, l.stands = ledger{states, now, asked, t.now()}, !l.refunding
	if c := l.next(); a.admitted() {
		l.gain(t.limits, r.cost+a.further(), t.maxAge)
		t.grantLocked(l, c)
	} else {
		t.refuseLocked(l, c)
	}
	return nil
}

// grantLocked settles a caller by what the server gave, unless it has left: then the
// tokens are there for the others.
func (t *leases) grantLocked(l *lease, c *caller) {
	if !c.gone {
		t.settleLocked(c, l.grant(l.seen.arrived, c.cost), nil)
	}
}

// refuseLocked settles a caller whom the server refused.
func (t *leases) refuseLocked(l *lease, c *caller) {
	wait, _ := t.limits.TryAcquire(slices.Clone(l.seen.states), l.seen.now, c.cost-l.tokens)
	t.settleLocked(c, l.refuseFor(l.seen.arrived, wait), nil)
}

// next removes the first who waits, and returns it.
func (l *lease) next() *caller {
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c
}

// serveLocked serves those who have waited for an exchange that is over, in order of
// arrival, until one of them needs another exchange.
func (t *leases) serveLocked(l *lease, err error) {
	l.refunding = false
	for len(l.waiting) > 0 {
		if c := l.waiting[0]; !c.gone && !t.serveOneLocked(l, c, err) {
			t.askLocked(l)
			return
		}
		l.waiting = l.waiting[1:]
	}
	l.waiting = nil
	l.place = t.idle.PushFront(l)
	if t.closed || l.tokens > t.size || (l.tokens == 0 && !l.stands) {
		t.endLocked(l)
		return
	}
	t.setSweeperLocked(l.ends())
}

// serveOneLocked settles a caller, unless the server has to be asked for it.
func (t *leases) serveOneLocked(l *lease, c *caller, err error) bool {
	o, ok := l.decide(t.limits, t.now(), c.cost)
	switch {
	case ok:
		err = nil
	case err != nil:
	case t.closed:
		err = errNotLeased
	default:
		return false
	}
	t.settleLocked(c, o, err)
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
	l.tokens, l.stands = 0, false
	t.leaveIdleLocked(l)
	t.underWay.Go(func() {
		_, err := t.server.ask(context.Background(), r)
		t.mu.Lock()
		defer t.unlock()
		if t.closed && t.lost == nil {
			t.lost = err
		}
		t.serveLocked(l, nil)
	})
}

func (t *leases) leaveIdleLocked(l *lease) {
	if l.place != nil {
		t.idle.Remove(l.place)
		l.place = nil
	}
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

// refunded notes that the server got tokens back for a key, and so may have more than
// it said.
func (t *leases) refunded(stored string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.byKey[strings.TrimPrefix(stored, t.prefix)]; l != nil {
		l.stands, l.refunding = false, l.place == nil
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
