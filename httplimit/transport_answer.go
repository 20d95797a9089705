package httplimit

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// heed makes the host's bucket follow what an answer says, notes the pause, and reports
// whether the request was refused and may be sent again once the pause is over.
func (t *Transport) heed(resp *http.Response, e *TransportEvent) (again bool) {
	now := t.now()
	if t.readsFields || resp.Header.Get(retryAfter) != "" {
		now = dateOf(resp.Header, now)
	}
	left := t.readQuota(resp.Header, now)
	hold, told := left.hold(), readRetryAfter(resp.Header, now)
	reason := PausedByFields
	if told > 0 {
		hold, reason = told, PausedByRetryAfter
	}
	if !t.isRefusal(resp, told) {
		t.slowDown(left, hold, reason, e)
		return false
	}
	if hold == 0 {
		hold, reason = min(t.defaultPause, t.longestPause), PausedByDefault
	}
	if hold > t.longestPause {
		t.pause(t.longestPause, reason, e)
		return false
	}
	t.pause(timeline.Later(hold, t.jitter(e.Host, now, hold)), reason, e)
	return true
}

// pause pauses the host and notes that. There is no pause of 0.
func (t *Transport) pause(d time.Duration, reason PauseReason, e *TransportEvent) {
	if d <= 0 {
		return
	}
	e.Pause, e.Reason = d, reason
	t.buckets.Pause(e.Host, d)
}

// isRefusal reports whether an answer says "too fast", told being the pause that
// Retry-After demands, 0 for none.
func (t *Transport) isRefusal(resp *http.Response, told time.Duration) bool {
	return slices.Contains(t.tooFast, resp.StatusCode) ||
		resp.StatusCode == http.StatusServiceUnavailable && told > 0 ||
		t.isTooFast != nil && readsStart(resp, t.isTooFast)
}

// slowDown keeps the host's bucket to what the server says is left, less the cost of
// the requests that are on their way: that was spent here already, but perhaps not there.
//
// It is tempting to spread what is left over the time to the reset. But that takes
// away the bursts that both sides allow, and slows down a client that reads an hourly quota.
func (t *Transport) slowDown(left quota, hold time.Duration, reason PauseReason, e *TransportEvent) {
	if !left.known {
		return
	}
	if left.remaining == 0 {
		t.pause(min(hold, t.longestPause), reason, e)
	}
	t.mu.Lock() // or two goroutines would both charge the same surplus
	defer t.mu.Unlock()
	free := max(0, float64(left.remaining)-t.onTheWay[e.Host].cost)
	if surplus := t.buckets.Tokens(e.Host) - free; surplus > 0 {
		_ = t.buckets.Charge(e.Host, surplus) // a finite amount above 0 is never refused
	}
}

// jitter returns by how much a pause is longer that ends in some second, so that
// many processes told that second spread. All requests of one Transport that were
// told it get the same: a pause lasts as long as the longest demanded, and of many
// draws the longest is always near the end, where the processes would meet again.
func (t *Transport) jitter(host string, now time.Time, pause time.Duration) time.Duration {
	if t.retries == 0 {
		return 0
	}
	told := fnv.New64a()
	told.Write([]byte(host))
	second := uint64(now.Add(pause).Unix())
	draw := rand.New(rand.NewPCG(t.seed, told.Sum64()^second))
	return time.Duration(draw.Float64() * float64(min(pause, max(time.Second, pause/10))))
}

// dateOf returns the time at which the server made an answer, by its Date field. The
// server's clock may differ from ours, and a date in the answer is one of that clock.
func dateOf(h http.Header, now time.Time) time.Time {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return now
	}
	return date
}

// readRetryAfter returns the wait that Retry-After demands, 0 for none, for a
// malformed one and for one that has passed already.
func readRetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get(retryAfter)
	if value == "" { // as on almost every answer: making an error of it takes time
		return 0
	}
	wait, err := tokenbucket.ParseRetryAfter(value, now)
	if err != nil {
		return 0
	}
	return wait
}
