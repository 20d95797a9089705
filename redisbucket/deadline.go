package redisbucket

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines makes contexts that end within the timeout. A timer for each call costs more
// than the call's arithmetic, so calls at about the same time share one. A call then
// has at least 15/16 of the timeout.
type deadlines struct {
	timeout time.Duration
	latest  atomic.Pointer[deadline]
}

type deadline struct {
	context.Context
	cancel context.CancelFunc // never called: the timer ends the context
	until  time.Time          // calls from then on get a new deadline
}

// bounded has the values of one context and the end of another.
type bounded struct {
	context.Context
	values context.Context
}

func (b bounded) Value(key any) any { return b.values.Value(key) }

// after returns a context with the values of ctx that ends within the timeout.
func (d *deadlines) after(ctx context.Context) context.Context {
	now := time.Now()
	latest := d.latest.Load()
	if latest == nil || !now.Before(latest.until) {
		end, cancel := context.WithDeadline(context.Background(), now.Add(d.timeout))
		latest = &deadline{end, cancel, now.Add(d.timeout / 16)}
		d.latest.Store(latest)
	}
	return bounded{latest, ctx}
}
