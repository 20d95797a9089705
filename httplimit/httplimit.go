// Package httplimit puts token buckets in front of net/http handlers, and behind
// an http.Client. A refusal says, to the second, when that very request would be
// admitted.
//
// # Server
//
// [New] makes middleware of the shape func(http.Handler) http.Handler, for any
// router. It asks a [Limiter]: [PerKey] has a bucket for every client, [Shared] one
// for all, [Both] takes from two. It does not wrap the http.ResponseWriter, so
// whatever an http.ResponseController can do works behind it. It sets
//
//	field                  when          value
//	X-RateLimit-Limit      always    [1] the capacity, in whole tokens
//	X-RateLimit-Remaining  always    [1] the largest whole cost that would be admitted now
//	X-RateLimit-Reset      always    [1] seconds until the bucket is full, rounded up
//	RateLimit-Policy       always    [2] "default";q=10;w=20 for every limit: the capacity, and the seconds to fill it
//	RateLimit              always    [2] "default";r=9;t=18 for the one that binds: r may be used in the next t seconds
//	Retry-After            refused   [3] seconds until this request would be admitted, rounded up, at least 1
//	Cache-Control          refused   [4] no-store
//
//	[1] no standard; so at GitHub and elsewhere. WithUnixReset tells the reset as GitHub does
//	[2] draft-ietf-httpapi-ratelimit-headers, revisions 10 and 11, by RFC 9651
//	[3] RFC 9110, section 10.2.3
//	[4] RFC 9111, section 5.2.2.5
//
// and refuses with 429 (RFC 6585, section 4) and an application/problem+json body
// (RFC 9457) of the type quota-exceeded, which [2] registers. What a handler sets
// itself takes the place of ours, and a Retry-After is never set for it.
//
// Clients should not use more than r before t is over, nor come back before. So on
// admission t is how long it takes to refill r, and with r = 0 to refill one token;
// on a refusal it is the Retry-After. Whole seconds make that cautious where the rate
// is high: of a bucket that is refilled within a tenth of a second it says t=1.
//
// A request that can never be admitted is refused without Retry-After and without t.
// With several limits the X-RateLimit fields are those of the limit that binds, as
// tokenbucket.Decision has it. Integers saturate at 999999999999999. A decision
// without a valid limit sets no field but Retry-After.
//
// # Client
//
// [Transport] is an http.RoundTripper that waits before every request, and obeys a
// server that refuses.
package httplimit

import (
	"errors"
	"net/http"
)

// New returns middleware that asks a limiter about every request before the next
// handler is called. It returns an error for what could only go wrong later: an
// ErrInvalidOption, of package tokenbucket, for options and patterns, and the errors
// of Costs.Validate for prices.
//
// The middleware may wrap any number of handlers and be used by any number of
// goroutines.
func New(limiter Limiter, opts ...Option) (func(http.Handler) http.Handler, error) {
	c, err := newConfig(limiter, opts)
	if err != nil {
		return nil, err
	}
	m := &middleware{config: c}
	for _, l := range c.limiters {
		m.asked = append(m.asked, newAsked(l, c.names))
	}
	return m.wrap, nil
}

type middleware struct {
	*config
	asked []*asked // in turn, until one does not fail
}

func (m *middleware) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// verdict is what is decided about a request, and how it is told.
type verdict struct {
	request  *http.Request
	key      string
	cost     float64 // tokens
	outcome          // zero if nobody could decide
	decided  bool
	refused  bool
	err      error     // of those who could not decide
	policies *policies // nil unless the decision tells its limit
	policy   *policy   // the one of them that binds
}

// admit reports whether a request may go on; if not, it is answered.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	v := verdict{request: r, key: m.key(r), cost: m.cost(r)}
	m.decide(&v)
	if m.observe != nil {
		m.observe(Event{Request: r, Key: v.key, Cost: v.cost, Decision: v.decision, Refused: v.refused, Err: v.err})
	}
	told := v.isTold && (m.xRateLimit || m.rateLimit)
	f := newFields(w.Header(), told, v.refused)
	if told {
		m.setLimits(&f, &v)
	}
	switch {
	case !v.refused || m.reportOnly:
		return true
	case v.decided:
		m.answerRefused(w, &f, &v)
	default:
		m.answerUndecided(w, &f)
	}
	return false
}

func (m *middleware) decide(v *verdict) {
	for _, a := range m.asked {
		var err error
		if v.outcome, err = takeFrom(v.request.Context(), a.Limiter, v.key, v.cost); err == nil {
			v.decided, v.refused = true, !v.decision.OK
			if v.isTold {
				v.policies = a.policies(v.decision.Limit)
				v.policy = v.policies.binding(v.decision.Limit, v.start)
			}
			return
		}
		v.err = errors.Join(v.err, err)
	}
	v.outcome, v.refused = outcome{}, m.closed
}
