package redisbucket

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// renewal is a round trip to the server that renews a lease, for all callers that wait.
type renewal struct {
	*leases
	l *lease
}

// beginLocked marks the renewal as under way, and reports true. If expired tokens have to be
// given back first, it starts that instead and reports false; the renewal follows.
func (r renewal) beginLocked() bool {
	if r.l.hasExpired(r.now()) {
		r.giveBackLocked(r.l)
		return false
	}
	r.table.stir(r.l)
	r.underWay.Add(1)
	return true
}

// lead carries the renewal out, in the caller's goroutine if the caller can wait for the
// answer: waking another goroutine would take as long as the answer.
func (r renewal) lead(ctx context.Context) {
	if r.server.canWait(ctx) {
		r.carryOut()
	} else {
		go r.carryOut()
	}
}

// carryOut sends the request that newRequest returns, and serves the callers. No caller is
// left waiting if it panics, for example in the error handler.
func (r renewal) carryOut() {
	defer r.underWay.Done()
	r.gather()
	ctx, req, asked := r.newRequest()
	a, err := answer(""), errBrokenOff
	defer func() {
		r.mu.Lock()
		defer r.unlock()
		if err == nil {
			err = r.heedLocked(req, a, asked)
		}
		r.serveLocked(err)
	}()
	a, err = r.server.ask(ctx, req)
}

// gather yields to goroutines that are about to call, so that the request includes their
// costs. It ends when no more come, or after four turns.
func (r renewal) gather() {
	for before, n, turn := 0, 1, 0; n > before && turn < 4; turn++ {
		runtime.Gosched()
		r.mu.Lock()
		before, n = n, len(r.l.waiting)
		r.unlock()
	}
}

// newRequest returns a request for up to a whole lease, from which the first caller is served,
// and in addition for the costs of the other callers. The server admits it if the bucket
// has the tokens that the first caller lacks. It takes as many of the further tokens as the
// bucket has.
func (r renewal) newRequest() (ctx context.Context, req request, now time.Duration) {
	r.mu.Lock()
	defer r.unlock()
	first, others := r.l.waiting[0], 0.0
	for _, c := range r.l.waiting[1:] {
		if !c.gone {
			others += c.cost
		}
	}
	req = request{key: r.prefix + r.l.key, price: price{cost: first.cost - r.l.tokens}, further: r.size - first.cost + others}
	return context.WithoutCancel(first.ctx), req, r.now()
}

// heedLocked notes the server's answer, and settles the first caller by it.
func (r renewal) heedLocked(req request, a answer, asked time.Duration) error {
	now, states, err := a.states(r.server.limits, req)
	if err != nil {
		return err
	}
	l := r.l
	l.seen, l.stands = &reading{states, now, asked, r.now()}, !l.refunding
	c := l.next()
	if !a.admitted() {
		wait, _ := r.limits.TryAcquire(slices.Clone(states), now, c.cost-l.tokens)
		c.settleLocked(l.refuseFor(l.seen.arrived, wait), nil)
		return nil
	}
	l.gain(r.limits, req.cost+a.further(), r.maxAge)
	if !c.gone { // otherwise its tokens stay in the lease
		c.settleLocked(l.grant(l.seen.arrived, c.cost), nil)
	}
	return nil
}

// serveLocked serves the callers after a round trip, in order of arrival, until one of them
// needs another renewal. err is the error of the round trip, nil if it succeeded.
func (r renewal) serveLocked(err error) {
	l := r.l
	l.refunding = false
	n, now := 0, r.now()
	for n < len(l.waiting) && r.serveOneLocked(l.waiting[n], now, err) {
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	if len(l.waiting) > 0 {
		if r.beginLocked() {
			go r.carryOut()
		}
		return
	}
	r.table.rest(l)
	// The lease has more than its size if callers left: it got tokens for them.
	if r.closed || l.tokens > r.size || (l.tokens == 0 && !l.stands) {
		r.endLocked(l)
		return
	}
	r.setSweeperLocked(l.ends())
}

// serveOneLocked settles a caller. It reports false if only another renewal can.
func (r renewal) serveOneLocked(c *caller, now time.Duration, err error) bool {
	if c.gone {
		return true
	}
	o, ok := r.l.decide(r.limits, now, c.cost)
	switch {
	case ok:
		err = nil
	case err != nil:
	case r.closed:
		err = errNotLeased
	default:
		return false
	}
	c.settleLocked(o, err)
	return true
}
