// Package keyed keeps one token bucket for each of millions of keys: the clients
// of a gateway, the hosts that a crawler is polite to. It decides as
// tokenbucket.Bucket does, with the same arithmetic, on 16 bytes a key and limit.
//
// A bucket that has had time to fill is the same as one never seen. Exactly those
// buckets are forgotten, so no client gets tokens early. There is no time to live to
// choose and no background goroutine. A key is remembered for at most capacity / refill
// after its last request, and until some later calls have looked at it. The key itself may
// stay in memory longer, in a slot that no other key needs, but Len does not count it.
//
// A million keys take 45 bytes each with one limit, 66 with two, their own bytes
// not counted: go test -run TestBytesPerKey -v ./keyed. A call sweeps a hundred or so
// other keys at most. Now and then a call rebuilds the table of its shard, one of 256,
// larger or smaller, and so looks at each of the shard's keys: at forty thousand if there
// are ten million.
//
// Sweeps and rebuilds hash keys again, which for a string reads all of it. So keys should
// be short: use the hash of a long one.
//
// To go on after a restart, save Limits, All, Origin and Latest, and call Restore. Use one
// Buckets for each class of customers, such as free and paid.
package keyed

import (
	"context"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

const (
	sweepEachCall = 4   // keys of a shard that each call looks at, to drop what is full again:
	sweepAtOnce   = 64  // at once if its key was not known, else when so many are due
	lookAtKeys    = 128 // keys that a call looks at when a new key finds no room
	shardBits     = 8   // of a hash
)

// Buckets is a token bucket for every key. A key seen for the first time has a
// full one. Keys that are not equal to themselves, such as NaN, share one bucket. A key
// that a Go map does not accept, such as a slice in an interface, panics as it does
// there, and nothing is changed. Keys are kept as they are: clone a string that is part
// of a large one.
//
// Buckets may be used by any number of goroutines; keys rarely meet on a lock. It
// must not be copied. The zero Buckets is not ready to use; use New.
type Buckets[K comparable] struct {
	time       timeline.Timeline
	limits     atomic.Pointer[tokenbucket.Limits]
	seed       maphash.Seed
	maxKeys    int64
	maxWaiters int
	overflow   *attendance // of the keys that find no room
	setting    sync.Mutex  // one SetLimits at a time

	shards []shard[K]    // a power of two
	_      [64]byte      // what is above hardly changes, and stays in every processor's cache
	len    atomic.Int64  // keys remembered, and places taken for those about to be
	next   atomic.Uint64 // the shard where room is looked for next
}

// New returns a bucket for every key, full. It returns ErrInvalidLimit or
// ErrInvalidOption, of package tokenbucket, for numbers out of range, and ErrInvalidOption
// for a nil option.
func New[K comparable](limit tokenbucket.Limit, opts ...Option) (*Buckets[K], error) {
	c, err := newConfig(limit, opts)
	if err != nil {
		return nil, err
	}
	return newBuckets[K](timeline.Start(stayNear(c.clock)), c, 0), nil
}

// newBuckets returns Buckets of no keys, whose latest reading of the clock is given.
func newBuckets[K comparable](t timeline.Timeline, c config, latest time.Duration) *Buckets[K] {
	b := &Buckets[K]{
		time:       t,
		seed:       maphash.MakeSeed(),
		maxKeys:    int64(c.maxKeys),
		maxWaiters: c.maxWaiters,
		shards:     make([]shard[K], shardsFor(c.maxKeys)),
	}
	b.limits.Store(&c.limits)
	for i := range b.shards {
		s := &b.shards[i]
		s.latest = latest
		s.table = table[K]{seed: b.seed, limits: c.limits}
		s.states = make([]tokenbucket.State, len(c.limits), len(c.limits)+3) // a cache line at least
	}
	b.overflow = &attendance{bucket: b.newBucket(c.limits, b.shards[0].states, latest)}
	b.overflow.bucket.Fill()
	return b
}

// shardsFor returns how many shards keep so many keys: enough for two goroutines
// to rarely meet, but none for fewer keys than one looks at for room.
func shardsFor(maxKeys int) int {
	shards := 1 << shardBits
	for shards > 1 && maxKeys/shards < lookAtKeys {
		shards /= 2
	}
	return shards
}

// newBucket returns a bucket of its own that goes on from states, after the latest
// reading of the clock. States that are anchored later are paused until then.
func (b *Buckets[K]) newBucket(limits tokenbucket.Limits, states []tokenbucket.State, latest time.Duration) *tokenbucket.Bucket {
	opts := []tokenbucket.Option{
		tokenbucket.WithClock(b.time.Clock),
		tokenbucket.WithState(b.time.Origin, states),
		tokenbucket.WithLatest(latest),
		tokenbucket.WithMaxWaiters(b.maxWaiters),
	}
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	return tokenbucket.MustNew(limits[0], opts...)
}

// nearClock is a clock that never reads so far from the origin that no bucket could go
// on from states of then: 292 years away time stands still. A mock gets there at once
// if it starts at the zero time and is then set to the present.
type nearClock struct{ tokenbucket.Clock }

func stayNear(clock tokenbucket.Clock) tokenbucket.Clock {
	if clock == nil {
		return nil
	}
	return nearClock{clock}
}

func (c nearClock) Since(t time.Time) time.Duration {
	return min(max(c.Clock.Since(t), math.MinInt64+1), timeline.End-1)
}

// TryAcquire takes the cost, in tokens, from the key's bucket if the bucket holds that
// many, as Bucket.TryAcquire does.
func (b *Buckets[K]) TryAcquire(key K, cost float64) (wait time.Duration, ok bool) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		wait, ok = v.attended.bucket.TryAcquire(cost)
	} else if wait, ok = v.limits.TryAcquire(v.states, v.at, cost); !ok {
		wait = v.fromNow(wait)
	}
	b.leave(&v)
	return wait, ok
}

// Take is TryAcquire, and returns everything that a header needs.
func (b *Buckets[K]) Take(key K, cost float64) (d tokenbucket.Decision) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		d = v.attended.bucket.Take(cost)
	} else {
		d = v.fromReading(v.limits.Take(v.states, v.at, cost))
	}
	b.leave(&v)
	return d
}

// Wait takes the cost, in tokens, from the key's bucket. It waits until the bucket holds
// that many and all earlier callers for this key have left. It returns the errors of
// Bucket.Wait.
func (b *Buckets[K]) Wait(ctx context.Context, key K, cost float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var v visit[K]
	b.enter(&v, key)
	if v.attended == nil {
		if _, ok := v.limits.TryAcquire(v.states, v.at, cost); ok {
			b.leave(&v)
			return nil
		}
	}
	bucket := b.attend(&v)
	defer b.unattend(&v)
	return bucket.Wait(ctx, cost)
}

// Refund gives tokens back to the key's bucket, as Bucket.Refund does.
func (b *Buckets[K]) Refund(key K, cost float64) error {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Refund(cost)
	}
	v.hasten()
	return v.limits.Refund(v.states, v.at, cost)
}

// Charge takes the cost, in tokens, from the key's bucket even if the bucket holds less, as
// Bucket.Charge does.
func (b *Buckets[K]) Charge(key K, cost float64) error {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Charge(cost)
	}
	return v.limits.Charge(v.states, v.at, cost)
}

// Pause empties the key's bucket and closes it for d, as Bucket.Pause does.
func (b *Buckets[K]) Pause(key K, d time.Duration) {
	if d <= 0 {
		return
	}
	var v visit[K]
	b.enter(&v, key)
	b.attend(&v).Pause(d)
	b.unattend(&v)
}

// Tokens returns how many tokens a new caller for the key finds, as Bucket.Tokens does.
func (b *Buckets[K]) Tokens(key K) float64 {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Tokens()
	}
	return v.limits.Tokens(v.states, v.at)
}

// Waiting returns how many callers wait for the key, as Bucket.Waiting counts them.
func (b *Buckets[K]) Waiting(key K) int {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Waiting()
	}
	return 0
}

// Len returns how many keys are remembered, at most WithMaxKeys. Some of them may be full
// by now.
func (b *Buckets[K]) Len() int { return int(b.len.Load()) }

// Forget makes the key's bucket full again, as if the key had never been seen. Callers
// that wait for the key are served from that. If the key shares the overflow bucket of
// WithMaxKeys, or is not equal to itself, Forget makes that bucket full, for all that
// share it: let only trusted callers choose which keys are forgotten.
func (b *Buckets[K]) Forget(key K) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		v.attended.bucket.Fill()
		b.unattend(&v)
		return
	}
	if v.slot >= 0 {
		v.shard.table.remove(v.hash, key)
		v.slot = -1
	}
	b.leaveUnchanged(&v)
}
