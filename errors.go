package tokenbucket

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors to match with errors.Is; what is returned wraps them with the numbers
// that offend. Whichever comes back, nothing was taken and nothing was changed.
var (
	ErrInvalidLimit        = errors.New("tokenbucket: invalid limit")
	ErrInvalidCost         = errors.New("tokenbucket: invalid cost")
	ErrInvalidOption       = errors.New("tokenbucket: invalid option")
	ErrCostExceedsCapacity = errors.New("tokenbucket: cost exceeds the capacity")
	ErrTooManyWaiters      = errors.New("tokenbucket: too many waiters")
)

// DeadlineError says that a wait would outlast the context's deadline. Nothing
// was taken. It unwraps to context.DeadlineExceeded.
type DeadlineError struct {
	Wait time.Duration // what the request would have had to wait
}

func (e *DeadlineError) Error() string {
	if e.Wait == Never {
		return "tokenbucket: the wait would never end, but the context has a deadline: wait without one for the limits to change"
	}
	return fmt.Sprintf("tokenbucket: the wait of %v would outlast the context's deadline: allow more time or retry after the wait", e.Wait)
}

// Unwrap returns context.DeadlineExceeded.
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// Timeout returns true, as net.Error has it.
func (e *DeadlineError) Timeout() bool { return true }
