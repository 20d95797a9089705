package redisbucket

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// beginLocked lets an exchange begin, unless tokens that have expired are to go back
// before.
func (t *leases) beginLocked(l *lease) bool {
	if l.hasExpired(t.now()) {
		t.giveBackLocked(l)
		return false
	}
	t.leaveIdleLocked(l)
	t.underWay.Add(1)
	return true
}

// lead exchanges on behalf of all who wait. The caller does it itself if it can wait
// for the answer: another goroutine would take as long to wake as the answer does.
func (t *leases) lead(ctx context.Context, l *lease) {
	if t.server.canWait(ctx) {
		t.exchange(l)
	} else {
		go t.exchange(l)
	}
}

// exchange asks the server for what the first who waits is short of, and for as much
// more as the lease holds. However that ends, by a panic even of the error handler that
// the caller recovers from, nobody is left waiting.
func (t *leases) exchange(l *lease) {
	defer t.underWay.Done()
	t.gather(l)
	ctx, r, asked := t.newRequest(l)
	a, err := answer(""), errBrokenOff
	defer func() {
		t.mu.Lock()
		defer t.unlock()
		if err == nil {
			err = t.heedLocked(l, r, a, asked)
		}
		t.serveLocked(l, err)
	}()
	a, err = t.server.ask(ctx, r)
}

// gather lets those come who are about to, so that what they need is asked for, too.
// It yields until nobody comes any more, but not for long.
func (t *leases) gather(l *lease) {
	for before, n, turn := 0, 1, 0; n > before && turn < 4; turn++ {
		runtime.Gosched()
		t.mu.Lock()
		before, n = n, len(l.waiting)
		t.mu.Unlock()
	}
}

// newRequest returns what is to be taken for those who wait, and besides up to a whole
// lease.
func (t *leases) newRequest(l *lease) (ctx context.Context, r request, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, others := l.waiting[0], 0.0
	for _, c := range l.waiting[1:] {
		if !c.gone {
			others += c.cost
		}
	}
	r = request{key: t.prefix + l.key, price: price{cost: first.cost - l.tokens}, further: t.size - first.cost + others}
	return context.WithoutCancel(first.ctx), r, t.now()
}

// heedLocked notes what the server answered, and settles the first who waits by it.
func (t *leases) heedLocked(l *lease, r request, a answer, asked time.Duration) error {
	now, states, err := a.states(t.server.limits, r)
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
	l.waiting = slices.Delete(l.waiting, 0, 1)
	return c
}

// serveLocked serves those who have waited for an exchange that is over, in order of
// arrival, until one of them needs another exchange.
func (t *leases) serveLocked(l *lease, err error) {
	l.refunding = false
	n, now := 0, t.now()
	for n < len(l.waiting) && t.serveOneLocked(l, l.waiting[n], now, err) {
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	if len(l.waiting) > 0 {
		if t.beginLocked(l) {
			go t.exchange(l)
		}
		return
	}
	l.place = t.idle.PushFront(l)
	if t.closed || l.tokens > t.size || (l.tokens == 0 && !l.stands) {
		t.endLocked(l)
		return
	}
	t.setSweeperLocked(l.ends())
}

// serveOneLocked settles a caller, unless the server has to be asked for it.
func (t *leases) serveOneLocked(l *lease, c *caller, now time.Duration, err error) bool {
	if c.gone {
		return true
	}
	o, ok := l.decide(t.limits, now, c.cost)
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
