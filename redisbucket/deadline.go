package redisbucket

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines hands out contexts that end within the timeout. Setting a timer for
// each call costs more than the call's arithmetic, so calls at about the same time
// share one, which leaves them a sixteenth less at worst.
type deadlines struct {
	timeout time.Duration
	latest  atomic.Pointer[deadline]
}

type deadline struct {
	context.Context
	cancel context.CancelFunc // never called: the timer ends it
	until  time.Time          // when the next one is due
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
