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

// heed pauses or lowers the host's bucket as an answer demands, and notes the pause in e. It
// reports whether the request was refused and may be sent again after the pause.
func (t *Transport) heed(resp *http.Response, e *TransportEvent) (again bool) {
	now := t.now()
	if t.readsFields || resp.Header.Get(retryAfter) != "" {
		now = dateOf(resp.Header, now)
	}
	left := t.readQuota(resp.Header, now)
	hold, demanded := left.hold(), readRetryAfter(resp.Header, now)
	reason := PausedByFields
	if demanded > 0 {
		hold, reason = demanded, PausedByRetryAfter
	}
	if !t.isRefusal(resp, demanded) {
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

// pause pauses the host and notes the pause in e. A d of 0 does nothing.
func (t *Transport) pause(d time.Duration, reason PauseReason, e *TransportEvent) {
	if d <= 0 {
		return
	}
	e.Pause, e.Reason = d, reason
	t.buckets.Pause(e.Host, d)
}

// isRefusal reports whether an answer says "too fast". The argument demanded is the
// wait of Retry-After, 0 for none.
func (t *Transport) isRefusal(resp *http.Response, demanded time.Duration) bool {
	return slices.Contains(t.tooFast, resp.StatusCode) ||
		resp.StatusCode == http.StatusServiceUnavailable && demanded > 0 ||
		t.isTooFast != nil && readsStart(resp, t.isTooFast)
}

// slowDown lowers the host's bucket to the number of tokens that the server says are
// left, minus the cost of the requests that are on their way. The bucket has counted
// these, but the server perhaps has not. If nothing is left, slowDown pauses the host.
//
// If some tokens are left, slowDown does not space the requests evenly until the reset. That
// would prevent bursts that both sides allow, and slow down a client that reads an hourly
// quota.
func (t *Transport) slowDown(left quota, hold time.Duration, reason PauseReason, e *TransportEvent) {
	if !left.known {
		return
	}
	if left.remaining == 0 {
		t.pause(min(hold, t.longestPause), reason, e)
	}
	t.mu.Lock() // otherwise two goroutines could both charge the same surplus
	defer t.mu.Unlock()
	free := max(0, float64(left.remaining)-t.onTheWay[t.bucketOf(e.Host)].cost)
	if surplus := t.buckets.Tokens(e.Host) - free; surplus > 0 {
		_ = t.buckets.Charge(e.Host, surplus) // a finite amount above 0 is never refused
	}
}

// jitter returns the time to add to a pause, so that many processes that wait for the
// same second do not all come back at its beginning. All requests of one Transport to one
// host whose pauses end in that second get the same random fraction of the largest jitter.
// If each request drew its own fraction, the pause would last for the longest jitter. With
// many requests, that is close to the maximum in every process, so the processes would come
// back together.
func (t *Transport) jitter(host string, now time.Time, pause time.Duration) time.Duration {
	if t.retries == 0 {
		return 0
	}
	hash := fnv.New64a()
	hash.Write([]byte(host))
	second := uint64(now.Add(pause).Unix())
	draw := rand.New(rand.NewPCG(t.seed, hash.Sum64()^second))
	return time.Duration(draw.Float64() * float64(min(pause, max(time.Second, pause/10))))
}

// dateOf returns the time at which the server made an answer, by its Date field, or now if
// there is none. The server's clock may differ from this machine's, and other dates in the
// answer are by the server's clock.
func dateOf(h http.Header, now time.Time) time.Time {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return now
	}
	return date
}

// readRetryAfter returns the wait that Retry-After demands, 0 if the field is missing,
// malformed or in the past.
func readRetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get(retryAfter)
	if value == "" { // on almost every answer; ParseRetryAfter would make an error, which is slow
		return 0
	}
	wait, err := tokenbucket.ParseRetryAfter(value, now)
	if err != nil {
		return 0
	}
	return wait
}
