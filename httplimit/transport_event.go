package httplimit

import (
	"net/http"
	"slices"
	"time"
)

// TransportEvent describes one attempt of a Transport to send a request: the first, or
// a retry. It is reported when the attempt has ended: the header of the answer has been
// read, or there is an error. An attempt that never left the queue is reported too.
type TransportEvent struct {
	Request *http.Request // must not be changed
	Host    string        // as passed to HostBuckets
	Cost    float64       // tokens; 0 with WithTransportCostEach
	Costs   []float64     // tokens, with WithTransportCostEach; must not be changed
	Attempt int           // 1 for the first, 2 for the first retry

	// Waited is the sum of two times: how long the attempt was in the queue, by the clock
	// of WithTransportClock, and how long a pause held it afterwards, by the clock of the
	// buckets.
	Waited time.Duration

	Pause  time.Duration // the pause that the answer began; 0 if none
	Reason PauseReason   // why; "" if there is no pause
	Status int           // of the answer; 0 if there is none
	Err    error         // of this attempt or its wait; nil if there is an answer
}

// PauseReason is why a Transport pauses a host.
type PauseReason string

// The reasons of pauses.
const (
	PausedByRetryAfter PauseReason = "Retry-After"   // the field says how long
	PausedByFields     PauseReason = "rate limit"    // the fields of WithRateLimitFields say that no tokens are left, and for how long
	PausedByDefault    PauseReason = "default pause" // the answer says "too fast" but not for how long: see WithDefaultPause
)

// isFree reports whether the request costs nothing.
func (e *TransportEvent) isFree() bool {
	return e.Cost == 0 && !slices.ContainsFunc(e.Costs, func(cost float64) bool { return cost != 0 })
}

// report calls the observer, if there is one, for an attempt that has ended.
func (t *Transport) report(e *TransportEvent) {
	if t.observe != nil {
		t.observe(*e)
	}
}
