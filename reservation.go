package tokenbucket

import (
	"errors"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// Reservation is a place in a bucket's queue. Its methods may be called by any
// number of goroutines.
type Reservation struct {
	bucket *Bucket
	waiter *waiter // nil: paid at once
}

// Delay returns how long to wait until the reservation is due and paid, then 0.
// It may shrink when others cancel or tokens are refunded, and grow when the
// bucket is charged or paused: when it has passed, ask again. It is Never for a
// reservation that was cancelled, or whose cost is above the capacity since the
// limits changed.
func (r *Reservation) Delay() time.Duration {
	if r.waiter == nil {
		return 0
	}
	b := r.bucket
	now, _ := b.lock()
	defer b.mu.Unlock()
	switch {
	case !r.waiter.left:
		b.planLocked(r.waiter)
		return timeline.Until(now, r.waiter.due)
	case r.waiter.err != nil:
		return Never
	default:
		return 0
	}
}

// Cancel gives the place in the queue up, so that those behind it move up, and
// returns true. It returns false, and changes nothing, once the reservation is
// due or has left the queue otherwise; Refund gives tokens back then.
func (r *Reservation) Cancel() bool {
	if r.waiter == nil {
		return false
	}
	b := r.bucket
	b.lock()
	defer b.mu.Unlock()
	if r.waiter.left {
		return false
	}
	b.abandonLocked(r.waiter, errCancelled)
	return true
}

var errCancelled = errors.New("tokenbucket: reservation cancelled")
