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
	for _, opt := range opts {
		opt(&c)
	}
	return c, c.validate()
}

func (c *config) validate() error {
	switch {
	case c.timeout <= 0:
		return fmt.Errorf("%w: WithTimeout(%v): choose a time above 0", tokenbucket.ErrInvalidOption, c.timeout)
	case c.pause < 0:
		return fmt.Errorf("%w: WithBreak(%v): choose a time above 0, or 0 to ask at once", tokenbucket.ErrInvalidOption, c.pause)
	case c.lease != nil && !(c.lease.tokens > 0 && c.lease.tokens <= math.MaxFloat64):
		return fmt.Errorf("%w: WithLease(%v, %v): choose a finite number of tokens above 0, or leave it out", tokenbucket.ErrInvalidOption, c.lease.tokens, c.lease.maxAge)
	case c.lease != nil && c.lease.maxAge <= 0:
		return fmt.Errorf("%w: WithLease(%v, %v): choose an age above 0, or leave it out", tokenbucket.ErrInvalidOption, c.lease.tokens, c.lease.maxAge)
	default:
		return c.limits.Validate()
	}
}

// WithLimit adds a further limit, which every request has to meet as well; all are
// decided together in one round trip. By default, there is only the limit given to
// New.
func WithLimit(limit tokenbucket.Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}

// WithPrefix sets what the names of the keys in Redis begin with. Buckets with the
// same prefix and limits share their buckets, in whatever process they are; give
// each kind of bucket a prefix of its own. By default, it is "tokenbucket:".
func WithPrefix(prefix string) Option {
	return func(c *config) { c.prefix = prefix }
}

// WithTimeout sets how long a call may take that reaches for the server, whatever
// the client's own timeouts are; the time that Wait sleeps does not count. By
// default, it is half a second.
func WithTimeout(timeout time.Duration) Option {
	return func(c *config) { c.timeout = timeout }
}

// WithBreak sets how long a server is left alone after it failed to answer in time or
// could not be reached, so that requests do not wait for it; meanwhile they fail at once, or
// the fallback decides. Then one is sent. Requests are sent again as soon as the server
// answers, on a new connection too: it is tried as soon as no answer came. A connection that breaks
// says nothing about the server, and nothing is left alone for it. With 0 every request is sent.
// By default, it is a tenth of a second.
func WithBreak(pause time.Duration) Option {
	return func(c *config) { c.pause = pause }
}

// Fallback decides while the server cannot: a *keyed.Buckets[string], for example.
type Fallback interface {
	Take(key string, cost float64) tokenbucket.Decision
	Wait(ctx context.Context, key string, cost float64) error
	Refund(key string, cost float64) error
}

// WithFallback lets fallback decide whatever would return ErrUnavailable. Since each
// process has its own, give it this process's share of the limits. By default, and
// for nil, the error is returned.
func WithFallback(fallback Fallback) Option {
	return func(c *config) { c.fallback = fallback }
}

// WithErrorHandler sets what is called with each failure of a server, also if the
// fallback then decides: to log it, say. Requests that are not sent while the
// server is left alone do not count. That a server is too old to run the script is
// reported once a minute. It may be called by several goroutines at
// once. By default, and for nil, nothing is called.
func WithErrorHandler(handle func(error)) Option {
	return func(c *config) { c.onError = handle }
}

// WithInstrument lets instrument add hooks to the client that is really used, such as
// those of redisotel that trace. New calls it once. The client is New's own if that one's
// commands end with their contexts (ContextTimeoutEnabled), or a copy of it without its
// hooks; in the first case do not add the same hooks to it yourself.
//
// Every request is then a command of its own with its caller's context, so that every
// span has its caller's as its parent; otherwise requests of many callers may share a
// pipeline. By default, and for nil, nothing is added. NewWithClient has no use for it.
func WithInstrument(instrument func(redis.UniversalClient)) Option {
	return func(c *config) { c.instrument = instrument }
}

// WithLease lets each process take tokens ahead of the requests that will need them, so that
// a key that is asked for all the time does not cost a round trip each time: a
// Take or TryAcquire takes its cost and as many whole tokens as are there, up to
// tokens in all, and those that follow spend them in the process. What is left is given back
// maxAge after it came, or on Close, which the program then has to call.
//
// Only a key that is asked for again within maxAge gets a lease, unless there are
// hardly any, and at most MaxLeases keys have one at a time. Requests for other keys go straight to
// the server, so they cost one round trip, as without leases.
//
// The server's last answer is an upper bound: what it could not cover is refused
// here and costs no round trip either, until the instant that the refusal
// names, and for a minute after the answer at most. What this process gives back ends
// that, what others give back does not.
//
// Since tokens are paid for before they are spent, all processes together never get
// more than capacity + refill * time from the first request on. In a window that
// begins later they may also spend what they hold at its beginning, at most a lease
// for each process: a limit of tokenbucket.Within counts the instants at which tokens
// are taken, not those at which they are spent. As much may lie idle for maxAge while
// others are refused. So choose a lease so small that those of all processes together are a
// small part of the capacity, and an age of a fraction of a second. More than the
// capacity is the same as the capacity.
//
// Wait, the methods that end in Each, and costs above the lease go straight to the server, and
// do not count what is leased. Wait returns in order of arrival; requests that spend a
// lease meanwhile do not delay it, since those tokens were taken before.
//
// The figures of a Decision are those of the server's last answer, with what is left
// here and what was refilled since; what others took since is missing. A wait is
// counted from the server's answer and suffices.
//
// By default, there are no leases.
func WithLease(tokens float64, maxAge time.Duration) Option {
	return func(c *config) { c.lease = &leaseSize{tokens, maxAge} }
}
