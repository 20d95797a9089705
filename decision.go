package tokenbucket

import (
	"math"
	"time"
)

// Decision is the answer to one request, with everything that a response header
// needs. With several limits its figures are those of the limit that binds: on a
// refusal the one with the longest wait, on admission the one that would make
// the same cost wait longest next, the first of them on a tie.
type Decision struct {
	OK     bool          // whether the request was admitted
	Wait   time.Duration // until the same request would be; 0 when OK; Never when it can't ever be
	Tokens float64       // left for the next request, after this decision; below 0 in debt or behind a queue
	Limit  Limit

	// LimitIndex is the index of the limit that Limit and Tokens describe, in the order
	// of Limits. It is -1 if Limit is zero.
	LimitIndex int

	held  bool          // nothing is admitted before those that wait, or before a pause ends
	reset time.Duration // what Reset returns then

	isShort bool    // a limit that does not bind has less left:
	least   float64 // so much
}

// Remaining returns the largest whole cost that would be admitted now, in tokens,
// 0 or more. It counts all limits, not only the one that binds.
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

// Reset returns the time until the bucket is full if nothing more is taken: 0 if
// it is full now, Never beyond 292 years. While anybody is queued, that is after the last of
// them is served. With several limits it is the time until the one that Limit describes is full.
//
// It is worked out from Tokens, which are rounded: a bucket that has long been below its
// capacity may be full a nanosecond earlier.
func (d Decision) Reset() time.Duration {
	if d.held {
		return d.reset
	}
	return d.Limit.wait(State{Balance: d.Tokens}, 0, d.Limit.Capacity)
}

// RetryAfter returns the wait in whole seconds, as the function of that name does.
func (d Decision) RetryAfter() (seconds int64, ok bool) { return RetryAfter(d.Wait) }
