package tokenbucket

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors wrap these and include the bad values; match them with errors.Is. If a call
// returns an error, nothing was taken and nothing was changed.
var (
	// ErrInvalidLimit: a capacity or a refill is out of range, or the number of limits is wrong.
	ErrInvalidLimit = errors.New("tokenbucket: invalid limit")
	// ErrInvalidCost: a cost is negative or NaN, or the number of costs is wrong.
	// Refund and Charge return it for an infinite cost, too.
	ErrInvalidCost = errors.New("tokenbucket: invalid cost")
	// ErrInvalidOption: the value of an option, or a stored state, is out of range.
	ErrInvalidOption = errors.New("tokenbucket: invalid option")
	// ErrCostExceedsCapacity: a cost is above the capacity, so no wait is long enough.
	ErrCostExceedsCapacity = errors.New("tokenbucket: cost exceeds the capacity")
	// ErrTooManyWaiters: the queue is as long as WithMaxWaiters allows.
	ErrTooManyWaiters = errors.New("tokenbucket: too many waiters")
)

// DeadlineError reports that a wait would outlast the context's deadline. Nothing
// was taken. It unwraps to context.DeadlineExceeded.
type DeadlineError struct {
	Wait time.Duration // the wait that the request would need
}

// Error returns a text that names the wait.
func (e *DeadlineError) Error() string {
	if e.Wait == Never {
		return "tokenbucket: the wait would never end, but the context has a deadline: raise the limits, or wait without a deadline until they change"
	}
	return fmt.Sprintf("tokenbucket: the wait of %v would outlast the context's deadline: allow more time or retry after the wait", e.Wait)
}

// Unwrap returns context.DeadlineExceeded.
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// Timeout returns true, so that os.IsTimeout, for example, reports that the error is a
// timeout.
func (e *DeadlineError) Timeout() bool { return true }
