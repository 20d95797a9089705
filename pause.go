package tokenbucket

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// WaitPause waits until the bucket is not paused, and returns how long it waited by the
// bucket's clock. If the bucket is not paused, it returns 0 at once. If the pause becomes
// longer meanwhile, WaitPause waits until its new end. Fill ends the wait at once. WaitPause
// takes no tokens and has no place in the queue.
//
// It returns the context's error if the context ends before the pause does.
//
// WaitPause is for callers that have taken their tokens but not yet begun, such as an HTTP
// client whose request still waits for a connection. Callers of Wait do not need it.
func (b *Bucket) WaitPause(ctx context.Context) (waited time.Duration, err error) {
	if b.epoch.Load() != nil { // it ends before a pause begins
		return 0, nil
	}
	since, h := b.hold()
	if h == nil {
		return 0, nil
	}
	for {
		select {
		case <-b.setAlarm(h):
		case <-h.nudges:
		case <-ctx.Done():
		}
		if now, released := b.release(ctx, h); released {
			return timeline.Until(since, now), h.err
		}
	}
}

// hold is a caller of WaitPause. It is not in the queue: it does not wait for the waiters
// there, and they do not wait for it.
type hold struct {
	nudges chan struct{} // one is sent when the pause ends early
	timer  *time.Timer   // of the system clock; nil: none yet
	ends   time.Duration // the end of the pause, as far as the hold knows
	asleep bool          // its timer is set
	err    error
}

// hold adds a hold if the bucket is paused.
func (b *Bucket) hold() (since time.Duration, h *hold) {
	now := b.lock()
	defer b.mu.Unlock()
	if at := b.queue.advance(now); at >= b.queue.opens {
		return 0, nil
	}
	h = &hold{nudges: make(chan struct{}, 1), ends: b.queue.opens}
	if b.holds == nil {
		b.holds = map[*hold]struct{}{}
	}
	b.holds[h] = struct{}{}
	return now, h
}

// setAlarm sets the timer of a hold that is about to sleep. Like setTimer, it calls the clock
// without the lock. It also reads h.ends without the lock: only the goroutine that sleeps
// writes it.
func (b *Bucket) setAlarm(h *hold) <-chan time.Time {
	var timer <-chan time.Time
	if h.ends != Never {
		timer = b.startTimer(h.ends, &h.timer)
	}
	b.mu.Lock()
	h.asleep = len(h.nudges) == 0
	b.mu.Unlock()
	return timer
}

// release removes a hold that woke, if the pause or its context has ended.
func (b *Bucket) release(ctx context.Context, h *hold) (now time.Duration, released bool) {
	now = b.lock()
	defer b.mu.Unlock()
	paused := b.queue.advance(now) < b.queue.opens
	h.asleep = false
	if paused && ctx.Err() == nil {
		h.ends = b.queue.opens
		return now, false
	}
	if paused {
		h.err = ctx.Err()
	}
	if delete(b.holds, h); len(b.holds) == 0 {
		b.holds = nil // an empty map keeps its memory
	}
	return now, true
}

// nudgeHoldsLocked wakes every hold, since the pause has ended early.
func (b *Bucket) nudgeHoldsLocked() {
	for h := range b.holds {
		select {
		case h.nudges <- struct{}{}:
		default:
		}
	}
}

// sleepingHoldsLocked returns how many holds sleep with their timers set.
func (b *Bucket) sleepingHoldsLocked() (sleeping int) {
	for h := range b.holds {
		if h.asleep && h.ends > b.queue.latest {
			sleeping++
		}
	}
	return sleeping
}
