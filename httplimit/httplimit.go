// Package httplimit limits the rate of requests with token buckets: in front of net/http
// handlers, and behind an http.Client. Each refusal reports in how many seconds the same
// request would be admitted.
//
// # Server
//
// [New] makes middleware, a func(http.Handler) http.Handler, for any router. The middleware
// asks a [Limiter]: [PerKey] has a bucket for every client, [Shared] has one for all, and
// [Both] takes from two limiters. The middleware does not wrap the http.ResponseWriter, so
// everything that an http.ResponseController can do works in handlers behind it. It sets
// these fields:
//
//	field                  when          value
//	X-RateLimit-Limit      always    [1] the capacity, in whole tokens
//	X-RateLimit-Remaining  always    [1] the largest whole cost that would be admitted now
//	X-RateLimit-Reset      always    [1] seconds until the bucket is full, rounded up
//	RateLimit-Policy       always    [2] "default";q=10;w=20 for every limit: the capacity, and the seconds to fill it
//	RateLimit              always    [2] "default";r=9;t=18 for the limit in the decision: r tokens may be used in the next t seconds
//	Retry-After            refused   [3] seconds until this request would be admitted, rounded up, at least 1
//	Cache-Control          refused   [4] no-store
//
//	[1] not standardised; used by GitHub and others. WithUnixReset sets the reset as GitHub does
//	[2] draft-ietf-httpapi-ratelimit-headers, revisions 10 and 11, in the syntax of RFC 9651
//	[3] RFC 9110, section 10.2.3
//	[4] RFC 9111, section 5.2.2.5
//
// The middleware refuses with 429 (RFC 6585, section 4) and an application/problem+json
// body (RFC 9457) of the type quota-exceeded, which [2] registers. A field that a handler
// sets itself replaces the one set here. The middleware never adds a Retry-After to the
// answer of a handler.
//
// A client should use at most r tokens in the next t seconds. On admission, t is the time
// in which r tokens are refilled, so such a client uses no more than is refilled. If r is
// 0, t is the time until there is one token. On a refusal, t is the value of Retry-After.
// Since t is in whole seconds, it is longer than necessary if the rate is high. For
// example, a bucket that is refilled within a tenth of a second has t=1.
//
// A request that can never be admitted is refused without Retry-After and without t.
// With several limits the X-RateLimit fields describe one of them: the one that
// tokenbucket.Decision describes. Integers are at most 999999999999999. If a decision
// has no valid limit, the fields of [1] and [2] are not set.
//
// tokenbucket.Unlimited is not listed in RateLimit-Policy. If a decision describes it,
// the fields of [1] and [2] are not set. So put Unlimited after the other limits: as
// long as every limit would admit the same request once more, the decision describes
// the first limit.
//
// # Two keys
//
// For two keys at once, such as a user and a tenant, nest two middlewares. The outer
// one is asked first, so it should have the limit that fewer requests share: put the
// user's limit outside and the tenant's inside. Then a request that the user's limit
// refuses takes nothing from the tenant's. Give each middleware a policy name with
// WithPolicyNames. RateLimit and RateLimit-Policy list the items of both, outermost
// first. The X-RateLimit fields describe the limit with less remaining.
//
// If the inner limit refuses, the outer one has already taken tokens, and other requests
// with the outer key cannot use them. To give the tokens back, use WithAdmission outside
// and an observer inside:
//
//	httplimit.WithObserver(func(e httplimit.Event) {
//		if outer := httplimit.AdmissionFromContext(e.Request.Context()); e.Refused && !e.ReportOnly {
//			_ = outer.Refund(e.Request.Context(), outer.Cost)
//		}
//	})
//
// If both limits have the same key, use Both: it gives the tokens back by itself.
//
// # Browsers
//
// Put the layer that answers CORS preflights and sets Access-Control-Allow-Origin outside
// the limiter: then preflights cost nothing, and pages of other origins can read refusals
// too. WithExposedFields lets them read the fields. If that layer must be inside the
// limiter, the price {"OPTIONS /": 0} makes preflights free. The patterns of other prices
// then need a method. Otherwise the patterns overlap, and New returns an error.
//
// # Other routers
//
// Prices by pattern are matched as an http.ServeMux matches. Other routers may serve the
// same handler under more spellings of a path; [WithCosts] says what to do. The files in
// examples/integrations show gin, echo, chi, fiber and connect.
//
// # Client
//
// [Transport] is an http.RoundTripper that waits before every request. If a server
// refuses a request, the Transport pauses for as long as the server demands, up to
// [WithLongestPause].
package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// New returns middleware that asks a limiter about every request before the next
// handler is called. It returns an error for options that cannot work:
// tokenbucket.ErrInvalidOption for options and patterns, and the errors of
// tokenbucket.Costs.Validate for prices.
//
// The middleware may wrap any number of handlers and be used by any number of
// goroutines.
func New(limiter Limiter, opts ...Option) (func(http.Handler) http.Handler, error) {
	m, err := newMiddleware(limiter, opts)
	if err != nil {
		return nil, err
	}
	return m.wrap, nil
}

func newMiddleware(limiter Limiter, opts []Option) (*middleware, error) {
	c, err := newConfig(limiter, opts)
	if err != nil {
		return nil, err
	}
	m := &middleware{config: c}
	for _, l := range c.limiters {
		m.asked = append(m.asked, newAsked(l, c.names))
	}
	return m, nil
}

type middleware struct {
	*config
	asked []*asked // the limiter, then the fallback, which is asked if the limiter fails
}

func (m *middleware) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch admission, ok := m.admit(w, r); {
		case !ok:
		case admission != nil:
			serveAdmitted(next, w, r, admission)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// verdict is the decision about a request, with the data that the answer needs.
type verdict struct {
	request  *http.Request
	ask      ask
	outcome          // zero if no limiter could decide
	by       Limiter // the limiter that decided; nil if none could
	fallback bool    // by is the fallback
	refused  bool
	err      error     // of the limiters that failed
	policies *policies // nil unless the decision has a valid limit
	policy   *policy   // the policy of the decision's limit
}

// hasFigures reports whether the answer reports the limit of the decision.
func (v *verdict) hasFigures() bool { return v.isKnown && v.decision.Limit != unlimited }

// admit reports whether a request goes on. If it does not, admit answers it. The Admission
// is nil without WithAdmission.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) (admission *Admission, ok bool) {
	v := verdict{request: r}
	v.ask.key = m.key(r)
	if m.each {
		v.ask.each, v.ask.costs = true, m.costEach(r)
	} else {
		v.ask.cost = m.cost(r)
	}
	m.decide(r.Context(), &v)
	if m.observe != nil {
		m.observe(m.eventOf(&v))
	}
	ok = !v.refused || m.reportOnly
	m.answer(w, &v, ok)
	if ok && m.admission {
		admission = v.admission()
	}
	return admission, ok
}

// answer sets the fields. It also answers the request, unless goesOn.
func (m *middleware) answer(w http.ResponseWriter, v *verdict, goesOn bool) {
	shown := v.hasFigures() && (m.xRateLimit || m.rateLimit)
	f := fields{header: w.Header()}
	f.isNested = len(f.header) > 0
	f.makeRoom(shown, v.refused)
	if shown {
		m.setLimits(&f, v)
	}
	waits := false
	if !goesOn {
		f.set(cacheControl, &f.refusal.cacheControl, "no-store")
		waits = f.setRetryAfter(m.wait(v))
	}
	if m.exposes {
		f.expose(m.exposedNames(shown, waits))
	}
	switch {
	case goesOn:
	case v.by != nil:
		m.answerRefused(w, &f, v)
	default:
		m.answerUndecided(w, &f, v)
	}
}

// wait returns how long a refused client should wait.
func (m *middleware) wait(v *verdict) time.Duration {
	if v.by == nil {
		return m.closedFor
	}
	return v.decision.Wait
}

// decide asks the limiters in turn until one does not fail, and stores the decision in v.
func (m *middleware) decide(ctx context.Context, v *verdict) {
	for i, a := range m.asked {
		err := takeFrom(ctx, a.Limiter, &v.ask, &v.outcome)
		if err == nil {
			v.by, v.fallback, v.refused = a.Limiter, i > 0, !v.decision.OK
			if v.isKnown {
				v.policies = a.policies(v.decision.Limit)
				v.policy = v.policies.binding(&v.decision, v.start)
			}
			return
		}
		v.err, v.outcome = errors.Join(v.err, err), outcome{}
	}
	v.outcome, v.refused = outcome{limiter: -1, cost: v.ask.costOf(0)}, m.closed && !v.ask.isFree()
}
