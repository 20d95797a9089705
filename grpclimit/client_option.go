package grpclimit

import (
	"maps"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// ClientOption configures the interceptors of a client.
type ClientOption func(*clientConfig)

type clientConfig struct {
	costs        tokenbucket.Costs
	prices       prices // made of costs
	retries      int
	longestPause time.Duration
	observe      func(ClientEvent)
}

func newClientConfig(b httplimit.HostBuckets, opts []ClientOption) (*clientConfig, error) {
	c := &clientConfig{longestPause: 5 * time.Minute}
	for i, opt := range opts {
		if opt == nil {
			return nil, invalid("option %d is nil: leave it out", i)
		}
		opt(c)
	}
	switch {
	case b == nil:
		return nil, invalid("no buckets to wait on: pass a *keyed.Buckets[string], or httplimit.AllHosts of a *tokenbucket.Bucket")
	case c.retries < 0:
		return nil, invalid("WithRetries(%d): choose 0 or more", c.retries)
	case c.longestPause <= 0:
		return nil, invalid("WithLongestPause(%v): choose a pause above 0", c.longestPause)
	}
	var limits []tokenbucket.Limit
	if limited, ok := b.(interface{ Limits() []tokenbucket.Limit }); ok {
		limits = limited.Limits()
	}
	var err error
	c.prices, err = newPrices(c.costs, limits)
	return c, err
}

// WithClientCosts sets what calls cost, in tokens, by full method or service, as
// [WithCosts] does. A cost of 0 does not wait. By default, every call costs 1.
func WithClientCosts(costs tokenbucket.Costs) ClientOption {
	costs = maps.Clone(costs)
	return func(c *clientConfig) { c.costs = costs }
}

// WithRetries sets how many times a refused call is sent again, 0 or more, each time after
// the wait that the server ordered. If the wait would outlast the call's deadline, the
// refusal is returned at once. Each attempt takes the call's cost. By default, it is 0.
func WithRetries(n int) ClientOption {
	return func(c *clientConfig) { c.retries = n }
}

// WithLongestPause sets the longest pause that a server can order, above 0. If a server
// orders a longer one, the target is paused for d, and the call is not sent again. By
// default, it is 5 minutes.
func WithLongestPause(d time.Duration) ClientOption {
	return func(c *clientConfig) { c.longestPause = d }
}
