package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Option configures New.
type Option func(*config)

type config struct {
	limiter    Limiter
	addresses  addresses
	key        func(*http.Request) string // nil: the address
	keyHeaders []string
	costs      tokenbucket.Costs
	cost       func(*http.Request) float64
	names      []string
	xRateLimit bool
	rateLimit  bool
	unixReset  tokenbucket.Clock // nil: seconds from now
	refuse     func(http.ResponseWriter, *http.Request, tokenbucket.Decision)
	failure    time.Duration // the Retry-After of a 503, 0: admit
	fallback   Limiter
	reportOnly bool
	observe    func(Event)
}

// WithKey sets the function that tells clients apart. Requests for which it
// returns "" share one bucket; none goes free. It runs in many goroutines. By
// default, the key is the address of the peer.
func WithKey(key func(*http.Request) string) Option {
	return func(c *config) { c.key = key }
}

// WithKeyHeader takes the value of the first of these headers that a request has
// as its key: an API key, Authorization. Values of more than 64 bytes count by
// their SHA-256. A request without any counts by its address. Whoever can choose
// the value freely can choose a fresh bucket: check it before, or bound the keys.
// By default, no header counts.
func WithKeyHeader(names ...string) Option {
	return func(c *config) {
		for _, name := range names {
			c.keyHeaders = append(c.keyHeaders, http.CanonicalHeaderKey(name))
		}
	}
}

// TrustedProxies lists the proxies whose X-Forwarded-For is believed. By default,
// there are none, and the header counts for nothing.
func TrustedProxies(prefixes ...netip.Prefix) Option {
	return func(c *config) { c.addresses.trusted = append(c.addresses.trusted, prefixes...) }
}

// WithIPv6Prefix sets how many leading bits of an IPv6 address make a key, from 1
// to 128. By default, they are 64: what one customer has at the least.
func WithIPv6Prefix(bits int) Option {
	return func(c *config) { c.addresses.ipv6Bits = bits }
}

// WithCosts sets what requests cost, in tokens, by patterns of http.ServeMux such
// as "GET /export" and "/users/{id}", of which the most specific counts. A request
// that no pattern matches costs 1. New refuses a pattern that ServeMux does not
// take, and a price that is invalid or above a capacity. By default, every request
// costs 1.
func WithCosts(costs tokenbucket.Costs) Option {
	return func(c *config) { c.costs = costs }
}

// WithCost sets the function that says what a request costs, in tokens, instead of
// WithCosts. A negative cost, NaN or one above a capacity is refused for good. By
// default, every request costs 1.
func WithCost(cost func(*http.Request) float64) Option {
	return func(c *config) { c.cost = cost }
}

// WithPolicyNames names the limits in the RateLimit fields, in the order of
// Limits; they are printable ASCII. Further ones are named after the last, with
// "-2" and so on. By default, they are "default", "default-2", ...
func WithPolicyNames(names ...string) Option {
	return func(c *config) { c.names = names }
}

// WithoutXRateLimit leaves the X-RateLimit fields out. By default, they are set.
func WithoutXRateLimit() Option { return func(c *config) { c.xRateLimit = false } }

// WithoutRateLimit leaves RateLimit and RateLimit-Policy out. By default, they are set.
func WithoutRateLimit() Option { return func(c *config) { c.rateLimit = false } }

// WithUnixReset makes X-RateLimit-Reset a Unix time, as GitHub has it, read from a
// clock; nil is the system's. By default, it is in seconds from now.
func WithUnixReset(clock tokenbucket.Clock) Option {
	return func(c *config) {
		c.unixReset = clock
		if clock == nil {
			c.unixReset = wallClock{}
		}
	}
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) Since(t time.Time) time.Duration        { return time.Since(t) }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// WithRefusal sets what answers a refused request. All header fields are set by
// then. By default, it is 429 (RFC 6585) with a problem+json body (RFC 9457).
func WithRefusal(refuse func(http.ResponseWriter, *http.Request, tokenbucket.Decision)) Option {
	return func(c *config) { c.refuse = refuse }
}

// FailClosed refuses with 503 and a Retry-After, rounded up to seconds, when the
// limiter fails. By default, requests are admitted then.
func FailClosed(retryAfter time.Duration) Option {
	return func(c *config) { c.failure = max(retryAfter, 1) }
}

// WithFallback asks a second limiter when the first fails: one on this machine
// when the common store is down. If it fails as well, FailClosed decides. By
// default, there is none.
func WithFallback(limiter Limiter) Option {
	return func(c *config) { c.fallback = limiter }
}

// ReportOnly never refuses: what would have been is told to the observer and by
// the figures in the header. By default, requests are refused.
func ReportOnly() Option { return func(c *config) { c.reportOnly = true } }

// WithObserver is told of every decision, before the request is answered, in the
// request's goroutine. By default, nobody is, at no cost.
func WithObserver(observe func(Event)) Option {
	return func(c *config) { c.observe = observe }
}

// Event is a decision about a request.
type Event struct {
	Request  *http.Request
	Key      string
	Cost     float64 // tokens
	Decision tokenbucket.Decision
	Err      error // why the limiter could not decide; the decision is the fallback's then, or void
}

func newConfig(limiter Limiter, opts []Option) (*config, error) {
	c := &config{limiter: limiter, addresses: addresses{ipv6Bits: 64}, names: []string{"default"}, xRateLimit: true, rateLimit: true}
	for _, opt := range opts {
		opt(c)
	}
	if limiter == nil {
		return nil, fmt.Errorf("%w: no limiter: pass Shared, PerKey or your own", tokenbucket.ErrInvalidOption)
	}
	if c.addresses.ipv6Bits < 1 || c.addresses.ipv6Bits > 128 {
		return nil, fmt.Errorf("%w: WithIPv6Prefix(%d): choose from 1 to 128 bits", tokenbucket.ErrInvalidOption, c.addresses.ipv6Bits)
	}
	if len(c.names) == 0 {
		return nil, fmt.Errorf("%w: WithPolicyNames(): name at least one, or leave it out", tokenbucket.ErrInvalidOption)
	}
	for _, name := range c.names {
		if _, err := quote(name); err != nil {
			return nil, err
		}
	}
	return c, c.resolve()
}

// resolve settles on one function each for keys and costs.
func (c *config) resolve() error {
	if c.key == nil {
		c.key = c.addresses.key
		if len(c.keyHeaders) > 0 {
			c.key = c.headerOrAddress
		}
	}
	if c.cost == nil && len(c.costs) > 0 {
		prices, err := newPrices(c.costs, limitsOf(c.limiter))
		if err != nil {
			return err
		}
		c.cost = prices.of
	}
	return nil
}

func (c *config) headerOrAddress(r *http.Request) string {
	if key := headerKey(r, c.keyHeaders); key != "" {
		return key
	}
	return c.addresses.key(r)
}
