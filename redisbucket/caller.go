package redisbucket

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// caller is a call that waits for a renewal of its lease. The mutex of the leases guards
// the fields below done.
type caller struct {
	leases *leases
	lease  *lease
	ctx    context.Context
	cost   float64
	late   time.Duration // the instant at which it has waited as long as the timeout
	done   chan struct{} // of size 1; gets one value, once the caller is settled or late

	settled bool
	gone    bool // it left: its context ended, or it was late
	outcome outcome
	err     error
}

// newCaller returns a caller, from the pool if there is one.
func (t *leases) newCaller(ctx context.Context, l *lease, now time.Duration, cost float64) *caller {
	c, _ := t.callers.Get().(*caller)
	if c == nil {
		c = &caller{done: make(chan struct{}, 1)}
	}
	c.leases, c.lease, c.ctx, c.cost = t, l, ctx, cost
	c.late = timeline.Later(now, t.server.deadlines.timeout)
	return c
}

// await waits until the caller is settled or late, or its context ends.
func (c *caller) await() (outcome, error) {
	select {
	case <-c.done:
	case <-c.ctx.Done():
		if c.leave() {
			return outcome{}, c.explainLeft(c.ctx.Err())
		}
		<-c.done
	}
	if c.gone {
		return outcome{}, c.explainLeft(nil)
	}
	return c.dismiss()
}

// explainLeft returns the error of a caller that left. The cause is the error of the
// caller's context, or nil if the caller was late.
func (c *caller) explainLeft(cause error) error {
	s := c.leases.server
	r := request{key: c.leases.prefix + c.lease.key, price: price{cost: c.cost}}
	name := s.client.Server(r.key)
	if cause != nil {
		return gaveUp(r, name, cause)
	}
	return explain(r, name, errNoAnswer{s.deadlines.timeout}, KindSilent)
}

// dismiss returns the outcome of a settled caller, and puts the caller back into the pool:
// it has left the queue of its lease, so nothing else refers to it. A caller that is gone may
// still be in the queue and must not be put back.
func (c *caller) dismiss() (outcome, error) {
	t, o, err := c.leases, c.outcome, c.err
	*c = caller{done: c.done}
	t.callers.Put(c)
	return o, err
}

// leave marks a caller as gone, and reports false if it was settled or late already: then
// done has a value, or gets one.
func (c *caller) leave() bool {
	c.leases.mu.Lock()
	defer c.leases.unlock()
	if c.settled || c.gone {
		return false
	}
	c.gone = true
	return true
}

// settleLocked sets a caller's outcome, unless the caller has left.
func (c *caller) settleLocked(o outcome, err error) {
	if c.gone {
		return
	}
	c.outcome, c.err, c.settled = o, err, true
	c.leases.served = append(c.leases.served, c)
}

// watchLocked sets the lease's timer to at, the instant at which the first waiting caller is
// late. The timer drops callers that have waited too long for another caller's round trip.
// The caller that began the round trip needs no timer: server.ask returns within the
// timeout.
func (l *lease) watchLocked(t *leases, at time.Duration) {
	if l.watched {
		return
	}
	l.watched = true
	if left := at - t.now(); l.watch == nil {
		l.watch = time.AfterFunc(left, func() { l.dropLate(t) })
	} else {
		l.watch.Reset(left)
	}
}

// dropLate drops the callers that are late.
func (l *lease) dropLate(t *leases) {
	t.mu.Lock()
	defer t.unlock()
	l.watched = false
	now := t.now()
	for _, c := range l.waiting {
		switch {
		case c.gone:
		case c.late > now:
			l.watchLocked(t, c.late)
			return
		default:
			c.gone = true
			t.served = append(t.served, c)
		}
	}
}
