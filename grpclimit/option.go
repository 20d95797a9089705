package grpclimit

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Option configures the interceptors of a server.
type Option func(*config)

type config struct {
	http          []httplimit.Option // those that are the same in httplimit
	address       []httplimit.Option // those of WithAddress
	readsMetadata bool
	key           func(ctx context.Context, fullMethod string) string
	costs         tokenbucket.Costs
	cost          func(ctx context.Context, fullMethod string, message any) float64
	messageCost   func(ctx context.Context, fullMethod string, message any) float64
	waiter        waiter // for messages
	observe       func(Event)
	closed        bool
	closedFor     time.Duration
}

func newConfig(l httplimit.Limiter, opts []Option) (*config, error) {
	c := &config{}
	for _, opt := range opts {
		opt(c)
	}
	if c.messageCost != nil {
		var ok bool
		if c.waiter, ok = l.(waiter); !ok {
			return nil, fmt.Errorf("%w: WithMessageCost: the limiter has no Wait(ctx, key, cost): add the method, or use a limiter of this module", tokenbucket.ErrInvalidOption)
		}
	}
	if _, err := httplimit.AddressKey(c.address...); err != nil {
		return nil, err
	}
	return c, validateCosts(c.costs, l)
}

// httpOptions returns the options of the middleware that decides.
func (c *config) httpOptions() []httplimit.Option {
	options := append(slices.Clone(c.http),
		httplimit.WithoutXRateLimit(),
		httplimit.WithCost(func(r *http.Request) float64 { return c.costOf(r.Context(), callOf(r)) }),
		httplimit.WithObserver(func(e httplimit.Event) {
			answered := callOf(e.Request)
			e.Request = nil
			answered.event = e
			if c.observe != nil {
				c.observe(Event{answered.method, e})
			}
		}),
		httplimit.WithRefusal(func(http.ResponseWriter, *http.Request, tokenbucket.Decision) {}),
	)
	if c.closed {
		options = append(options, httplimit.WithUnavailable(func(http.ResponseWriter, *http.Request, error) {}))
	}
	if c.key != nil {
		options = append(options, httplimit.WithKey(func(r *http.Request) string { return c.key(r.Context(), callOf(r).method) }))
	}
	return options
}

func (c *config) costOf(ctx context.Context, asked *call) float64 {
	if c.cost != nil {
		return c.cost(ctx, asked.method, asked.message)
	}
	return priceOf(c.costs, asked.method)
}

// priceOf returns the price of a method, or that of its service, or 1.
func priceOf(costs tokenbucket.Costs, method string) float64 {
	if cost, ok := costs[method]; ok {
		return cost
	}
	if len(costs) == 0 {
		return 1
	}
	return costs.Of(method[:strings.LastIndexByte(method, '/')+1] + "*")
}

// validateCosts checks prices against the limits of l, if it reports them.
func validateCosts(costs tokenbucket.Costs, l any) error {
	capacity := math.Inf(1)
	if limited, ok := l.(interface{ Limits() []tokenbucket.Limit }); ok {
		for _, limit := range limited.Limits() {
			capacity = min(capacity, limit.Capacity)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		service, method, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
		if !ok || !strings.HasPrefix(name, "/") || service == "" || method == "" || strings.ContainsAny(method, "/") || strings.Contains(name, "*") && method != "*" {
			return fmt.Errorf("%w: price of %q: write /package.Service/Method or /package.Service/*", tokenbucket.ErrInvalidOption, name)
		}
	}
	return costs.Validate(capacity)
}

// WithKey sets the function that returns the key of a call: calls with the same key
// share what the limiter has for it. It is called by any number of goroutines. A call for
// which it returns "" counts by its address, under a key that no other key can equal.
// By default, and for nil, the key is the peer's address: an IPv4 address whole, an IPv6
// address by its first 64 bits, without port and zone.
func WithKey(key func(ctx context.Context, fullMethod string) string) Option {
	return func(c *config) { c.key = key }
}

// WithMetadataKey takes a value of the call's metadata as the key, as
// httplimit.WithKeyHeader does: of the names given here, in order, the first that the
// call has. A call without any counts by its address. By default, none counts.
func WithMetadataKey(names ...string) Option {
	return withMetadata(httplimit.WithKeyHeader(names...))
}

// WithAPIKey is WithMetadataKey for secrets: the key is made of the SHA-256 of the value.
// By default, none counts.
func WithAPIKey(names ...string) Option {
	return withMetadata(httplimit.WithAPIKey(names...))
}

// WithAddress sets how a key is made of an address, by the options that
// httplimit.AddressKey takes: WithIPv6Prefix and one of WithTrustedProxies,
// WithTrustedHops, WithForwarded and WithTrustedHeader, which read the call's metadata.
// By default, it is the peer's address.
func WithAddress(opts ...httplimit.Option) Option {
	return func(c *config) {
		c.address = append(c.address, opts...)
		withMetadata(opts...)(c)
	}
}

func withMetadata(opts ...httplimit.Option) Option {
	return func(c *config) {
		c.http = append(c.http, opts...)
		c.readsMetadata = true
	}
}

// WithCertificateKey takes the identity in the client's verified TLS certificate as the
// key: its first URI, such as a SPIFFE ID, or else its subject. A call without one counts
// by its address. It overrides WithKey. By default, certificates do not count.
func WithCertificateKey() Option {
	return WithKey(func(ctx context.Context, _ string) string { return certificateIdentity(ctx) })
}

func certificateIdentity(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return ""
	}
	leaf := info.State.VerifiedChains[0][0]
	if len(leaf.URIs) > 0 {
		return leaf.URIs[0].String()
	}
	return leaf.Subject.String()
}

// WithCosts sets what calls cost, in tokens, by full method, "/package.Service/Method", or
// by service, "/package.Service/*". A stream costs that once, when it is opened.
// Anything else costs 1. A price that is negative, NaN or above a capacity is an error, and
// so is a name of another form. WithCost overrides it. By default, every call costs 1.
func WithCosts(costs tokenbucket.Costs) Option {
	return func(c *config) { c.costs = maps.Clone(costs) }
}

// WithCost sets what a call costs, in tokens, by a function of its method and its request
// message, which is nil for a stream. It is called by any number of goroutines. A call
// whose cost is negative, NaN or above a capacity is refused. By default, and for nil,
// WithCosts decides.
func WithCost(cost func(ctx context.Context, fullMethod string, message any) float64) Option {
	return func(c *config) { c.cost = cost }
}

// WithMessageCost makes each message that a stream's handler receives wait until its cost,
// in tokens, is there. It is called by any number of goroutines. The limiter must have a
// method Wait(ctx context.Context, key string, cost float64) error, as those of this
// module have. If the stream's context ends first, or its deadline would, RecvMsg returns
// an error. By default, and for nil, messages are free.
func WithMessageCost(cost func(ctx context.Context, fullMethod string, message any) float64) Option {
	return func(c *config) { c.messageCost = cost }
}

// WithPolicyNames names the limits in ratelimit, ratelimit-policy and QuotaFailure, as
// httplimit.WithPolicyNames does. By default, they are "default", "default-2" and so on.
func WithPolicyNames(names ...string) Option { return with(httplimit.WithPolicyNames(names...)) }

// WithoutRateLimit leaves the trailers ratelimit and ratelimit-policy out. By default, every
// call has them.
func WithoutRateLimit() Option { return with(httplimit.WithoutRateLimit()) }

// WithFallback sets a limiter that decides when the first one fails. By default, there is
// none.
func WithFallback(l httplimit.Limiter) Option { return with(httplimit.WithFallback(l)) }

// WithReportOnly admits all calls, and reports to the observer what would have been
// refused. By default, refusals are sent.
func WithReportOnly() Option { return with(httplimit.WithReportOnly()) }

// WithFailClosed refuses calls that no limiter could decide about, with Unavailable and a
// RetryInfo of retryAfter. By default, such calls are admitted.
func WithFailClosed(retryAfter time.Duration) Option {
	return func(c *config) {
		c.http = append(c.http, httplimit.WithFailClosed(retryAfter))
		c.closed, c.closedFor = true, retryAfter
	}
}

func with(opt httplimit.Option) Option {
	return func(c *config) { c.http = append(c.http, opt) }
}

// Event is a decision about a call.
type Event struct {
	Method          string // full: /package.Service/Method
	httplimit.Event        // without Request
}

// WithObserver sets a function that is called for every call and stream, before it goes on
// or is answered, and for every message whose wait failed. It is called by any number of
// goroutines. By default, and for nil, there is none.
func WithObserver(observe func(Event)) Option {
	return func(c *config) { c.observe = observe }
}
