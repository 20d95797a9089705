// Package httplimit puts token buckets in front of net/http handlers, and behind
// http.Client: a server that refuses with 429 says, to the second, when that very
// request would be admitted.
//
// [New] makes middleware of the shape func(http.Handler) http.Handler, for any
// router. It asks a [Limiter]: [Shared] for one bucket, [PerKey] for one a client,
// [Both] for both. It does not wrap the http.ResponseWriter, so all that an
// http.ResponseController can do works behind it. What it sets:
//
//	field                 when      value                                    source
//	X-RateLimit-Limit     always    capacity, whole tokens                   custom (GitHub, among others)
//	X-RateLimit-Remaining always    the largest whole cost admitted now      custom
//	X-RateLimit-Reset     always    seconds until full, rounded up           custom
//	RateLimit-Policy      always    "default";q=10;w=20, for every limit     draft-ietf-httpapi-ratelimit-headers-10, RFC 9651
//	RateLimit             always    "default";r=9;t=18, the one that binds   the same
//	Retry-After           refused   whole seconds, rounded up, at least 1    RFC 9110, section 10.2.3
//	Cache-Control         refused   no-store                                 RFC 9111
//
// In them q is the capacity and w the seconds to fill it from empty; r is what may
// be used within the next t seconds. On admission t is how long the refill of r
// takes, at least 1; on a refusal it is the Retry-After. In whole seconds that is
// conservative at high rates: a bucket of 10 that refills 100 a second is full
// again after a tenth of the 1 second it tells. Integers saturate at
// 999999999999999. A request that can never be admitted is refused with neither
// Retry-After nor t. With several limits X-RateLimit speaks of the one that binds,
// as tokenbucket.Decision has it.
//
// A handler's own fields of the same names win.
package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/aa014e13/tokenbucket"
)

// New returns middleware that asks a limiter about every request before it calls
// the next handler. It returns an error, of package tokenbucket, for options out
// of range and for prices that are invalid or above a capacity.
//
// The middleware may wrap any number of handlers, and run in any number of
// goroutines.
func New(limiter Limiter, opts ...Option) (func(http.Handler) http.Handler, error) {
	c, err := newConfig(limiter, opts)
	if err != nil {
		return nil, err
	}
	m := &middleware{fields{config: c}}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if m.admit(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}, nil
}

type middleware struct{ fields }

// admit returns whether the request may go on; otherwise it has answered it.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	e := Event{Request: r, Key: m.key(r), Cost: 1}
	if m.cost != nil {
		e.Cost = m.cost(r)
	}
	decided := m.decide(&e)
	if m.observe != nil {
		m.observe(e)
	}
	if !decided {
		return m.fail(w)
	}
	m.set(w.Header(), e.Decision)
	if e.Decision.OK || m.reportOnly {
		return true
	}
	m.answerRefused(w, e)
	return false
}

// decide asks the limiter, and the fallback if it fails.
func (m *middleware) decide(e *Event) bool {
	ctx := e.Request.Context()
	e.Decision, e.Err = m.limiter.Take(ctx, e.Key, e.Cost)
	if e.Err == nil {
		return true
	}
	e.Decision = tokenbucket.Decision{}
	if m.fallback == nil {
		return false
	}
	d, err := m.fallback.Take(ctx, e.Key, e.Cost)
	if err != nil {
		e.Err = fmt.Errorf("%w; and the fallback: %w", e.Err, err)
		return false
	}
	e.Decision = d
	return true
}

// fail admits, or answers a request that nobody could decide about.
func (m *middleware) fail(w http.ResponseWriter) bool {
	if m.failure == 0 || m.reportOnly {
		return true
	}
	w.Header()[retryAfter] = []string{strconv.FormatInt(seconds(m.failure), 10)}
	problem{
		Type:   "about:blank",
		Title:  http.StatusText(http.StatusServiceUnavailable),
		Status: http.StatusServiceUnavailable,
		Detail: "The rate limiter cannot decide at the moment.",
	}.answer(w)
	return false
}

func (m *middleware) answerRefused(w http.ResponseWriter, e Event) {
	if m.refuse != nil {
		m.refuse(w, e.Request, e.Decision)
		return
	}
	problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "The quota is exceeded",
		Status:   http.StatusTooManyRequests,
		Detail:   detail(e),
		Violated: m.violated(e.Decision),
	}.answer(w)
}

func detail(e Event) string {
	if e.Decision.Wait == tokenbucket.Never {
		return fmt.Sprintf("This request costs %v and can never be admitted.", e.Cost)
	}
	return fmt.Sprintf("This request costs %v and will be admitted in %v.", e.Cost, e.Decision.Wait)
}

// violated names the limit that refused.
func (m *middleware) violated(d tokenbucket.Decision) []string {
	p := m.policiesFor(d.Limit)
	for i, l := range p.limits {
		if l == d.Limit {
			return []string{policyName(m.names, i)}
		}
	}
	return nil
}

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

func (p problem) answer(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // strings and a number
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
