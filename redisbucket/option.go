package redisbucket

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
)

// Option configures New.
type Option func(*config)

type config struct {
	limits   tokenbucket.Limits
	prefix   string
	timeout  time.Duration
	pause    time.Duration
	fallback Fallback
	onError  func(error)
	lease    *leaseSize // nil: none

	instrument func(redis.UniversalClient) // nil: none
}

type leaseSize struct {
	tokens float64
	maxAge time.Duration
}

func newConfig(limit tokenbucket.Limit, opts []Option) (config, error) {
	c := config{
		limits:  tokenbucket.Limits{limit},
		prefix:  "tokenbucket:",
		timeout: 500 * time.Millisecond,
		pause:   100 * time.Millisecond,
	}
	for i, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("%w: option %d is nil: leave it out", tokenbucket.ErrInvalidOption, i)
		}
		opt(&c)
	}
	return c, c.validate()
}

func (c *config) validate() error {
	switch {
	case c.timeout <= 0:
		return fmt.Errorf("%w: WithTimeout(%v): choose a time above 0", tokenbucket.ErrInvalidOption, c.timeout)
	case c.pause < 0:
		return fmt.Errorf("%w: WithBreak(%v): choose a time above 0, or 0 to send every request", tokenbucket.ErrInvalidOption, c.pause)
	case c.lease != nil && !(c.lease.tokens > 0 && c.lease.tokens <= math.MaxFloat64):
		return fmt.Errorf("%w: WithLease(%v, %v): choose a finite number of tokens above 0, or leave it out", tokenbucket.ErrInvalidOption, c.lease.tokens, c.lease.maxAge)
	case c.lease != nil && c.lease.maxAge <= 0:
		return fmt.Errorf("%w: WithLease(%v, %v): choose an age above 0, or leave it out", tokenbucket.ErrInvalidOption, c.lease.tokens, c.lease.maxAge)
	default:
		return c.limits.Validate()
	}
}

// WithLimit adds a further limit. A request is admitted if all limits admit it; they are
// decided together, in one round trip. By default, there is only the limit given to New.
func WithLimit(limit tokenbucket.Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}

// WithPrefix sets the beginning of the names of the keys in Redis. Processes with the same
// prefix share their buckets, and should have the same limits. If their limits differ, as
// during a rollout, a bucket has the limits of the process that wrote to it last. Give each
// kind of bucket its own prefix. By default, it is "tokenbucket:".
func WithPrefix(prefix string) Option {
	return func(c *config) { c.prefix = prefix }
}

// WithTimeout sets how long a call may wait for the server, above 0, regardless of the
// client's own timeouts. The time that Wait sleeps does not count. By default, it is half
// a second.
func WithTimeout(timeout time.Duration) Option {
	return func(c *config) { c.timeout = timeout }
}

// WithBreak sets for how long no request is sent to a server that did not answer in time or
// could not be reached. Meanwhile requests fail at once, or the fallback decides. Then one
// request is sent as a test. If the server answers it, the break is over. At the beginning
// of the break, a new connection is tried as well. If the server answers on it, the break
// is over. If only an existing connection is lost, the server may still work, so no break
// begins. With 0 every request is sent. By default, it is a tenth of a second.
func WithBreak(pause time.Duration) Option {
	return func(c *config) { c.pause = pause }
}

// Fallback decides while the server cannot, for example a *keyed.Buckets[string]. It may also
// have the methods Charge, Peek, TakeEach, WaitEach, RefundEach, ChargeEach and PeekEach of
// *keyed.Buckets[string]; without such a method, the call of that name returns
// ErrUnavailable.
type Fallback interface {
	Take(key string, cost float64) tokenbucket.Decision
	Wait(ctx context.Context, key string, cost float64) error
	Refund(key string, cost float64) error
}

// WithFallback makes fallback decide requests that would otherwise return ErrUnavailable.
// Each process has its own fallback, so give it the process's share of the limits. By
// default, and for nil, the error is returned.
func WithFallback(fallback Fallback) Option {
	return func(c *config) { c.fallback = fallback }
}

// WithErrorHandler sets a function that is called with each failure of a server, for example
// to log it, even if the fallback then decides. It is not called for requests that are not
// sent because of WithBreak. For a server that is too old to run the script, it is called at
// most once a minute. It is called by any number of goroutines. By default, and for nil,
// there is none.
func WithErrorHandler(handle func(error)) Option {
	return func(c *config) { c.onError = handle }
}

// WithInstrument sets a function that adds hooks to the client that Buckets uses, such as
// the tracing hooks of redisotel. New calls it once. For a *redis.Client without
// ContextTimeoutEnabled, Buckets uses a copy of the client, without its hooks. Otherwise
// Buckets uses the client given to New: do not add the same hooks to it elsewhere.
//
// With WithInstrument every request is a command of its own, with its caller's context, so
// every span has its caller's span as its parent. Otherwise requests of many callers may share
// a pipeline. By default, and for nil, no hooks are added. NewWithClient ignores it.
func WithInstrument(instrument func(redis.UniversalClient)) Option {
	return func(c *config) { c.instrument = instrument }
}

// WithLease makes each process take more tokens than a request needs, and keep them for the
// next requests, so that a hot key does not cost a round trip each time. A Take or TryAcquire
// takes its cost, and as many further whole tokens as the bucket has. In all, it takes at
// most the given number of tokens. If other such calls of this process wait for the same
// answer, it takes their costs in addition. The next calls spend these tokens in the process.
// The rest is given back maxAge after it was taken, or by Close, which the program must call.
//
// A key gets a lease when it is requested again within maxAge, or at once while fewer than
// four keys have one. At most MaxLeases keys have leases at a time. Requests for other keys
// cost one round trip, as without leases.
//
// As long as no tokens are given back, the bucket has at most the tokens of the server's
// last answer and the refill since then. A cost that these and the lease cannot cover is
// refused in the process, without a round trip. It is refused until the reported wait is
// over, at most for a minute after the answer. If this process gives tokens back, the next
// request goes to the server at once. Tokens that other processes give back do not end such
// refusals early.
//
// Tokens are taken on the server before they are spent, so all processes together never get
// more than capacity + refill * time from the first request on. In a window that begins
// later, each process may also spend the lease that it holds when the window begins. So
// tokenbucket.Within bounds the tokens that are taken on the server in a window, not those
// that are spent in it. A lease may also lie idle for maxAge while other processes are
// refused. So choose leases that together are a small part of the capacity, and an age of a
// fraction of a second. A lease above the capacity is cut to the capacity.
//
// Wait, the methods with names that end in Each, and requests that cost more than the lease
// do not use leases. They ask the server, which does not count leased tokens. Calls of Wait
// return in order of arrival, unless tokens are given back meanwhile. Requests that spend a
// lease do not delay them, since the tokens of the lease were taken before.
//
// The figures of a Decision are those of the server's last answer, plus the tokens left in
// the lease and the refill since the answer arrived. Refill while the answer was on its
// way is not counted, so a wait may be slightly too long. Tokens that other processes have
// taken since are not subtracted, so a wait may be too short.
//
// By default, there are no leases.
func WithLease(tokens float64, maxAge time.Duration) Option {
	return func(c *config) { c.lease = &leaseSize{tokens, maxAge} }
}
