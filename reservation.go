package tokenbucket

import (
	"errors"
	"time"
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
	now := r.bucket.lock()
	defer r.bucket.mu.Unlock()
	return r.bucket.queue.delay(now, r.waiter)
}

// Cancel gives the place in the queue up, so that those behind it move up, and
// returns true. It returns false, and changes nothing, once the reservation is
// due or has left the queue otherwise; Refund gives tokens back then.
func (r *Reservation) Cancel() bool {
	if r.waiter == nil {
		return false
	}
	now := r.bucket.lock()
	defer r.bucket.mu.Unlock()
	return r.bucket.queue.abandon(now, r.waiter, errCancelled)
}

var errCancelled = errors.New("tokenbucket: reservation cancelled")
