// Package keyed keeps one token bucket for each of millions of keys, such as the clients
// of a gateway or the hosts that a crawler visits. It decides as tokenbucket.Bucket does,
// with the same arithmetic. The state of a key takes 16 bytes for each limit.
//
// A bucket that has had time to fill is the same as a new one. Only such buckets are
// forgotten, so no client gets tokens early. No time to live has to be chosen, and no
// goroutine runs in the background. Instead, some calls look at other keys, and forget
// those whose buckets are full. This is called a sweep. A key whose bucket is full is also
// forgotten when a new key needs its place in the table. Without debt and pauses, a bucket
// becomes full again within capacity / refill seconds of the last request.
//
// Among a million keys of type string, a key takes 45 bytes with one limit and 66 with
// two. This includes its state and its share of the table, but not the text of the
// string. To measure it, run go test -run TestBytesPerKey -v ./keyed.
//
// The keys are spread over up to 256 shards, each with a table. A sweep looks at about
// 130 keys at most. If there is no room for a new key, a call may sweep several shards.
// Now and then a call makes room in a table, or changes the size of the table. It then
// looks at each key of that shard: forty thousand keys if there are ten million in all.
// Len may look at every key of every shard.
//
// A sweep, or a change of a table's size, computes the hashes of keys again. For a
// string, that reads the whole string. So keys should be short: use the hash of a long
// key instead.
//
// To go on after a restart, save what Limits, All, Origin and Latest return, and pass it
// to Restore. Use one Buckets for each class of customers, such as free and paid.
package keyed

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

const (
	sweepEachCall = 4   // how many more keys of a shard are due for a sweep after each call
	sweepAtOnce   = 64  // how many keys become due between two calls that sweep
	lookAtKeys    = 128 // keys that a call looks at when there is no room for a new key
	shardBits     = 8   // bits of a hash that choose the shard
)

// Buckets holds one token bucket per key. A key seen for the first time has a full
// bucket. Keys that are not equal to themselves, such as NaN, share one bucket. A key
// that a Go map does not accept, such as a slice in an interface, causes the same panic
// as in a map, and nothing is changed. Buckets stores the keys passed: clone a string
// that is part of a large one, or the large one stays in memory.
//
// Any number of goroutines may use Buckets at the same time; calls for different keys
// rarely wait for each other. Buckets must not be copied. The zero Buckets is not ready
// to use: call New.
type Buckets[K comparable] struct {
	time       timeline.Timeline
	limits     atomic.Pointer[tokenbucket.Limits]
	seed       maphash.Seed
	maxKeys    int64
	maxWaiters int
	overflow   *attendance // shared by the keys for which there is no room
	setting    sync.Mutex  // one SetLimits at a time

	shards []shard[K]    // a power of two
	_      [64]byte      // the fields above rarely change, so they stay in every processor's cache
	len    atomic.Int64  // keys remembered, and places taken for keys about to be remembered
	next   atomic.Uint64 // the shard where the next call looks for room

	// A bit is set for each shard that Len has to sweep.
	due [(1 << shardBits) / 64]atomic.Uint64
}

// New returns Buckets in which every key's bucket is full. It returns
// tokenbucket.ErrInvalidLimit or tokenbucket.ErrInvalidOption if a number is out of range,
// and tokenbucket.ErrInvalidOption for a nil option.
func New[K comparable](limit tokenbucket.Limit, opts ...Option) (*Buckets[K], error) {
	c, err := newConfig(limit, opts)
	if err != nil {
		return nil, err
	}
	return newBuckets[K](timeline.Start(stayNear(c.clock)), c, 0), nil
}

// newBuckets returns Buckets without keys. The latest reading of their clock is latest.
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
		s.index, s.latest = uint8(i), latest
		s.table = table[K]{seed: b.seed, limits: c.limits}
		s.states = make([]tokenbucket.State, len(c.limits), len(c.limits)+3) // a cache line at least
	}
	b.overflow = &attendance{bucket: b.newBucket(c.limits, b.shards[0].states, latest)}
	b.overflow.bucket.Fill()
	return b
}

// shardsFor returns the number of shards for at most maxKeys keys: the largest power of two up
// to 256 that leaves lookAtKeys keys or more for each shard. It is at least 1.
func shardsFor(maxKeys int) int {
	shards := 1 << shardBits
	for shards > 1 && maxKeys/shards < lookAtKeys {
		shards /= 2
	}
	return shards
}

// newBucket returns a bucket for one key. It continues from states, and latest is its
// latest reading of the clock. If states are anchored after latest, the bucket is paused
// until then.
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

// nearClock is a clock that stands still 292 years from the origin, since
// tokenbucket.WithState accepts no origin that is farther away. A mock clock gets there
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
	} else if wait, ok = v.limits().TryAcquire(v.states, v.at, cost); !ok {
		wait = v.fromNow(wait)
	}
	b.leave(&v)
	return wait, ok
}

// Take is like TryAcquire, but returns a Decision, which has all that response headers
// need.
func (b *Buckets[K]) Take(key K, cost float64) (d tokenbucket.Decision) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		d = v.attended.bucket.Take(cost)
	} else {
		d = v.limits().Take(v.states, v.at, cost)
		v.countFromNow(&d)
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
		if _, ok := v.limits().TryAcquire(v.states, v.at, cost); ok {
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
	return v.limits().Refund(v.states, v.at, cost)
}

// Charge takes the cost, in tokens, from the key's bucket even if the bucket holds fewer,
// as Bucket.Charge does.
func (b *Buckets[K]) Charge(key K, cost float64) error {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Charge(cost)
	}
	return v.limits().Charge(v.states, v.at, cost)
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

// Tokens returns how many tokens a new caller for the key would find, as Bucket.Tokens
// does.
func (b *Buckets[K]) Tokens(key K) float64 {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Tokens()
	}
	return v.limits().Tokens(v.states, v.at)
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

// Len returns how many keys are remembered, at most WithMaxKeys.
//
// Len first looks at some of the keys, and forgets those whose buckets are full. It looks
// at about four keys for each call of another method since the last Len, and at no key
// twice. So the number may still include keys whose buckets are full. Len locks one shard
// at a time.
func (b *Buckets[K]) Len() int {
	now := b.time.Now()
	for i := range b.due {
		for shards := b.due[i].Swap(0); shards != 0; shards &= shards - 1 {
			s := &b.shards[64*i+bits.TrailingZeros64(shards)]
			s.mu.Lock()
			s.latest = max(s.latest, now)
			b.sweep(s, s.due)
			s.due = 0
			s.mu.Unlock()
		}
	}
	return int(b.len.Load())
}

// Forget makes the key's bucket full again, as if the key had never been seen. Callers
// that wait for the key are served from the full bucket. If the key shares the overflow
// bucket of WithMaxKeys, or is not equal to itself, Forget fills the shared bucket, for
// all its keys. So let only trusted callers choose which keys are forgotten.
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
