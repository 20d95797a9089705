package tokenbucket

import (
	"errors"
	"time"
)

// Reservation is a place in a bucket's queue. Its methods may be called by any
// number of goroutines.
type Reservation struct {
	bucket *Bucket
	waiter *waiter // nil: its cost was taken at once
}

// Delay returns the time until the reservation is due, and 0 once it is due and its cost has
// been taken. The time may shrink when others cancel or tokens are refunded, and grow when
// the bucket is charged or paused. So call Delay again after sleeping. Delay returns Never
// for a reservation that was cancelled, or whose cost is above the capacity since the limits
// changed.
func (r *Reservation) Delay() time.Duration {
	if r.waiter == nil {
		return 0
	}
	now := r.bucket.lock()
	defer r.bucket.mu.Unlock()
	return r.bucket.queue.delay(now, r.waiter)
}

// Cancel gives up the place in the queue and returns true; the waiters behind move up. Once
// the reservation is due, or has left the queue otherwise, Cancel changes nothing and returns
// false. To give back the tokens of a reservation that was due, call Refund.
func (r *Reservation) Cancel() bool {
	if r.waiter == nil {
		return false
	}
	now := r.bucket.lock()
	defer r.bucket.mu.Unlock()
	return r.bucket.queue.abandon(now, r.waiter, errCancelled)
}

var errCancelled = errors.New("tokenbucket: reservation cancelled")
