package redisbucket

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// caller waits for an outcome. The mutex of the leases guards what follows done.
type caller struct {
	leases *leases
	lease  *lease
	ctx    context.Context
	cost   float64
	late   time.Duration // when it has waited for as long as the timeout says
	done   chan struct{} // has room for one, which is sent once it is settled or late

	settled bool
	gone    bool // it does not wait any more
	outcome outcome
	err     error
}

// newCaller returns one that has been used before, if there is any.
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

// explainLeft returns why a caller left: its context's error, or that it was late.
func (c *caller) explainLeft(cause error) error {
	s := c.leases.server
	r := request{key: c.leases.prefix + c.lease.key, price: price{cost: c.cost}}
	name := s.client.Server(r.key)
	if cause != nil {
		return gaveUp(r, name, cause)
	}
	return explain(r, name, errNoAnswer{s.deadlines.timeout}, KindSilent)
}

// dismiss returns what a caller has waited for, and keeps it to be used again: nothing
// else refers to it any more.
func (c *caller) dismiss() (outcome, error) {
	t, o, err := c.leases, c.outcome, c.err
	*c = caller{done: c.done}
	t.callers.Put(c)
	return o, err
}

// leave lets a caller go, unless it is settled or late already.
func (c *caller) leave() bool {
	c.leases.mu.Lock()
	defer c.leases.unlock()
	if c.settled || c.gone {
		return false
	}
	c.gone = true
	return true
}

// settleLocked gives a caller its outcome, unless it has left.
func (c *caller) settleLocked(o outcome, err error) {
	if c.gone {
		return
	}
	c.outcome, c.err, c.settled = o, err, true
	c.leases.served = append(c.leases.served, c)
}

// watchLocked lets callers go that wait for too long for what another one has asked for, the first of
// them at an instant. The one that asks has no timer: the server's answer ends in time by itself.
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

// dropLate lets the callers go that are late.
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
