package grpclimit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Option configures the interceptors of a server.
type Option func(*config)

type config struct {
	http          []httplimit.Option // options that httplimit carries out
	address       []httplimit.Option // the options of WithAddress
	readsMetadata bool
	key           func(ctx context.Context, fullMethod string) string
	costs         tokenbucket.Costs
	cost          func(ctx context.Context, fullMethod string, message any) float64
	messageCost   func(ctx context.Context, fullMethod string, message any) float64
	observe       func(Event)
	reportOnly    bool
	closed        bool
	closedFor     time.Duration
}

func newConfig(opts []Option) (*config, error) {
	c := &config{}
	for i, opt := range opts {
		if opt == nil {
			return nil, invalid("option %d is nil: leave it out", i)
		}
		opt(c)
	}
	if c.closedFor > longestPushback { // httplimit.NewGate checks the least
		return nil, invalid("WithFailClosed(%v): choose at most %v, the longest wait that gRPC clients accept", c.closedFor, longestPushback)
	}
	_, err := httplimit.AddressKey(c.address...)
	return c, err
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{tokenbucket.ErrInvalidOption}, args...)...)
}

// WithCosts sets what calls cost, in tokens, by full method, "/package.Service/Method", or
// by service, "/package.Service/*". A method costs 1 if neither it nor its service is
// listed. A stream pays once, when it is opened. A price that is negative, NaN or above a
// capacity is an error, and so is a name of another form. WithCost overrides WithCosts. By
// default, every call costs 1.
func WithCosts(costs tokenbucket.Costs) Option {
	costs = maps.Clone(costs)
	return func(c *config) { c.costs = costs }
}

// WithCost sets a function that returns what a call costs, in tokens. The function's
// argument message is the request, or nil for a stream. Any number of goroutines call
// the function. A call whose cost is negative, NaN or above a capacity is refused. By
// default, and for nil, WithCosts decides.
func WithCost(cost func(ctx context.Context, fullMethod string, message any) float64) Option {
	return func(c *config) { c.cost = cost }
}

// WithMessageCost sets a function that returns what a message costs, in tokens. Each
// message that a stream's handler receives waits until the limiter grants that cost. Any
// number of goroutines call the function. The limiter must have a method Wait(ctx
// context.Context, key string, cost float64) error, as the limiters of this library have.
// If the stream's context ends first, or the wait would outlast its deadline, RecvMsg
// returns an error. If the limiter fails, the message goes on, or is refused with
// WithFailClosed; the limiter of WithFallback is not asked about messages. With
// WithReportOnly no message waits or is refused. If the limiter fails then, the limiter
// of WithFallback is asked about the message. By default, and for nil, messages are free.
func WithMessageCost(cost func(ctx context.Context, fullMethod string, message any) float64) Option {
	return func(c *config) { c.messageCost = cost }
}

// WithPolicyNames names the limits in ratelimit, ratelimit-policy and QuotaFailure, as
// httplimit.WithPolicyNames does. By default, they are "default", "default-2" and so on.
func WithPolicyNames(names ...string) Option { return with(httplimit.WithPolicyNames(names...)) }

// WithoutRateLimit omits the trailers ratelimit and ratelimit-policy. By default, every call
// has them.
func WithoutRateLimit() Option { return with(httplimit.WithoutRateLimit()) }

// WithFallback sets a limiter that decides when the first one fails. By default, there is
// none.
func WithFallback(l httplimit.Limiter) Option { return with(httplimit.WithFallback(l)) }

// WithReportOnly admits all calls, and reports to the observer which calls would have been
// refused. Messages do not wait: an event with Refused is a message that would have waited
// or would have been refused. By default, calls are refused and messages wait.
func WithReportOnly() Option {
	return func(c *config) {
		c.http = append(c.http, httplimit.WithReportOnly())
		c.reportOnly = true
	}
}

// WithFailClosed refuses calls if the limiter fails and no fallback decides, except
// calls and messages that cost 0. The status is Unavailable, with a RetryInfo of
// retryAfter. A time that is not above 0, or is above 2^31-1 ms, is an
// ErrInvalidOption. By default, such calls are admitted.
func WithFailClosed(retryAfter time.Duration) Option {
	return func(c *config) {
		c.http = append(c.http, httplimit.WithFailClosed(retryAfter))
		c.closed, c.closedFor = true, retryAfter
	}
}

func with(opt httplimit.Option) Option {
	return func(c *config) { c.http = append(c.http, opt) }
}

// Event is a decision about a call, a stream, or a message of a stream. If no limiter could
// decide, Decision is zero and LimiterIndex is -1, as in httplimit. For a message, that also
// holds if the stream ended before the decision.
//
// Without WithReportOnly, the limit that decided about a message is not known: LimiterIndex is
// -1, and Policy is empty. If the limiter decided, Decision has only OK, Wait and a LimitIndex
// of -1.
type Event struct {
	Method          string // full: /package.Service/Method
	httplimit.Event        // without Request

	Message bool          // whether the decision is about a message, with WithMessageCost
	Waited  time.Duration // for which the message waited, by the system clock; 0 for calls and with WithReportOnly
}

// WithObserver sets a function that is called for every call and stream, before it goes on
// or is answered, and with WithMessageCost for every message, when its wait is over. It is
// called by any number of goroutines. By default, and for nil, there is none.
func WithObserver(observe func(Event)) Option {
	return func(c *config) { c.observe = observe }
}
