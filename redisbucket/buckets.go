// Package redisbucket shares token buckets between machines, one bucket for each key,
// on Redis or Valkey. All processes with the same limits and prefix together get no
// more than the limits allow. It decides as package tokenbucket does.
//
// A bucket is one value under one key, so it can be in any slot of a cluster, and a
// decision is one script in one round trip. The time is the server's: the clocks of the
// machines do not matter. A refusal writes nothing, unless the limits have changed or the
// server's clock has stepped back. A key expires when its bucket has had time to fill. A
// new bucket is full as well, so nothing is lost.
//
// A single process should use package keyed instead, which needs no server.
package redisbucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
)

// MaxKey is the length, in bytes, of the longest key that is stored unchanged after the
// prefix. A longer key is stored as its SHA-256.
const MaxKey = 64

// Buckets has a token bucket for every key, shared with all Buckets of the same prefix
// on the same server. The bucket of a new key is full. A key may be any bytes.
//
// Most callers want Take or TryAcquire, to refuse requests that come too fast, or Wait,
// to delay them. All methods that ask the server may return ErrUnavailable and
// ErrForeignKey. They return the context's error if the context is done before they get
// an answer. But if answers come fast, a call goes on after its context is cancelled,
// until the answer comes or the timeout ends. If the answer comes, the call returns it.
//
// Buckets may be used by any number of goroutines. It must not be copied. The zero
// Buckets is not ready to use; use New.
type Buckets struct {
	server   *server
	limits   tokenbucket.Limits
	prefix   string
	fallback Fallback
	leases   *leases // nil without WithLease
}

// New returns Buckets on the client's server. The client may be for one server, for a
// master found by Sentinel, or for a cluster; the caller closes it. New sends nothing. It
// returns ErrInvalidLimit or ErrInvalidOption, of package tokenbucket, for numbers out of
// range, and ErrInvalidOption for a nil option. It also returns ErrInvalidOption for a
// *redis.Ring. When a server is down, a Ring uses another server for the same keys, and
// on that server their buckets are full.
//
// The hooks of a *redis.Client run only if its Options set ContextTimeoutEnabled. Otherwise
// Buckets uses a copy of the client, made by the client's method WithTimeout. The copy has
// no hooks (go-redis v9.23): add them with WithInstrument. The hooks of other clients
// always run.
func New(client redis.UniversalClient, limit tokenbucket.Limit, opts ...Option) (*Buckets, error) {
	c, err := newConfig(limit, opts)
	if err != nil {
		return nil, err
	}
	switch client.(type) {
	case nil:
		return nil, fmt.Errorf("%w: no client: pass one from package github.com/redis/go-redis/v9", tokenbucket.ErrInvalidOption)
	case *redis.Ring:
		return nil, fmt.Errorf("%w: a Ring uses another server for a key when one is down, where its bucket is full again: use one server, Sentinel or Cluster", tokenbucket.ErrInvalidOption)
	}
	carrier, used := newGoRedis(client, c.timeout)
	if c.instrument != nil {
		c.instrument(used)
	}
	return newBuckets(carrier, c), nil
}

// NewWithClient is like New, for any other client library.
func NewWithClient(client Client, limit tokenbucket.Limit, opts ...Option) (*Buckets, error) {
	c, err := newConfig(limit, opts)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, fmt.Errorf("%w: no client: pass one that implements redisbucket.Client", tokenbucket.ErrInvalidOption)
	}
	c.instrument = nil // it is for clients of New
	return newBuckets(client, c), nil
}

func newBuckets(client Client, c config) *Buckets {
	s := newServer(client, c)
	return &Buckets{
		server:   s,
		limits:   c.limits,
		prefix:   c.prefix,
		fallback: c.fallback,
		leases:   newLeases(s, c),
	}
}

// TryAcquire takes the cost, in tokens, from the key's bucket if it has that many.
// Otherwise it takes nothing and returns how long to wait until the same request
// would be admitted if no other came, in whole microseconds. The wait is Never for a cost
// that is negative, NaN or above the capacity, and the server is not asked.
func (b *Buckets) TryAcquire(ctx context.Context, key string, cost float64) (wait time.Duration, ok bool, err error) {
	if cost == 0 {
		return 0, true, nil
	}
	if d, leased, err := b.takeLeased(ctx, key, cost, false); leased {
		return d.Wait, d.OK, err
	}
	return b.tryAcquire(ctx, key, price{cost: cost})
}

// tryAcquire asks the server, unless the price can never be paid.
func (b *Buckets) tryAcquire(ctx context.Context, key string, p price) (wait time.Duration, ok bool, err error) {
	if !p.canBePaid(b.limits) {
		return tokenbucket.Never, false, nil
	}
	r := request{key: b.stored(key), price: p}
	a, err := b.server.ask(ctx, r)
	if b.fallsBack(err) {
		d, err := p.takeFrom(b.fallback, key, err)
		return d.Wait, d.OK, err
	}
	if err != nil || a.admitted() {
		return 0, err == nil, err
	}
	d, err := b.decide(r, a, p)
	return d.Wait, false, err
}

// Take is like TryAcquire, but returns a Decision, which has all that response headers
// need. If the cost is 0 or can never be admitted, TryAcquire does not ask the server.
// Take asks it even then, to get these figures.
func (b *Buckets) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	if d, leased, err := b.takeLeased(ctx, key, cost, true); leased {
		return d, err
	}
	return b.take(ctx, key, price{cost: cost})
}

// take asks the server.
func (b *Buckets) take(ctx context.Context, key string, p price) (tokenbucket.Decision, error) {
	r := request{key: b.stored(key), price: p.legible(b.limits)}
	a, err := b.server.ask(ctx, r)
	if b.fallsBack(err) {
		return p.takeFrom(b.fallback, key, err)
	}
	if err != nil {
		return undecided, err
	}
	return b.decide(r, a, p)
}

// takeLeased decides by the key's lease. It reports leased false if the server has to
// decide. An admitted Decision has its figures only if all is set.
func (b *Buckets) takeLeased(ctx context.Context, key string, cost float64, all bool) (d tokenbucket.Decision, leased bool, err error) {
	if !b.leases.covers(cost) {
		return d, false, nil
	}
	o, err := b.leases.take(ctx, short(key), cost)
	switch {
	case b.fallsBack(err):
		return b.fallback.Take(key, cost), true, nil
	case err != nil:
		return undecided, err != errNotLeased, err
	case o.granted && !all:
		return tokenbucket.Decision{OK: true, LimitIndex: -1}, true, nil
	default:
		return o.decision(b.limits, cost), true, nil
	}
}

// undecided is the Decision that is returned with an error.
var undecided = tokenbucket.Decision{LimitIndex: -1}

// decide returns the Decision for an answer. The script has decided already, except about a
// free price, which is admitted. Package tokenbucket computes the figures from the same states
// by the same arithmetic.
func (b *Buckets) decide(r request, a answer, p price) (tokenbucket.Decision, error) {
	now, states, err := a.states(b.server.limits, r)
	if err != nil {
		return undecided, err
	}
	d := p.take(b.limits, states, now)
	return roundWait(d, a.admitted() || p.isFree()), nil
}

// roundWait returns the decision with OK set to admitted, and its wait in whole
// microseconds: at least one if it is refused.
func roundWait(d tokenbucket.Decision, admitted bool) tokenbucket.Decision {
	if d.OK, d.Wait = admitted, max(roundUp(d.Wait), time.Microsecond); admitted {
		d.Wait = 0
	}
	return d
}

// Refund gives tokens back to the key's bucket, up to its capacity. It returns
// ErrInvalidCost unless the cost is finite and at least 0.
func (b *Buckets) Refund(ctx context.Context, key string, cost float64) error {
	return b.refund(ctx, key, price{cost: cost})
}

func (b *Buckets) refund(ctx context.Context, key string, p price) error {
	if err := p.checkAmount(b.limits); err != nil || p.isFree() {
		return err
	}
	stored := b.stored(key)
	_, err := b.server.ask(ctx, request{key: stored, price: p.reversed(0)})
	b.leases.refunded(stored) // after an error too: perhaps only the answer was lost
	if b.fallsBack(err) {
		return p.refundTo(b.fallback, key, err)
	}
	return err
}

// Charge takes the cost, in tokens, from the key's bucket even if it has fewer: for
// example, the tokens that a request used beyond its estimate. Later requests wait longer.
// It returns ErrInvalidCost unless the cost is finite and at least 0; it may exceed the
// capacity.
func (b *Buckets) Charge(ctx context.Context, key string, cost float64) error {
	return b.charge(ctx, key, price{cost: cost})
}

func (b *Buckets) charge(ctx context.Context, key string, p price) error {
	if err := p.checkAmount(b.limits); err != nil || p.isFree() {
		return err
	}
	_, err := b.server.ask(ctx, request{key: b.stored(key), price: p, mode: charges})
	if b.fallsBack(err) {
		return p.chargeTo(b.fallback, key, err)
	}
	return err
}

// Forget makes the key's bucket full again, as if the key had never been seen. It does
// not use the fallback: it returns ErrUnavailable if the server does not answer.
func (b *Buckets) Forget(ctx context.Context, key string) error {
	stored := b.stored(key)
	_, err := b.server.ask(ctx, request{key: stored, price: price{cost: -noCost}})
	if err == nil {
		b.leases.forget(stored)
	}
	return err
}

// Close gives the remaining tokens of all leases back. Call it before the program ends, and
// before the client is closed. It takes at most about twice the timeout of WithTimeout, and
// returns ErrUnavailable if tokens could not be given back. Further calls return the same.
// Later requests are served without a lease, by the server. Requests that wait for a lease
// when Close is called are also served by the server; they may take up to the timeout
// longer. Without WithLease, Close does nothing.
func (b *Buckets) Close() error {
	if b.leases == nil {
		return nil
	}
	return b.leases.close()
}

// Limits returns a copy of the limits: that of New first, then those of WithLimit in
// order.
func (b *Buckets) Limits() []tokenbucket.Limit { return slices.Clone(b.limits) }

func (b *Buckets) fallsBack(err error) bool {
	return b.fallback != nil && errors.Is(err, ErrUnavailable)
}

// stored returns the name of a key in Redis.
func (b *Buckets) stored(key string) string { return b.prefix + short(key) }

// short returns the name of a key without the prefix. The name of a long key is longer
// than MaxKey, so it differs from every key that is stored unchanged.
func short(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
