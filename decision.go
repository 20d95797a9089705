package tokenbucket

import (
	"math"
	"time"
)

// Decision is the answer to one request, with all that response headers need. With several
// limits, Limit and Tokens describe one of them, the limit that binds. After a refusal,
// that is the limit with the longest wait. After an admission, it is the limit that would
// make the same request wait longest if it came again. On a tie it is the first of them. A
// limit with a cost of 0 does not count.
type Decision struct {
	OK     bool          // whether the request was admitted
	Wait   time.Duration // until the same request would be admitted: 0 if OK, Never if no wait is long enough
	Tokens float64       // left after this decision, minus the costs of callers in the queue; may be below 0
	Limit  Limit

	// LimitIndex is the index of the limit that Limit and Tokens describe, in the order
	// of Limits. It is -1 if Limit is zero.
	LimitIndex int

	held  bool          // a queue or a pause holds the next request back
	reset time.Duration // the result of Reset if held

	isShort bool    // another limit has fewer tokens left than the one that binds
	least   float64 // how many, if isShort
}

// Remaining returns the largest whole cost that would be admitted now, in tokens, 0 or
// more. If the request had one cost for all limits, Remaining takes all limits into
// account, otherwise only the limit that binds.
func (d Decision) Remaining() int64 {
	tokens := d.Tokens
	if d.isShort {
		tokens = d.least
	}
	switch {
	case d.held || !(tokens > 0):
		return 0
	case tokens >= math.MaxInt64:
		return math.MaxInt64
	default:
		return int64(tokens)
	}
}

// Reset returns the time until the bucket is full if nothing more is taken: 0 if it is full
// now, Never beyond 292 years. With a queue, the bucket fills after the last waiter is
// served. With several limits, Reset is the time until the limit in Limit is full.
//
// Reset is computed from Tokens, which is rounded. So Reset may be a nanosecond too long
// if the bucket was last full a long time ago. It may be too short by 2^-50 of the time
// that an empty bucket needs to fill, which is more than a nanosecond if that takes
// weeks. A cost of the whole capacity is admitted even then.
func (d Decision) Reset() time.Duration {
	if d.held {
		return d.reset
	}
	return d.Limit.wait(State{Balance: d.Tokens}, 0, d.Limit.Capacity)
}

// RetryAfter returns RetryAfter(d.Wait): the wait in whole seconds, rounded up.
func (d Decision) RetryAfter() (seconds int64, ok bool) { return RetryAfter(d.Wait) }
