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

// MaxLeases is how many keys a process has leases of at once. Requests for others go
// straight to the server until there is room.
const MaxLeases = 1024

// maxUntried is how many keys have leases at most when one gets a lease at its first request.
// Further keys have to be asked for again within the age of a lease.
const maxUntried = 4

// leases are the tokens that a process has taken from the server and not spent yet,
// by key. It asks the server once for many decisions:
//
//   - Tokens are taken on the server before they are spent here.
//   - What the server told bounds what it has, as long as nothing is given back: what
//     it would refuse by that is refused here.
//   - For each key one exchange with the server is under way at most, on behalf of
//     all who wait. Who comes meanwhile waits for it, and is served in order of arrival.
//
// It is tempting to ask before a lease is used up. But it holds no more than its size,
// so that asks for the missing part only, and the more callers there are the less it
// brings. A whole lease, with what all who wait need besides, lasts longer.
//
// All times are counted from an origin by the local monotonic clock. One timer ends
// all leases, and is set only while there are any. Another for each key lets those go
// in time who wait for what others exchange, and is set only while there are any.
type leases struct {
	server *server
	limits tokenbucket.Limits
	prefix string
	size   float64 // tokens that a lease holds at most
	maxAge time.Duration
	origin time.Time

	callers sync.Pool // of *caller, who are served and gone
	recent  *recent   // guarded by mu

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

// errNotLeased says that the server is to decide.
var errNotLeased = errors.New("redisbucket: not leased")

// errBrokenOff says that an exchange had no end.
var errBrokenOff = fmt.Errorf("%w: who asked for all panicked, or ended its goroutine: mend the error handler or the client's hooks", ErrUnavailable)

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
		byKey:  map[string]*lease{},
		next:   tokenbucket.Never,
		recent: newRecent(c.lease.maxAge),
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
	now := t.now() // that takes as long as all else, and nobody is locked out for it
	t.mu.Lock()
	l := t.findLocked(key, now)
	if l == nil {
		t.mu.Unlock()
		return outcome{}, errNotLeased
	}
	if l.place != nil {
		if o, ok := l.decide(t.limits, now, cost); ok {
			t.idle.MoveToFront(l.place)
			t.mu.Unlock()
			return o, nil
		}
	}
	c := t.newCaller(ctx, now, cost)
	l.waiting = append(l.waiting, c)
	leads := l.place != nil && t.beginLocked(l)
	if !leads {
		t.watchLocked(l, c.late)
	}
	t.mu.Unlock()
	if leads {
		t.lead(ctx, l)
	}
	return t.await(ctx, l, c)
}

// peek returns what take would return, if it would not ask the server; otherwise the
// tokens that are held here.
func (t *leases) peek(key string, cost float64) (d tokenbucket.Decision, held float64, ok bool) {
	if !t.covers(cost) {
		return d, 0, false
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.byKey[key]
	if l == nil {
		return d, 0, false
	}
	sketch := *l // what it decides changes nothing
	if o, ok := sketch.decide(t.limits, now, cost); ok && l.place != nil {
		return o.tell(t.limits, cost), 0, true
	}
	return d, l.tokens, false
}

// findLocked returns the key's lease, a new one if there is none. It returns nil if the key
// is hardly asked for, or there is no room.
func (t *leases) findLocked(key string, now time.Duration) *lease {
	if t.closed {
		return nil
	}
	if l := t.byKey[key]; l != nil {
		l.used = now
		return l
	}
	if again := t.recent.note(key, now); !again && len(t.byKey) >= maxUntried {
		return nil
	}
	if len(t.byKey) >= MaxLeases && !t.makeRoomLocked(now) {
		return nil
	}
	l := &lease{key: strings.Clone(key), used: now}
	l.place = t.idle.PushFront(l)
	t.byKey[l.key] = l
	return l
}

// makeRoomLocked ends a lease that is of no use any more, or has no tokens left, of those
// that were used least recently. The others stay: to give one back costs as much as it saves.
func (t *leases) makeRoomLocked(now time.Duration) bool {
	for e, looked := t.idle.Back(), 0; e != nil && looked < 8; looked++ {
		l := e.Value.(*lease)
		e = e.Prev()
		if l.tokens == 0 || l.ends() <= now {
			t.endLocked(l)
		}
	}
	return len(t.byKey) < MaxLeases
}

// endLocked ends the lease of a key that has nothing under way.
func (t *leases) endLocked(l *lease) {
	t.recent.note(l.key, l.used)
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
	r := request{key: t.prefix + l.key, price: price{cost: -l.tokens}}
	l.tokens, l.stands = 0, false
	t.leaveIdleLocked(l)
	t.underWay.Go(func() {
		err := errBrokenOff
		defer func() {
			t.mu.Lock()
			defer t.unlock()
			if t.closed && t.lost == nil {
				t.lost = err
			}
			t.serveLocked(l, nil)
		}()
		_, err = t.server.ask(context.Background(), r)
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
