package httplimit

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Option configures New. Options about addresses also configure AddressKey.
type Option interface{ apply(c *config) }

type serverOption func(c *config)

func (o serverOption) apply(c *config) { o(c) }

type addressOption func(a *addresses)

func (o addressOption) apply(c *config) { o(&c.addresses) }

type config struct {
	addresses  addresses
	keyHeaders []keyHeader
	keyFunc    func(*http.Request) string // nil: by the headers, else by the address
	costs      tokenbucket.Costs          // if there are any, cost is made from them
	cost       func(*http.Request) float64
	each       bool // costEach replaces cost
	costEach   func(*http.Request) []float64
	names      []string // of the policies

	xRateLimit bool
	rateLimit  bool
	exposes    bool             // the fields, to pages of other origins
	unixNow    func() time.Time // nil: resets are in seconds from now

	limiters    []Limiter // New's, and the fallback
	refuse      func(http.ResponseWriter, *http.Request, tokenbucket.Decision)
	closed      bool          // refuse if no limiter can decide
	closedFor   time.Duration // the Retry-After of such a refusal
	unavailable func(http.ResponseWriter, *http.Request, error)
	reportOnly  bool
	observe     func(Event)
	admission   bool
}

func newConfig(limiter Limiter, opts []Option) (*config, error) {
	c := &config{
		addresses:  newAddresses(),
		cost:       costOne,
		names:      []string{"default"},
		xRateLimit: true,
		rateLimit:  true,
		limiters:   []Limiter{limiter},
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, invalid("option %d is nil: leave it out", i)
		}
		opt.apply(c)
	}
	if err := c.validate(); err != nil {
		return nil, err
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
		return invalid("no limiter: pass a limiter that is not nil to New and WithFallback, such as Shared of a bucket or PerKey of buckets")
	case c.each && c.costEach == nil:
		return invalid("WithCostEach(nil): pass a function, or leave it out for a cost of 1")
	case c.cost == nil:
		return invalid("WithCost(nil): pass a function, or leave it out for a cost of 1")
	case c.closed && (c.closedFor <= 0 || c.closedFor == tokenbucket.Never):
		return invalid("WithFailClosed(%v): choose a time above 0 to retry after", c.closedFor)
	case c.unavailable != nil && !c.closed:
		return invalid("WithUnavailable without WithFailClosed: add WithFailClosed, or requests are admitted if no limiter can decide")
	}
	for _, h := range c.keyHeaders {
		if !isToken(h.name) {
			return invalid("a key header named %q: name a header field, with letters, digits and -", h.name)
		}
	}
	if err := c.addresses.validate(); err != nil {
		return err
	}
	if err := c.validateNames(); err != nil {
		return err
	}
	return c.validateLimiters()
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
			return invalid("the policy name %q is given twice: choose another", name)
		}
	}
	return nil
}

// validateLimiters checks that the limiters have the methods that the options need.
func (c *config) validateLimiters() error {
	for _, l := range c.limiters {
		if !canGiveBack(l) {
			return invalid("Both with a first limiter that has no Refund, or that Both made of one: add the method, or make it the second")
		}
		if c.each && !canTakeEach(l) {
			return invalid("WithCostEach with a limiter %T: use one that has TakeEach; in Both, the first needs Limits and RefundEach as well", l)
		}
		if c.admission && !(has[Refunder](l) && has[charger](l)) {
			return invalid("WithAdmission with a limiter %T: use one that has Refund and Charge", l)
		}
		if c.admission && c.each && !(has[eachRefunder](l) && has[eachCharger](l)) {
			return invalid("WithAdmission and WithCostEach with a limiter %T: use one that has RefundEach and ChargeEach", l)
		}
	}
	return nil
}

// settleCosts makes c.cost from the price list, if there is one.
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

// WithCosts sets what requests cost, in tokens, by http.ServeMux pattern, such as
// "GET /export" or "/users/{id}". The most specific pattern decides, as for a ServeMux;
// a request that matches none costs 1, unless the pattern "/" sets another default.
//
// New returns ErrInvalidOption for a pattern that a ServeMux does not accept. It also
// does so for a pattern that no request would match, such as "/files/:id" or
// "/files/*path" in another router's syntax. It returns ErrInvalidCost for a price that
// is negative or NaN, and ErrCostExceedsCapacity for a price above a capacity.
//
// Many routers serve more spellings of a path than a ServeMux matches: in upper case,
// with a trailing or a double slash, or after StripPrefix. With such a router a request
// can reach a priced handler under a spelling that has no price here, and then costs 1.
// There are two safe ways. Either set a price for "/" that is high enough for every path,
// and list the cheap paths by name. Or use WithCost with the pattern that the router has
// matched.
//
// WithCosts overrides an earlier WithCost or WithCostEach. By default, every request
// costs 1.
func WithCosts(costs tokenbucket.Costs) Option {
	costs = maps.Clone(costs)
	return serverOption(func(c *config) { c.cost, c.costs, c.each = costOne, costs, false })
}

// WithCost sets a function that returns what a request costs, in tokens. Any number of
// goroutines call it. A request whose cost is negative, NaN or above a capacity is refused
// without Retry-After. A request that costs 0 is admitted. WithCost overrides an earlier
// WithCosts or WithCostEach; nil is an ErrInvalidOption. By default, every request costs
// 1.
func WithCost(cost func(*http.Request) float64) Option {
	return serverOption(func(c *config) { c.cost, c.costs, c.each = cost, nil, false })
}

// WithCostEach sets a function that returns what a request costs: one cost for each
// limit, in tokens, in the order of the limiter's Limits. For example, 1 for a limit on
// requests, and 400 for a limit on the tokens of a language model. The limiter takes all
// of the costs or none. Any number of goroutines call the function. It must not change
// the slice after it has returned it. A request is refused without Retry-After if the
// number of costs is not the number of limits, or if a cost is negative, NaN or above its
// limit's capacity. A limit with a cost of 0 does not count.
//
// The limiter, and the fallback if there is one, need a method TakeEach, see Limiter;
// otherwise New returns ErrInvalidOption, as it does for nil. WithCostEach overrides an
// earlier WithCost or WithCosts. By default, a request costs 1 of every limit.
func WithCostEach(costs func(*http.Request) []float64) Option {
	return serverOption(func(c *config) { c.cost, c.costs, c.each, c.costEach = costOne, nil, true, costs })
}

// WithRefusal sets a function that answers refused requests. When it is called, the header
// fields have been set and the status has not. The function may change the fields. By
// default, and for nil, the answer is 429 (RFC 6585) with a body that says why (RFC 9457).
func WithRefusal(refuse func(http.ResponseWriter, *http.Request, tokenbucket.Decision)) Option {
	return serverOption(func(c *config) { c.refuse = refuse })
}

// WithFailClosed refuses requests with 503 when the limiter fails and no fallback
// decides, except requests that cost 0. Retry-After is the given time, rounded up to
// whole seconds. A time that is not above 0, or is Never, is an ErrInvalidOption. By
// default, such requests are admitted.
func WithFailClosed(retryAfter time.Duration) Option {
	return serverOption(func(c *config) { c.closed, c.closedFor = true, retryAfter })
}

// WithUnavailable sets a function that answers requests that WithFailClosed refuses. It
// gets the errors of the limiters. When it is called, Retry-After and Cache-Control have
// been set and the status has not. The function may change these fields. Without
// WithFailClosed it is an ErrInvalidOption. By default, and for nil, the answer is 503 with
// a body that says why (RFC 9457).
func WithUnavailable(answer func(http.ResponseWriter, *http.Request, error)) Option {
	return serverOption(func(c *config) { c.unavailable = answer })
}

// WithFallback asks a second limiter when the first fails: for example one on this
// machine while a store is down. If the second limiter fails as well, requests are
// admitted, or refused with WithFailClosed. By default, there is none.
func WithFallback(limiter Limiter) Option {
	return serverOption(func(c *config) { c.limiters = append(c.limiters[:1:1], limiter) })
}

// WithReportOnly lets every request go on. The observer and the header fields report the
// decisions, without Retry-After. By default, requests are refused.
func WithReportOnly() Option {
	return serverOption(func(c *config) { c.reportOnly = true })
}
