package httplimit

import (
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// TransportOption configures NewTransport.
type TransportOption func(*transportConfig)

type transportConfig struct {
	base         http.RoundTripper // nil: http.DefaultTransport
	cost         func(*http.Request) float64
	prices       tokenbucket.Costs // if there are any, cost is made from them
	each         bool              // costEach counts, and not cost
	costEach     func(*http.Request) []float64
	defaultPause time.Duration
	longestPause time.Duration
	tooFast      []int
	isTooFast    func(*http.Response) bool // nil: only tooFast counts
	observe      func(TransportEvent)      // nil: no observer
	readsFields  bool
	retries      int
	drain        int64 // bytes
	now          func() time.Time
	random       func() uint64
}

func newTransportConfig(buckets HostBuckets, opts []TransportOption) (transportConfig, error) {
	c := transportConfig{
		cost:         costOne,
		defaultPause: 10 * time.Second,
		longestPause: 5 * time.Minute,
		tooFast:      []int{http.StatusTooManyRequests},
		drain:        64 << 10,
		now:          time.Now,
		random:       rand.Uint64,
	}
	for i, opt := range opts {
		if opt == nil {
			return c, invalid("option %d is nil: leave it out", i)
		}
		opt(&c)
	}
	if err := c.validate(); err != nil {
		return c, err
	}
	if buckets == nil {
		return c, invalid("no buckets to wait on: pass a *keyed.Buckets[string], or AllHosts of a *tokenbucket.Bucket")
	}
	if _, ok := buckets.(eachWaiter); c.each && !ok {
		return c, invalid("WithTransportCostEach with buckets %T: use buckets that have a method WaitEach, see HostBuckets", buckets)
	}
	return c, c.settleCosts(buckets)
}

func (c *transportConfig) validate() error {
	switch {
	case !c.each && c.cost == nil:
		return invalid("WithTransportCost(nil): pass a function, or leave it out for a cost of 1")
	case c.each && c.costEach == nil:
		return invalid("WithTransportCostEach(nil): pass a function, or leave it out for a cost of 1")
	case c.each && c.readsFields:
		return invalid("WithTransportCostEach with WithRateLimitFields: leave one of them out, since the fields have one unit")
	case c.defaultPause <= 0:
		return invalid("WithDefaultPause(%v): choose a pause above 0", c.defaultPause)
	case c.longestPause <= 0:
		return invalid("WithLongestPause(%v): choose a pause above 0", c.longestPause)
	case c.retries < 0:
		return invalid("WithRetries(%d): choose 0 or more", c.retries)
	case c.drain < 0:
		return invalid("WithDrain(%d): choose 0 bytes or more", c.drain)
	}
	for _, status := range c.tooFast {
		if status < 400 || status > 599 {
			return invalid("WithTooFast(%d): choose statuses from 400 to 599", status)
		}
	}
	return nil
}

// settleCosts makes c.cost from the price list, if there is one.
func (c *transportConfig) settleCosts(buckets HostBuckets) error {
	if len(c.prices) == 0 {
		return nil
	}
	var limits []tokenbucket.Limit
	if l, ok := buckets.(limited); ok {
		limits = l.Limits()
	}
	ascii, err := asciiPatterns(c.prices)
	if err != nil {
		return err
	}
	p, err := newPrices(ascii, limits)
	if err != nil {
		return err
	}
	c.cost = func(req *http.Request) float64 { return p.of(asServed(req)) }
	return nil
}

func (c *transportConfig) baseOrDefault() http.RoundTripper {
	if c.base == nil {
		return http.DefaultTransport
	}
	return c.base
}

// WithBase sets the RoundTripper that sends the requests. By default, and for nil, it is
// the value that http.DefaultTransport has when a request is sent.
func WithBase(base http.RoundTripper) TransportOption {
	return func(c *transportConfig) { c.base = base }
}

// WithTransportCosts sets what requests cost, in tokens, by http.ServeMux pattern, such
// as "GET /export" or "api.example.com/users/{id}". The most specific pattern decides,
// as for a ServeMux; a request that matches none costs 1. NewTransport returns the
// errors that WithCosts lists. WithTransportCosts overrides an earlier
// WithTransportCost or WithTransportCostEach. By default, every request costs 1.
func WithTransportCosts(prices tokenbucket.Costs) TransportOption {
	prices = maps.Clone(prices)
	return func(c *transportConfig) { c.cost, c.prices, c.each = costOne, prices, false }
}

// WithTransportCost sets a function that returns what a request costs, in tokens. The
// function must not read the request's body. Any number of goroutines call it. A request
// whose cost is negative, NaN or above a capacity is not sent; Bucket.Wait lists the
// errors. WithTransportCost overrides an earlier WithTransportCosts or
// WithTransportCostEach. By default, every request costs 1.
func WithTransportCost(cost func(*http.Request) float64) TransportOption {
	return func(c *transportConfig) { c.cost, c.prices, c.each = cost, nil, false }
}

// WithTransportCostEach sets a function that returns what a request costs: one cost for
// each limit of the buckets, in tokens, in the order of their limits. For example, 1 for
// a limit on requests, and 400 for a limit on the tokens of a language model. The request
// waits until all costs can be taken, and then takes all of them at once. The function
// must not read the request's body, and must not change the slice after it has returned
// it. Any number of goroutines call it. A request is not sent if the number of costs is
// not the number of limits, or if a cost is negative, NaN or above its limit's capacity.
// Bucket.WaitEach lists the errors. A limit with a cost of 0 does not count; if all costs
// are 0, the request is free.
//
// NewTransport returns ErrInvalidOption if the buckets have no method WaitEach, see
// HostBuckets. It also does so if WithRateLimitFields is used as well, because those
// fields report tokens of one unit. WithTransportCostEach overrides an earlier
// WithTransportCost or WithTransportCosts; nil is an ErrInvalidOption. By default,
// every request costs 1 of each limit.
func WithTransportCostEach(costs func(*http.Request) []float64) TransportOption {
	return func(c *transportConfig) { c.costEach, c.prices, c.each = costs, nil, true }
}

// WithDefaultPause sets the pause, above 0, after an answer that says "too fast" but not
// for how long. Without the jitter of WithRetries, it is never longer than
// WithLongestPause. By default, it is 10 seconds.
func WithDefaultPause(d time.Duration) TransportOption {
	return func(c *transportConfig) { c.defaultPause = d }
}

// WithLongestPause sets the longest pause, above 0. If the server demands a longer one, the
// Transport pauses for this time only. So it sends requests before the server allows them.
// The caller gets the answer without a retry. For an API that bans clients for hours or
// days, set it to the longest ban or more. By default, it is 5 minutes.
func WithLongestPause(d time.Duration) TransportOption {
	return func(c *transportConfig) { c.longestPause = d }
}

// WithTooFast adds statuses, from 400 to 599, that mean "too fast" as 429 does: they pause
// with or without Retry-After, and WithRetries applies to them.
//
// By default, limit_req of nginx refuses with 503 and without Retry-After, so a
// Transport does not pause. Configure nginx to answer with 429 and Retry-After:
//
//	limit_req_status 429;
//	error_page 429 @slow;
//	location @slow { internal; add_header Retry-After 1 always; return 429; }
//
// If the server cannot be changed, WithTooFast(503) pauses for WithDefaultPause after
// every 503. WithTooFastFunc can choose among them.
//
// By default, only 429 means "too fast", and 503 if it has a Retry-After.
func WithTooFast(statuses ...int) TransportOption {
	statuses = slices.Clone(statuses)
	return func(c *transportConfig) { c.tooFast = append(c.tooFast, statuses...) }
}

// WithTooFastFunc sets a function that reports whether an answer says "too fast". It is for
// servers whose status is ambiguous: GitHub answers 403 for its secondary limits, and also
// for a missing permission, which must not pause anything. The function is called for every
// answer, of any status, that does not already mean "too fast" by its status. If the
// function returns true, the Transport pauses and retries as it does for the statuses of
// WithTooFast.
//
// The function may read up to 64 KiB of the body; then Read returns io.EOF. Reading waits
// for the server. The caller still gets all of the body. The function must not
// change the answer or keep it, and must be safe for concurrent use. By default, and
// for nil, only the status decides.
func WithTooFastFunc(isTooFast func(*http.Response) bool) TransportOption {
	return func(c *transportConfig) { c.isTooFast = isTooFast }
}

// WithTransportObserver sets a function that is called once for each attempt to send a
// request, before RoundTrip returns or waits for a retry. It must be safe for
// concurrent use, and should return soon, since the request waits for it. By default, and
// for nil, no function is called.
func WithTransportObserver(observe func(TransportEvent)) TransportOption {
	return func(c *transportConfig) { c.observe = observe }
}

// WithRateLimitFields makes the Transport slow down before the server refuses: each
// answer says how many tokens are left. The Transport reads the first of these that an
// answer has and that is well-formed:
//
//   - RateLimit as a List (draft-ietf-httpapi-ratelimit-headers, revisions 10 and 11)
//     or as a Dictionary (revision 7: limit=10, remaining=3, reset=5)
//   - RateLimit-Remaining and RateLimit-Reset (revision 6 and before)
//   - X-RateLimit-Remaining and X-RateLimit-Reset
//
// In the last two, a reset above 10^8 is a Unix time. It is compared with the Date field
// of the answer, if there is one. Any other reset is in seconds.
//
// If r tokens are left, the bucket of the host is lowered to r tokens minus the cost of
// requests that are on their way. A bucket that has fewer tokens is not changed. So the
// client takes at most r tokens and those that are refilled in the meantime. If no token
// is left, the bucket is paused until the reset, at most for WithLongestPause. If there
// are several policies, the one with the fewest tokens left counts. If there is a
// Retry-After, it counts instead of the reset. Fields that are malformed, or in an
// answer from a cache, are ignored.
//
// By default, these fields are not read.
func WithRateLimitFields() TransportOption {
	return func(c *transportConfig) { c.readsFields = true }
}

// WithRetries sets how many times a refused request is sent again, 0 or more. A request is
// sent again only if that is safe. It must have an idempotent method, or the field
// Idempotency-Key or X-Idempotency-Key. It must have no body, or GetBody, which
// http.NewRequest sets for the usual kinds of body. Each retry waits for the end of the
// pause and for its tokens; the tokens of refused attempts are not given back. If the last
// attempt is refused, or if the context's deadline would pass before the retry, RoundTrip
// returns the refusing answer and no error.
//
// With retries, pauses after a refusal are longer by a random time, the jitter. As a
// result, many processes that wait for the same second do not all come back at the same
// instant. For pauses of 10 seconds or more, the jitter is at most a tenth of the pause.
// For shorter pauses, it is at most a second, and not longer than the pause. The jitter may
// make a pause longer than WithLongestPause. If the server demands a pause longer than
// WithLongestPause, no jitter is added. By default, there are no retries.
func WithRetries(n int) TransportOption {
	return func(c *transportConfig) { c.retries = n }
}

// WithDrain sets how many bytes of a refusing answer's body are read before the retry is
// sent, 0 or more. Reading takes at most a second. If the body ends within that, the
// connection can be used again. By default, it is 64 KiB.
func WithDrain(bytes int64) TransportOption {
	return func(c *transportConfig) { c.drain = min(bytes, math.MaxInt64-1) } // releaseConnection adds 1
}

// WithTransportClock sets the clock of the Transport. If an answer has no Date field,
// dates in Retry-After and Unix times in the fields of WithRateLimitFields are compared
// with this clock. This clock also measures the time in the queue for TransportEvent. The
// buckets wait by their own clock. By default, and for nil, the Transport uses the system
// clock.
func WithTransportClock(clock tokenbucket.Clock) TransportOption {
	return func(c *transportConfig) {
		c.now = time.Now
		if clock != nil {
			c.now = clock.Now
		}
	}
}

// WithJitterSource sets the source of the jitter. NewTransport draws one number from it;
// two Transports with equal numbers have the same jitter. By default, and for nil, every
// Transport draws a random number.
func WithJitterSource(source rand.Source) TransportOption {
	return func(c *transportConfig) {
		c.random = rand.Uint64
		if source != nil {
			c.random = source.Uint64
		}
	}
}
