package redisbucket

import "context"

// caller waits for an outcome.
type caller struct {
	ctx     context.Context
	cost    float64
	done    chan struct{} // has room for one, which is sent once it is settled
	settled bool
	gone    bool // it does not wait any more
	outcome outcome
	err     error
}

// newCaller returns one that has been here before, if there is any.
func (t *leases) newCaller(ctx context.Context, cost float64) *caller {
	c, _ := t.callers.Get().(*caller)
	if c == nil {
		c = &caller{done: make(chan struct{}, 1)}
	}
	c.ctx, c.cost = ctx, cost
	return c
}

// await waits until a caller is settled or loses patience.
func (t *leases) await(ctx context.Context, l *lease, c *caller) (outcome, error) {
	late := t.server.deadlines.next()
	select {
	case <-c.done:
		return t.dismiss(c)
	case <-late.Done():
	case <-ctx.Done():
	}
	if !t.leave(c) {
		<-c.done
		return t.dismiss(c)
	}
	r := request{key: t.prefix + l.key, cost: c.cost}
	name := t.server.nameFor(r.key)
	if err := ctx.Err(); err != nil {
		return outcome{}, gaveUp(r, name, err)
	}
	return outcome{}, explain(r, name, errNoAnswer{t.server.deadlines.timeout})
}

// dismiss returns what a caller has waited for, and keeps it for whoever comes next:
// nobody else knows it any more.
func (t *leases) dismiss(c *caller) (outcome, error) {
	o, err := c.outcome, c.err
	*c = caller{done: c.done}
	t.callers.Put(c)
	return o, err
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

// unlock unlocks, and then wakes those who have been served: while it is locked they
// would only wait again.
func (t *leases) unlock() {
	served := t.served
	t.served = nil
	t.mu.Unlock()
	for _, c := range served {
		c.done <- struct{}{}
	}
}
