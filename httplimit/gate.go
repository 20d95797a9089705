package httplimit

import (
	"context"
	"net/http"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// Gate makes the same decisions as the middleware that New returns, but it neither reads
// costs from requests nor answers requests. It is for servers of other protocols, such as
// those of package grpclimit. Servers of HTTP use New.
//
// A Gate uses WithoutRateLimit, WithReportOnly, and the options about keys, policy
// names, fallbacks and failures. All other options have no effect.
//
// Its methods may be called by any number of goroutines.
type Gate struct{ middleware *middleware }

// NewGate returns a Gate in front of a limiter. The errors are those of New.
func NewGate(limiter Limiter, opts ...Option) (*Gate, error) {
	m, err := newMiddleware(limiter, opts)
	if err != nil {
		return nil, err
	}
	return &Gate{m}, nil
}

// Limits returns the limits of the limiter, and then those of the fallback. The slice
// is the caller's.
func (g *Gate) Limits() []tokenbucket.Limit {
	var limits []tokenbucket.Limit
	for _, a := range g.middleware.asked {
		limits = append(limits, limitsOf(a.Limiter)...)
	}
	return slices.Clip(limits)
}

// Key returns the key of a request. It reads RemoteAddr, Header and Host.
func (g *Gate) Key(r *http.Request) string { return g.middleware.key(r) }

// OwnKey returns the key of a request as if the function of WithKey had returned own.
// If own is "", it is the key of the request's address. Otherwise r may be nil.
func (g *Gate) OwnKey(own string, r *http.Request) string { return g.middleware.ownOrAddress(own, r) }

// Ask takes a cost, in tokens, from the key's bucket, or refuses and takes nothing. It does
// not call the observer of WithObserver.
func (g *Gate) Ask(ctx context.Context, key string, cost float64) Answer {
	v := verdict{ask: ask{key: key, cost: cost}}
	g.middleware.decide(ctx, &v)
	return Answer{v, g.middleware}
}

// Answer is a Gate's decision about a request.
type Answer struct {
	verdict    verdict
	middleware *middleware
}

// Event returns the decision. Its Request is nil.
func (a *Answer) Event() Event { return a.middleware.eventOf(&a.verdict) }

// GoesOn reports whether the request goes on: it is admitted, or WithReportOnly is set.
func (a *Answer) GoesOn() bool { return !a.verdict.refused || a.middleware.reportOnly }

// AppendRateLimit appends the value of RateLimit to b. It appends nothing with
// WithoutRateLimit, if the decision has no valid limit, or if the limit is
// tokenbucket.Unlimited.
func (a *Answer) AppendRateLimit(b []byte) []byte {
	if !a.hasRateLimit() {
		return b
	}
	b, _ = a.verdict.appendRateLimit(b)
	return b
}

// RateLimitPolicy returns the value of RateLimit-Policy, "" if there is no RateLimit.
func (a *Answer) RateLimitPolicy() string {
	if !a.hasRateLimit() {
		return ""
	}
	return a.verdict.policies.header
}

func (a *Answer) hasRateLimit() bool { return a.verdict.hasFigures() && a.middleware.rateLimit }
