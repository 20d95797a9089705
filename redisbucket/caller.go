package redisbucket

import (
	"context"
	"time"
)

// caller waits for an outcome.
type caller struct {
	ctx     context.Context
	cost    float64
	late    time.Duration // when it has waited for as long as the timeout says
	done    chan struct{} // has room for one, which is sent once it is settled or late
	settled bool
	gone    bool // it does not wait any more
	outcome outcome
	err     error
}

// newCaller returns one that has been here before, if there is any.
func (t *leases) newCaller(ctx context.Context, now time.Duration, cost float64) *caller {
	c, _ := t.callers.Get().(*caller)
	if c == nil {
		c = &caller{done: make(chan struct{}, 1)}
	}
	c.ctx, c.late, c.cost = ctx, now+t.server.deadlines.timeout, cost
	return c
}

// await waits until a caller is settled or loses patience.
func (t *leases) await(ctx context.Context, l *lease, c *caller) (outcome, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		if t.leave(c) {
			return outcome{}, t.explainLeft(l, c, ctx.Err())
		}
		<-c.done
	}
	if c.gone {
		return outcome{}, t.explainLeft(l, c, nil)
	}
	return t.dismiss(c)
}

// explainLeft tells why a caller left, for its context's error or since it was late.
func (t *leases) explainLeft(l *lease, c *caller, cause error) error {
	r := request{key: t.prefix + l.key, price: price{cost: c.cost}}
	name := t.server.client.Server(r.key)
	if cause != nil {
		return gaveUp(r, name, cause)
	}
	return explain(r, name, errNoAnswer{t.server.deadlines.timeout}, KindSilent)
}

// dismiss returns what a caller has waited for, and keeps it for whoever comes next:
// nobody else knows it any more.
func (t *leases) dismiss(c *caller) (outcome, error) {
	o, err := c.outcome, c.err
	*c = caller{done: c.done}
	t.callers.Put(c)
	return o, err
}

// leave lets a caller go, unless it is settled or late already.
func (t *leases) leave(c *caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.settled || c.gone {
		return false
	}
	c.gone = true
	return true
}

// watchLocked lets those go in time who wait for what others exchange, the first of
// them at an instant. Who leads has no timer: the server's answer ends in time by itself.
func (t *leases) watchLocked(l *lease, at time.Duration) {
	if l.watched {
		return
	}
	l.watched = true
	if left := at - t.now(); l.watch == nil {
		l.watch = time.AfterFunc(left, func() { t.dropLate(l) })
	} else {
		l.watch.Reset(left)
	}
}

// dropLate lets those go who are late.
func (t *leases) dropLate(l *lease) {
	t.mu.Lock()
	defer t.unlock()
	l.watched = false
	now := t.now()
	for _, c := range l.waiting {
		switch {
		case c.gone:
		case c.late > now:
			t.watchLocked(l, c.late)
			return
		default:
			c.gone = true
			t.served = append(t.served, c)
		}
	}
}

func (t *leases) settleLocked(c *caller, o outcome, err error) {
	if c.gone {
		return
	}
	c.outcome, c.err, c.settled = o, err, true
	t.served = append(t.served, c)
}

// unlock unlocks, and then wakes those whose wait is over: before, they would only wait
// for the lock.
func (t *leases) unlock() {
	served := t.served
	t.served = nil
	t.mu.Unlock()
	for _, c := range served {
		c.done <- struct{}{}
	}
}
