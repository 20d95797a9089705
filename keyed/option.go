package keyed

import (
	"fmt"
	"math"

	"github.com/aa014e13/tokenbucket"
)

// Option configures New.
type Option func(*config)

type config struct {
	limits  tokenbucket.Limits
	clock   tokenbucket.Clock
	maxKeys int
}

func newConfig(limit tokenbucket.Limit, opts []Option) (config, error) {
	c := config{limits: tokenbucket.Limits{limit}, maxKeys: math.MaxInt}
	for _, opt := range opts {
		opt(&c)
	}
	if c.maxKeys < 1 {
		return c, fmt.Errorf("%w: WithMaxKeys(%d): choose 1 or more, or leave it out for no bound", tokenbucket.ErrInvalidOption, c.maxKeys)
	}
	return c, c.limits.Validate()
}

// WithClock sets the clock that the buckets read and sleep on. By default, and for
// nil, it is the system clock.
func WithClock(clock tokenbucket.Clock) Option {
	return func(c *config) { c.clock = clock }
}

// WithMaxKeys bounds how many keys are remembered at once, n at least 1. A new key
// that finds no room shares one overflow bucket with the other newcomers until
// there is some: what one of them is charged, or paused for, meets them all. By
// default, there is no bound but memory.
//
// It is tempting to forget the oldest key instead. But then whoever makes up
// enough keys gets everybody forgotten, and with each forgotten key a fresh burst
// is handed out; this way known keys feel nothing, and all the made-up ones
// together get what one key may have.
func WithMaxKeys(n int) Option {
	return func(c *config) { c.maxKeys = n }
}

// WithLimit adds a further limit, which every request has to meet as well. By
// default, there is only the limit given to New.
func WithLimit(limit tokenbucket.Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}
