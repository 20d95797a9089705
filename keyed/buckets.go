// Package keyed keeps one token bucket for each of millions of keys: the clients
// of a gateway, the hosts that a crawler is polite to. It decides as
// tokenbucket.Bucket does, with the same arithmetic, on 16 bytes a key and limit.
//
// A bucket that has had time to fill is the same as one never seen, so exactly
// those are dropped, and forgetting forgives nobody: there is no time to live to
// choose, no background goroutine and no pause. A key is remembered for at most
// capacity / refill after its last request, and until some calls later.
//
// A million keys take 45 bytes each with one limit, 66 with two, their own bytes
// not counted: go test -run TestBytesPerKey -v ./keyed. A call waits for a hundred or
// so others to be swept at most; but now and then one has the table of its shard, one
// of 256, made anew, larger or smaller, which looks at each of its keys: at forty
// thousand where there are ten million.
//
// Classes of customers, free and paid, say, are one Buckets each.
package keyed

import (
	"context"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

const (
	sweepEachCall = 4   // keys of a shard that each call looks at, to drop what is full again:
	sweepAtOnce   = 64  // at once if its key was not known, else when so many are due
	lookAtKeys    = 128 // that a newcomer looks at who finds no room
	shardBits     = 8   // of a hash
)

// Buckets is a token bucket for every key. A key seen for the first time has a
// full one. A key that is not equal to itself, such as NaN, cannot be told from
// another one, so all of them share one bucket. A key that a Go map would refuse,
// a slice in an interface, panics as it does there, and nothing is changed. Keys
// are kept as they are: clone a string that was cut out of a large one.
//
// Buckets may be used by any number of goroutines; keys rarely meet on a lock. It
// must not be copied. The zero Buckets is not ready to use; use New.
type Buckets[K comparable] struct {
	time     timeline.Timeline
	limits   tokenbucket.Limits
	seed     maphash.Seed
	maxKeys  int64
	overflow *attendance // of the keys that find no room

	shards []shard[K]    // a power of two
	_      [64]byte      // what is above hardly changes, and stays in every processor's cache
	len    atomic.Int64  // keys remembered, and places taken for those about to be
	next   atomic.Uint64 // the shard where room is looked for next
}

// New returns a bucket for every key, full. It returns ErrInvalidLimit or
// ErrInvalidOption, of package tokenbucket, for numbers out of range.
func New[K comparable](limit tokenbucket.Limit, opts ...Option) (*Buckets[K], error) {
	c, err := newConfig(limit, opts)
	if err != nil {
		return nil, err
	}
	b := &Buckets[K]{
		time:    timeline.Start(stayNear(c.clock)),
		limits:  c.limits,
		seed:    maphash.MakeSeed(),
		maxKeys: int64(c.maxKeys),
		shards:  make([]shard[K], shardsFor(c.maxKeys)),
	}
	for i := range b.shards {
		s := &b.shards[i]
		s.table = table[K]{seed: b.seed, further: len(c.limits) - 1}
		s.states = make([]tokenbucket.State, len(c.limits), len(c.limits)+3) // a cache line at least
	}
	b.overflow = &attendance{bucket: b.newBucket(b.shards[0].states, 0)}
	b.overflow.bucket.Fill()
	return b, nil
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

// newBucket returns a bucket of its own that goes on from states, which are none of
// a pause, after the latest reading of the clock.
func (b *Buckets[K]) newBucket(states []tokenbucket.State, latest time.Duration) *tokenbucket.Bucket {
	opts := []tokenbucket.Option{
		tokenbucket.WithClock(b.time.Clock),
		tokenbucket.WithState(b.time.Origin, states),
		tokenbucket.WithLatest(latest),
	}
	for _, l := range b.limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	return tokenbucket.MustNew(b.limits[0], opts...)
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

// TryAcquire takes the cost, in tokens, from the key's bucket if it is there, as
// Bucket.TryAcquire does.
func (b *Buckets[K]) TryAcquire(key K, cost float64) (wait time.Duration, ok bool) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		wait, ok = v.attended.bucket.TryAcquire(cost)
	} else if wait, ok = b.limits.TryAcquire(v.states, v.at, cost); !ok {
		wait = v.fromNow(wait)
	}
	b.leave(&v)
	return wait, ok
}

// Take is TryAcquire with everything a header needs.
func (b *Buckets[K]) Take(key K, cost float64) (d tokenbucket.Decision) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		d = v.attended.bucket.Take(cost)
	} else if d = b.limits.Take(v.states, v.at, cost); !d.OK {
		d.Wait = v.fromNow(d.Wait)
	}
	b.leave(&v)
	return d
}

// Wait takes the cost, in tokens, from the key's bucket as soon as it is there and
// everyone who came before for this key has left. Its errors are Bucket.Wait's.
func (b *Buckets[K]) Wait(ctx context.Context, key K, cost float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var v visit[K]
	b.enter(&v, key)
	if v.attended == nil {
		if _, ok := b.limits.TryAcquire(v.states, v.at, cost); ok {
			b.leave(&v)
			return nil
		}
	}
	bucket := b.attend(&v).bucket
	b.leave(&v)
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
	if v.slot >= 0 {
		v.shard.table.hasten(v.slot)
	}
	return b.limits.Refund(v.states, v.at, cost)
}

// Charge takes the cost from the key's bucket whether it is there or not, as
// Bucket.Charge does.
func (b *Buckets[K]) Charge(key K, cost float64) error {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Charge(cost)
	}
	return b.limits.Charge(v.states, v.at, cost)
}

// Pause empties the key's bucket and closes it for d, as Bucket.Pause does.
func (b *Buckets[K]) Pause(key K, d time.Duration) {
	if d <= 0 {
		return
	}
	var v visit[K]
	b.enter(&v, key)
	b.attend(&v).bucket.Pause(d)
	b.leave(&v)
	b.unattend(&v)
}

// Tokens returns what is left for a newcomer at the key, as Bucket.Tokens does.
func (b *Buckets[K]) Tokens(key K) float64 {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Tokens()
	}
	return b.limits.Tokens(v.states, v.at)
}

// Waiting returns how many wait for the key, as Bucket.Waiting counts them.
func (b *Buckets[K]) Waiting(key K) int {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.Waiting()
	}
	return 0
}

// Limits returns the limits, New's first, then those of WithLimit in order.
func (b *Buckets[K]) Limits() []tokenbucket.Limit { return slices.Clone(b.limits) }

// Len returns how many keys are remembered, at most WithMaxKeys.
func (b *Buckets[K]) Len() int { return int(b.len.Load()) }

// Forget makes the key's bucket full again, as if the key had never been seen. Who
// waits for it is served from that.
func (b *Buckets[K]) Forget(key K) {
	hash := maphash.Comparable(b.seed, key)
	s := b.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.attended[key]; a != nil && a.users > 0 {
		a.bucket.Fill()
		return
	}
	if s.dismiss(key) || s.table.remove(hash, key) {
		b.len.Add(-1)
	}
}

// shard holds the keys whose hashes begin alike.
type shard[K comparable] struct {
	mu       sync.Mutex
	latest   time.Duration // the latest reading of the clock: earlier ones count as this
	due      int           // keys to be swept
	table    table[K]
	attended map[K]*attendance   // keys that are waited for or paused: they are not in the table
	states   []tokenbucket.State // those of the key that is visited
	_        [8]byte             // neighbours share no cache line
}

// attendance is a bucket of its own for a key that needs a queue or a pause: other
// keys do not pay for them.
type attendance struct {
	bucket *tokenbucket.Bucket
	users  int // who are about to wait, or do
}

func (b *Buckets[K]) shardOf(hash uint64) *shard[K] {
	return &b.shards[hash>>(64-shardBits)&uint64(len(b.shards)-1)]
}

// dismiss takes a key's own bucket away, and returns whether it had one.
func (s *shard[K]) dismiss(key K) bool {
	if s.attended[key] == nil {
		return false
	}
	delete(s.attended, key)
	if len(s.attended) == 0 {
		s.attended = nil // maps give no memory back
	}
	return true
}

// visit is one call's business with a key, its shard locked meanwhile.
type visit[K comparable] struct {
	key      K
	hash     uint64
	shard    *shard[K]
	now, at  time.Duration       // the reading of the clock, and what it counts as
	attended *attendance         // its bucket decides, if there is one; else
	states   []tokenbucket.State // these do,
	slot     int                 // of this slot; -1 if the key was not known and a place is taken for it
	looked   bool                // for room, in vain or not
}

// fromNow tells a wait from the reading itself.
func (v *visit[K]) fromNow(wait time.Duration) time.Duration {
	return timeline.Later(wait, v.at-v.now)
}

// enter begins a visit. It reads the clock after the key, since a reading lets nothing
// be fetched ahead: this way the key comes while the visit before still waits for its
// entry.
func (b *Buckets[K]) enter(v *visit[K], key K) {
	v.key, v.hash = key, maphash.Comparable(b.seed, key)
	v.now = b.time.Now()
	s := b.shardOf(v.hash)
	s.mu.Lock()
	s.latest = max(s.latest, v.now)
	v.shard, v.at = s, s.latest
	if len(s.attended) > 0 {
		v.attended = s.attended[key]
	}
	if v.attended != nil {
		return
	}
	if v.slot = s.table.find(v.hash, key); v.slot < 0 {
		b.enterUnknown(v)
		return
	}
	v.states = s.table.load(v.slot, s.states)
}

// enterUnknown gives a key its own bucket, full, if there is room for one, or once
// some has been looked for, with its shard open: then the visit begins anew.
func (b *Buckets[K]) enterUnknown(v *visit[K]) {
	switch {
	case v.key != v.key:
		v.attended = b.overflow
	case b.takePlace():
		v.states = v.shard.states
		b.limits.Fill(v.states, v.at)
	case v.looked:
		v.attended = b.overflow
	default:
		v.shard.mu.Unlock()
		b.lookForRoom()
		v.looked = true
		b.enter(v, v.key) // somebody else may have brought the key
	}
}

func (b *Buckets[K]) leave(v *visit[K]) {
	s := v.shard
	switch {
	case v.attended != nil:
	case v.slot >= 0:
		s.table.store(v.slot, v.states)
	default:
		b.remember(s, v.hash, v.key, v.states, v.at)
	}
	if s.due += sweepEachCall; s.due >= sweepAtOnce || v.slot < 0 {
		b.sweep(s, s.due)
		s.due = 0
	}
	s.mu.Unlock()
}

// remember puts a key into the table, or gives its place up if it is full: then
// there is nothing to remember.
func (b *Buckets[K]) remember(s *shard[K], hash uint64, key K, states []tokenbucket.State, at time.Duration) (kept bool) {
	left := b.limits.UntilFull(states, at)
	if left == 0 {
		b.len.Add(-1)
		return false
	}
	s.table.insert(hash, key, states, timeline.Later(at, left))
	return true
}

// takePlace counts one more key, unless that would be too many.
func (b *Buckets[K]) takePlace() bool {
	for {
		n := b.len.Load()
		if n >= b.maxKeys {
			return false
		}
		if b.len.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// sweep drops some keys of a shard that are full again, and gives one up that
// nobody attends to any more.
func (b *Buckets[K]) sweep(s *shard[K], few int) (dropped int) {
	dropped = s.table.sweep(few, b.limits, s.latest)
	if dropped > 0 {
		b.len.Add(int64(-dropped))
	}
	if len(s.attended) > 0 && b.retireOne(s) {
		dropped++
	}
	return dropped
}

// retireOne looks at one attended key, whichever, and returns whether that made room.
func (b *Buckets[K]) retireOne(s *shard[K]) bool {
	for key, a := range s.attended {
		return a.users == 0 && b.retire(s, key, a)
	}
	return false
}

// lookForRoom sweeps shards in turn until a key has been dropped or enough were
// looked at. No shard is locked by the caller.
func (b *Buckets[K]) lookForRoom() {
	for range b.shards {
		s := &b.shards[b.next.Add(1)&uint64(len(b.shards)-1)]
		s.mu.Lock()
		s.latest = max(s.latest, b.time.Now())
		looked := s.table.len
		dropped := b.sweep(s, lookAtKeys)
		s.mu.Unlock()
		if dropped > 0 || looked >= lookAtKeys {
			return
		}
	}
}

// attend gives the visited key a bucket of its own, until unattend.
func (b *Buckets[K]) attend(v *visit[K]) *attendance {
	if v.attended == nil {
		v.attended = &attendance{bucket: b.newBucket(v.states, v.at)}
		if v.shard.attended == nil {
			v.shard.attended = map[K]*attendance{}
		}
		v.shard.attended[v.key] = v.attended
		if v.slot >= 0 {
			v.shard.table.remove(v.hash, v.key)
		}
	}
	if v.attended != b.overflow {
		v.attended.users++
	}
	return v.attended
}

func (b *Buckets[K]) unattend(v *visit[K]) {
	if v.attended == b.overflow {
		return
	}
	v.shard.mu.Lock()
	defer v.shard.mu.Unlock()
	v.attended.users--
	if v.attended.users == 0 {
		b.retire(v.shard, v.key, v.attended)
	}
}

// retire puts an attended key back into the table, or drops it if it is full, and
// returns whether it dropped it. It stays as long as it is paused, that is, anchored in
// the future, and while the clock is behind what the table goes by.
func (b *Buckets[K]) retire(s *shard[K], key K, a *attendance) (dropped bool) {
	_, states := a.bucket.State()
	latest := a.bucket.Latest()
	if latest < s.latest {
		return false
	}
	s.latest = latest
	for _, state := range states {
		if state.Anchor > s.latest {
			return false
		}
	}
	s.dismiss(key)
	return !b.remember(s, s.table.hash(key), key, states, s.latest)
}
