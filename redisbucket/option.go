package redisbucket

import (
	"context"
	"fmt"
	"time"

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

// WithBreak sets how long a server is left alone after it failed to answer, so that
// requests do not queue on it; they fail at once meanwhile, or are the fallback's.
// Then one is let through. With 0 every request tries. By default, it is a tenth of
// a second.
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

// WithErrorHandler sets what is called with each failure of a server, also where
// the fallback then decides: to log it, say. Requests that are not sent while the
// server is left alone do not count. It may be called by several goroutines at
// once. By default, and for nil, nothing is.
func WithErrorHandler(handle func(error)) Option {
	return func(c *config) { c.onError = handle }
}
