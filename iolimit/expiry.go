package iolimit

import (
	"context"
	"os"
	"sync"
	"time"
)

// expiry ends the calls of one direction of a connection when its deadline passes, and
// when it is closed.
//
// Giving each call a context with the deadline would be simpler. But the deadline may
// move while a call waits. And Bucket.Wait fails at once if the wait would outlast the
// context's deadline, whereas a call of a connection must wait until the deadline passes.
type expiry struct {
	mu     sync.Mutex
	ctx    context.Context // for calls that begin now; it has no deadline of its own
	cancel context.CancelCauseFunc
	timer  *time.Timer // nil: no deadline, or one that had passed when it was set
	ended  bool
}

func newExpiry() *expiry {
	e := &expiry{}
	e.renewLocked()
	return e
}

// context returns the context of a call that begins now. The cause of the context says
// why it ended.
func (e *expiry) context() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ctx
}

// set moves the deadline, also for calls under way. The zero time means no deadline.
func (e *expiry) set(deadline time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.resetLocked()
	if deadline.IsZero() {
		return
	}
	cancel := e.cancel
	if left := time.Until(deadline); left > 0 {
		e.timer = time.AfterFunc(left, func() { cancel(os.ErrDeadlineExceeded) })
	} else {
		cancel(os.ErrDeadlineExceeded)
	}
}

// end ends all calls with a cause, those under way and later ones. Only the first end counts.
func (e *expiry) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.ended = true
	e.resetLocked()
	e.cancel(cause)
}

// resetLocked removes the deadline. If it has passed, later calls get a new context.
func (e *expiry) resetLocked() {
	passed := e.timer != nil && !e.timer.Stop() // the timer has cancelled the context, or is about to
	e.timer = nil
	if passed || e.ctx.Err() != nil {
		e.renewLocked()
	}
}

func (e *expiry) renewLocked() {
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
}
