package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// leases are the tokens that a process has taken from the server and not spent yet,
// by key. It asks the server once for many decisions:
//
//   - Tokens are taken on the server before they are spent here.
//   - The server's last answer is an upper bound, as long as nothing is given back: what
//     it could not cover is refused here.
//   - For each key one renewal is under way at most, on behalf of all callers that wait. Those
//     that come meanwhile wait for it, and are served in order of arrival.
//
// It is tempting to ask before a lease is used up. But it holds no more than its size,
// so that asks for the missing part only, and the more callers there are the less it
// brings. A whole lease, with what all waiting callers need besides, lasts longer.
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

	callers sync.Pool // of *caller that are served and gone

	mu       sync.Mutex
	table    leaseTable
	sweeper  *time.Timer
	next     time.Duration // when the sweeper is due, Never if it is not set
	served   []*caller     // to be woken
	closed   bool
	lost     error          // why a lease was not given back, once closed
	underWay sync.WaitGroup // renewals, and leases that are given back
}

// errNotLeased says that the server is to decide.
var errNotLeased = errors.New("redisbucket: not leased")

// errBrokenOff says that a round trip had no end.
var errBrokenOff = fmt.Errorf("%w: the goroutine that asked the server for all callers panicked or ended: correct the error handler or the client's hooks", ErrUnavailable)

func newLeases(s *server, c config) *leases {
	if c.lease == nil || len(s.limits.asked) == 0 {
		return nil
	}
	t := &leases{
		server: s,
		limits: c.limits,
		prefix: c.prefix,
		size:   min(c.lease.tokens, c.limits.Tokens(full(c.limits), 0)), // no bucket has more
		maxAge: c.lease.maxAge,
		origin: time.Now(),
		table:  newLeaseTable(c.lease.maxAge),
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

// unlock unlocks, and then wakes the callers whose wait is over: before, they would only wait
// for the lock.
func (t *leases) unlock() {
	served := t.served
	t.served = nil
	t.mu.Unlock()
	for _, c := range served {
		c.done <- struct{}{}
	}
}

// take decides by the key's lease. It returns errNotLeased if the key has none and is not
// to get one.
func (t *leases) take(ctx context.Context, key string, cost float64) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	o, c, err := t.takeOrWait(ctx, key, cost)
	if c == nil {
		return o, err
	}
	return c.await()
}

// takeOrWait decides at once if it can. Otherwise it returns a caller that waits, and
// has the lease renewed if nothing is under way.
func (t *leases) takeOrWait(ctx context.Context, key string, cost float64) (o outcome, c *caller, err error) {
	now := t.now() // that takes as long as all else, so it is done without the lock
	t.mu.Lock()
	l := t.leaseOfLocked(key, now)
	if l == nil {
		t.unlock()
		return o, nil, errNotLeased
	}
	if l.place != nil {
		if o, ok := l.decide(t.limits, now, cost); ok {
			t.table.touch(l)
			t.unlock()
			return o, nil, nil
		}
	}
	c = t.newCaller(ctx, l, now, cost)
	l.waiting = append(l.waiting, c)
	r := renewal{t, l}
	leads := l.place != nil && r.beginLocked()
	if !leads {
		l.watchLocked(t, c.late)
	}
	t.unlock()
	if leads {
		r.lead(ctx)
	}
	return o, c, nil
}

// peek returns what take would return, if it would not ask the server; otherwise the
// tokens that are held here.
func (t *leases) peek(key string, cost float64) (d tokenbucket.Decision, held float64, ok bool) {
	if !t.covers(cost) {
		return d, 0, false
	}
	now := t.now()
	t.mu.Lock()
	defer t.unlock()
	l := t.table.byKey[key]
	if l == nil {
		return d, 0, false
	}
	sketch := *l // what it decides changes nothing
	if o, ok := sketch.decide(t.limits, now, cost); ok && l.place != nil {
		return o.tell(t.limits, cost), 0, true
	}
	return d, l.tokens, false
}

// leaseOfLocked returns the key's lease, a new one if it is to get one, or nil.
func (t *leases) leaseOfLocked(key string, now time.Duration) *lease {
	if t.closed {
		return nil
	}
	if l := t.table.get(key, now); l != nil {
		return l
	}
	if !t.table.isDue(key, now) || t.table.isFull() && !t.makeRoomLocked(now) {
		return nil
	}
	return t.table.add(key, now)
}

// makeRoomLocked ends leases that are of no use any more, or have no tokens left, among those
// that were used least recently. The others stay: to give one back costs as much as it saves.
func (t *leases) makeRoomLocked(now time.Duration) bool {
	looked := 0
	for l := range t.table.oldest() {
		if l.tokens == 0 || l.ends() <= now {
			t.endLocked(l)
		}
		if looked++; looked == 8 {
			break
		}
	}
	return !t.table.isFull()
}

// endLocked ends an idle lease.
func (t *leases) endLocked(l *lease) {
	if l.tokens > 0 {
		t.giveBackLocked(l)
		return
	}
	t.table.remove(l)
}

// giveBackLocked gives the tokens back. Callers that come meanwhile wait, so that what
// the server answers them counts these tokens.
func (t *leases) giveBackLocked(l *lease) {
	r := request{key: t.prefix + l.key, price: price{cost: -l.tokens}}
	l.tokens, l.stands = 0, false
	t.table.stir(l)
	t.underWay.Go(func() {
		err := errBrokenOff
		defer func() {
			t.mu.Lock()
			defer t.unlock()
			if t.closed && t.lost == nil {
				t.lost = err
			}
			renewal{t, l}.serveLocked(nil)
		}()
		_, err = t.server.ask(context.Background(), r)
	})
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
	defer t.unlock()
	if t.closed {
		return
	}
	now, next := t.now(), tokenbucket.Never
	for l := range t.table.oldest() {
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
	defer t.unlock()
	if l := t.table.byKey[strings.TrimPrefix(stored, t.prefix)]; l != nil {
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
	defer t.unlock()
	if l := t.table.byKey[strings.TrimPrefix(stored, t.prefix)]; l != nil && l.place != nil {
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
	for l := range t.table.oldest() {
		t.endLocked(l)
	}
	t.unlock()
	t.underWay.Wait()
	t.mu.Lock()
	defer t.unlock()
	if t.lost != nil {
		return fmt.Errorf("redisbucket: leased tokens are lost: %w", t.lost)
	}
	return nil
}
