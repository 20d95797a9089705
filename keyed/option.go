package keyed

import (
	"fmt"
	"math"

	"github.com/aa014e13/tokenbucket"
)

// Option configures New.
type Option func(*config)

type config struct {
	limits     tokenbucket.Limits
	clock      tokenbucket.Clock
	maxKeys    int
	maxWaiters int
}

func newConfig(limit tokenbucket.Limit, opts []Option) (config, error) {
	c := config{limits: tokenbucket.Limits{limit}, maxKeys: math.MaxInt, maxWaiters: math.MaxInt}
	for i, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("%w: option %d is nil: leave it out", tokenbucket.ErrInvalidOption, i)
		}
		opt(&c)
	}
	if c.maxKeys < 1 {
		return c, fmt.Errorf("%w: WithMaxKeys(%d): choose 1 or more, or leave it out for no bound", tokenbucket.ErrInvalidOption, c.maxKeys)
	}
	if c.maxWaiters < 0 {
		return c, fmt.Errorf("%w: WithMaxWaiters(%d): choose 0 or more, or leave it out for no bound", tokenbucket.ErrInvalidOption, c.maxWaiters)
	}
	return c, c.limits.Validate()
}

// WithClock sets the clock that the buckets read and on which callers sleep. By default,
// and for nil, it is the system clock.
func WithClock(clock tokenbucket.Clock) Option {
	return func(c *config) { c.clock = clock }
}

// WithMaxKeys sets the largest number of keys that are remembered at once. An n below 1
// is an ErrInvalidOption. If there is no room for a new key, it shares one overflow
// bucket with the other new keys until there is room. A charge or a pause of one of
// them counts for all of them. Any caller of Forget can make the overflow bucket full.
// By default, there is no bound but memory.
//
// Forgetting the oldest key instead would not be safe. A client could make up so many
// keys that all other keys are forgotten, and a forgotten key gets a full bucket. With
// the overflow bucket, known keys are not affected, and all made-up keys for which there
// is no room together get as much as one key.
//
// But a known key may be forgotten when its bucket is full. If the client comes back
// while there is no room, its key counts as a new one: it shares the overflow bucket,
// and most of its requests are refused until there is room. To avoid that, choose n well
// above the number of clients, and keys that are hard to make up.
func WithMaxKeys(n int) Option {
	return func(c *config) { c.maxKeys = n }
}

// WithMaxWaiters sets how many callers of Wait may be queued at once for each key, 0 or
// more. With 0, no caller may wait. Further callers get ErrTooManyWaiters. It also bounds
// the queue of the overflow bucket of WithMaxKeys. By default, there is no bound.
//
// Set it if callers are not trusted: some calls for a key with a long queue are slow; see
// Bucket.Wait.
func WithMaxWaiters(n int) Option {
	return func(c *config) { c.maxWaiters = n }
}

// WithLimit adds a limit. Every request has to meet all limits. By default, there is only
// the limit given to New.
func WithLimit(limit tokenbucket.Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}
