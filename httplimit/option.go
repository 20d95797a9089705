package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Option configures New.
type Option func(*config)

type config struct {
	addresses  addresses
	keyHeaders []keyHeader
	key        func(*http.Request) string // nil: by the headers, else the address
	costs      tokenbucket.Costs          // if there are any, cost is made of them
	cost       func(*http.Request) float64
	names      []string // of the policies
	xRateLimit bool
	rateLimit  bool
	unixNow    func() time.Time // nil: resets are told in seconds from now
	refuse     func(http.ResponseWriter, *http.Request, tokenbucket.Decision)
	closed     bool          // when the limiter fails
	closedFor  time.Duration // the Retry-After then
	limiters   []Limiter     // New's, and the fallback
	reportOnly bool
	observe    func(Event)
}

func newConfig(limiter Limiter, opts []Option) (*config, error) {
	c := &config{
		addresses:  addresses{ipv6Bits: 64},
		cost:       costOne,
		names:      []string{"default"},
		xRateLimit: true,
		rateLimit:  true,
		limiters:   []Limiter{limiter},
	}
	for _, opt := range opts {
		opt(c)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.key == nil {
		c.key = c.headerOrAddress
	}
	return c, c.settleCosts()
}

func costOne(*http.Request) float64 { return 1 }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{tokenbucket.ErrInvalidOption}, args...)...)
}

func (c *config) validate() error {
	switch {
	case slices.Contains(c.limiters, nil):
		return invalid("no limiter: pass Shared, PerKey or Both of what is not nil, or your own, to New and WithFallback")
	case c.cost == nil:
		return invalid("WithCost(nil): pass a function, or leave it out for a cost of 1")
	case c.closed && (c.closedFor <= 0 || c.closedFor == tokenbucket.Never):
		return invalid("WithFailClosed(%v): choose a time above 0 to retry after", c.closedFor)
	case c.addresses.ipv6Bits < 1 || c.addresses.ipv6Bits > 128:
		return invalid("WithIPv6Prefix(%d): choose from 1 to 128 bits", c.addresses.ipv6Bits)
	}
	for i, p := range c.addresses.trusted {
		if !p.IsValid() {
			return invalid("WithTrustedProxies: prefix %d is not valid: pass what netip.ParsePrefix returned without an error", i)
		}
	}
	for _, h := range c.keyHeaders {
		if !isToken(h.name) {
			return invalid("a key header named %q: name a header field, by letters, digits and -", h.name)
		}
	}
	return c.validateNames()
}

func (c *config) validateNames() error {
	if len(c.names) == 0 {
		return invalid("WithPolicyNames(): name at least one policy, or leave it out")
	}
	for i, name := range c.names {
		if !isPrintable(name) {
			return invalid("the policy name %q: choose one of printable ASCII, not empty", name)
		}
		if slices.Contains(c.names[:i], name) {
			return invalid("the policy name %q stands twice: choose another", name)
		}
	}
	return nil
}

// settleCosts makes prices a function.
func (c *config) settleCosts() error {
	if len(c.costs) == 0 {
		return nil
	}
	var limits []tokenbucket.Limit
	for _, l := range c.limiters {
		limits = append(limits, limitsOf(l)...)
	}
	p, err := newPrices(c.costs, limits)
	if err != nil {
		return err
	}
	c.cost = p.of
	return nil
}

func (c *config) headerOrAddress(r *http.Request) string {
	for _, h := range c.keyHeaders {
		if key := h.key(r); key != "" {
			return key
		}
	}
	return c.addresses.key(r)
}

// WithKey sets the function that tells clients apart: it returns the key of a
// request. Those for which it returns "" share one bucket; none goes free. It is
// called by any number of goroutines, and overrides the options about headers and
// addresses. By default, and for nil, the key is the peer's address: an IPv4
// address whole, an IPv6 address by its first 64 bits, without port and zone.
func WithKey(key func(*http.Request) string) Option {
	return func(c *config) { c.key = key }
}

// WithKeyHeader takes the value of a header field as the key, a tenant's name, say:
// of those named here and by WithAPIKey, in order, the first that a request has
// and that is not empty. A request without any counts by its address.
//
// A value of more than 64 bytes counts by its SHA-256, so that no key is longer.
// Whoever may send any value may have any number of full buckets: let who checks
// the value come before this, or bound the keys. By default, no field counts.
func WithKeyHeader(names ...string) Option {
	return withKeyHeaders(names, false)
}

// WithAPIKey is WithKeyHeader for secrets: the key is made of the SHA-256 of the
// value, so that the secret is neither in logs nor in a store. Of Authorization
// only what follows the scheme counts; schemes that sign every request anew are of
// no use here. By default, no field counts.
func WithAPIKey(names ...string) Option {
	return withKeyHeaders(names, true)
}

func withKeyHeaders(names []string, secret bool) Option {
	return func(c *config) {
		for _, name := range names {
			c.keyHeaders = append(c.keyHeaders, keyHeader{http.CanonicalHeaderKey(name), secret})
		}
	}
}

// WithTrustedProxies adds proxies whose X-Forwarded-For is believed. All lines of the
// field are one list, which is walked from the right past trusted addresses: the
// first one that is not trusted is the client, and the last one there is if the
// list ends before, or something that is not an address. Elements may have a port,
// and brackets. By default, nobody is trusted, and the field counts for nothing.
//
// A peer on a Unix socket has no address that could be trusted.
func WithTrustedProxies(prefixes ...netip.Prefix) Option {
	return func(c *config) {
		for _, p := range prefixes {
			c.addresses.trusted = append(c.addresses.trusted, foldPrefix(p))
		}
	}
}

// WithIPv6Prefix sets how many leading bits of an IPv6 address make a key, from 1 to
// 128. By default, it is 64: few customers get less, so with more of them one of
// them has many buckets.
func WithIPv6Prefix(bits int) Option {
	return func(c *config) { c.addresses.ipv6Bits = bits }
}

// WithCosts sets what requests cost, in tokens, by http.ServeMux pattern: "GET
// /export", "/users/{id}". The most specific pattern decides, as for a ServeMux;
// what matches none costs 1. New returns an error for a pattern that a ServeMux
// would not take and for a price that is negative, NaN or above a capacity. It
// overrides WithCost before it. By default, every request costs 1.
func WithCosts(costs tokenbucket.Costs) Option {
	return func(c *config) { c.cost, c.costs = costOne, costs }
}

// WithCost sets what a request costs, in tokens, by a function, which is called by
// any number of goroutines. A request whose cost is negative, NaN or above a
// capacity is refused for good, one that costs 0 is free. It overrides WithCosts
// before it. By default, every request costs 1.
func WithCost(cost func(*http.Request) float64) Option {
	return func(c *config) { c.cost, c.costs = cost, nil }
}

// WithPolicyNames names the limits in RateLimit and RateLimit-Policy, in the order of
// the limiter's Limits, in printable ASCII. Limits beyond the last name are called
// by it with "-2", "-3" and so on, leaving out what is named. By default, they are "default", "default-2", ...
func WithPolicyNames(names ...string) Option {
	return func(c *config) { c.names = slices.Clone(names) }
}

// WithoutXRateLimit leaves the X-RateLimit fields out. By default, they are set.
func WithoutXRateLimit() Option {
	return func(c *config) { c.xRateLimit = false }
}

// WithoutRateLimit leaves RateLimit and RateLimit-Policy out. By default, they are set.
func WithoutRateLimit() Option {
	return func(c *config) { c.rateLimit = false }
}

// WithUnixReset makes X-RateLimit-Reset a Unix time in seconds, as GitHub has it,
// by the given clock; nil is the system's. By default, it is in seconds from now.
func WithUnixReset(clock tokenbucket.Clock) Option {
	return func(c *config) {
		c.unixNow = time.Now
		if clock != nil {
			c.unixNow = clock.Now
		}
	}
}

// WithRefusal sets what answers a refused request. All header fields are set by
// then, the status is not. By default, and for nil, the answer is 429 (RFC 6585)
// with a body that says why (RFC 9457) and Cache-Control: no-store.
func WithRefusal(refuse func(http.ResponseWriter, *http.Request, tokenbucket.Decision)) Option {
	return func(c *config) { c.refuse = refuse }
}

// WithFailClosed refuses requests with 503 when the limiter fails, and tells them to
// retry after the given time, above 0, rounded up to whole seconds. By default,
// they are admitted then.
func WithFailClosed(retryAfter time.Duration) Option {
	return func(c *config) { c.closed, c.closedFor = true, retryAfter }
}

// WithFallback asks a second limiter when the first fails: one on this machine
// for a store that is down, say. If it fails as well, requests are admitted, or
// refused if WithFailClosed says so. By default, there is none.
func WithFallback(limiter Limiter) Option {
	return func(c *config) { c.limiters = append(c.limiters[:1:1], limiter) }
}

// WithReportOnly never refuses: what would have been refused is told to the observer,
// and by the figures in the header, without Retry-After. By default, requests are
// refused.
func WithReportOnly() Option {
	return func(c *config) { c.reportOnly = true }
}

// WithObserver sets who is told of every decision, before the request goes on or is
// answered, and is called by any number of goroutines. By default, and for nil,
// nobody is, which costs nothing.
func WithObserver(observe func(Event)) Option {
	return func(c *config) { c.observe = observe }
}

// Event is a decision about a request.
type Event struct {
	Request  *http.Request
	Key      string
	Cost     float64              // tokens
	Decision tokenbucket.Decision // zero if nobody could decide
	Refused  bool                 // with 429, or 503 if nobody could decide; or it would have been but for WithReportOnly
	Err      error                // of the limiter that failed; of the fallback too, if that did
}
