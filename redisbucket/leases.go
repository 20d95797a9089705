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

// leases are the tokens, by key, that a process has taken from the server and not spent
// yet. They make many decisions with one request to the server:
//
//   - Tokens are taken on the server before they are spent in the process.
//   - As long as nothing is given back, a key's bucket has at most the tokens of the server's
//     last answer and the refill since then. A cost that these and the lease cannot cover is
//     refused in the process.
//   - Each key has at most one renewal under way, on behalf of all callers that wait. Callers
//     that come meanwhile wait for it too, and are served in order of arrival.
//
// A lease is not renewed before it is used up. It holds no more than its size, so an early
// renewal could take only the missing part, and many callers would soon spend that. The
// renewal of an empty lease takes a whole lease, from which the first caller is served, and
// in addition the costs of the other callers. Such a lease lasts longer.
//
// All instants count from origin, by the local monotonic clock. One timer, the sweeper, ends
// all leases. It is set only while there are leases.
type leases struct {
	server *server
	limits tokenbucket.Limits
	prefix string
	size   float64 // tokens that a lease holds at most
	maxAge time.Duration
	origin time.Time

	callers sync.Pool // of *caller that nothing refers to

	mu       sync.Mutex
	table    leaseTable
	sweeper  *time.Timer
	sweepAt  time.Duration // when the sweeper is due; Never if it is not set
	served   []*caller     // unlock wakes them
	closed   bool
	lost     error          // the first error of giving a lease back after close
	underWay sync.WaitGroup // round trips: renewals, and leases that are given back
}

// errNotLeased says that the server has to decide.
var errNotLeased = errors.New("redisbucket: not leased")

// errBrokenOff says that the goroutine of a round trip ended before the round trip did.
var errBrokenOff = fmt.Errorf("%w: the goroutine that asked the server for all callers panicked or ended: correct the error handler or the client's hooks", ErrUnavailable)

func newLeases(s *server, c config) *leases {
	if c.lease == nil || len(s.limits.asked) == 0 {
		return nil
	}
	t := &leases{
		server:  s,
		limits:  c.limits,
		prefix:  c.prefix,
		size:    min(c.lease.tokens, c.limits.Tokens(full(c.limits), 0)), // no bucket has more
		maxAge:  c.lease.maxAge,
		origin:  time.Now(),
		table:   newLeaseTable(c.lease.maxAge),
		sweepAt: tokenbucket.Never,
	}
	s.onGiveBack = t.refunded
	return t
}

// covers reports whether leases decide a cost: t is not nil, and the cost is in (0, size].
func (t *leases) covers(cost float64) bool {
	return t != nil && cost > 0 && cost <= t.size
}

func (t *leases) now() time.Duration { return time.Since(t.origin) }

// unlock unlocks mu, and then wakes the served callers. If it woke them earlier, they
// would only wait for mu. The sends do not block: each caller gets one value.
func (t *leases) unlock() {
	served := t.served
	t.served = nil
	t.mu.Unlock()
	for _, c := range served {
		c.done <- struct{}{}
	}
}

// take decides by the key's lease. It returns errNotLeased if the key has no lease and
// does not get one.
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

// takeOrWait decides at once if it can. Otherwise it returns a caller that has to wait, and
// renews the lease if no round trip is under way.
func (t *leases) takeOrWait(ctx context.Context, key string, cost float64) (o outcome, c *caller, err error) {
	now := t.now() // outside the lock: it takes as long as all the rest
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

// peek returns the Decision that take would return, if take would not ask the server.
// Otherwise ok is false, and held is the number of tokens that the lease holds.
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
	sketch := *l // a copy: decide changes the lease
	if o, ok := sketch.decide(t.limits, now, cost); ok && l.place != nil {
		return o.decision(t.limits, cost), 0, true
	}
	return d, l.tokens, false
}

// leaseOfLocked returns the key's lease, a new one if the key gets one now, or nil.
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

// makeRoomLocked looks at the eight leases that were used least recently, ends those that are
// over or have no tokens, and reports whether there is room then. Leases with tokens stay:
// giving one back costs as many round trips as a new one saves.
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

// giveBackLocked starts to give the tokens back. Callers that come meanwhile wait until the
// server has the tokens, so that its next answer counts these tokens.
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

// setSweeperLocked sets the sweeper to an instant, unless it is due earlier.
func (t *leases) setSweeperLocked(at time.Duration) {
	if at >= t.sweepAt {
		return
	}
	t.sweepAt = at
	if wait := at - t.now(); t.sweeper == nil {
		t.sweeper = time.AfterFunc(wait, t.sweep)
	} else {
		t.sweeper.Reset(wait)
	}
}

// sweep ends the leases that are over. It sets its next run at least maxAge/16 later, so tokens
// may be given back later by that much. A round trip may set an earlier run.
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
	t.sweepAt = tokenbucket.Never
	if next != tokenbucket.Never {
		t.setSweeperLocked(max(next, now+t.maxAge/16))
	}
}

// refunded notes that tokens were given back to a key's bucket on the server. From now on, the
// key's lease must not refuse costs by the server's last answer.
func (t *leases) refunded(stored string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.unlock()
	t.refundedLocked(stored)
}

// forget drops the tokens of a key's lease, since the bucket on the server is full again. If a
// round trip is under way, the tokens stay: its request was made with them in mind.
func (t *leases) forget(stored string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.unlock()
	if l := t.refundedLocked(stored); l != nil && l.place != nil {
		l.tokens = 0
	}
}

// refundedLocked returns the key's lease, nil if there is none.
func (t *leases) refundedLocked(stored string) *lease {
	l := t.table.byKey[strings.TrimPrefix(stored, t.prefix)]
	if l != nil {
		l.stands, l.refunding = false, l.place == nil
	}
	return l
}

// close gives all leases back, and lets no new one begin.
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
