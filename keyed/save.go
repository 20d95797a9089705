package keyed

import (
	"iter"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// All returns the keys whose buckets are not full or are paused, with their states, one
// for each limit. To go on later, pass them to Restore, with the results of Limits,
// Origin and Latest. Call Origin and Latest after All. The slices belong to the caller,
// so maps.Collect(b.All()) is a copy.
//
// All may be called at any time, and other methods may be called while it runs. All
// locks a single shard while it copies that shard, and no shard while it yields. All
// yields each key at most once, as it was when its shard was copied. Do not save while
// SetLimits runs: some of the states then belong to the old limits.
//
// The states contain neither callers of Wait nor the overflow bucket of WithMaxKeys.
func (b *Buckets[K]) All() iter.Seq2[K, []tokenbucket.State] {
	return func(yield func(K, []tokenbucket.State) bool) {
		n := len(*b.limits.Load())
		var keys []K
		for i := range b.shards {
			var states []tokenbucket.State // new for each shard: the caller keeps it
			keys, states = b.copyShard(&b.shards[i], keys[:0])
			for i, key := range keys {
				if !yield(key, states[i*n:(i+1)*n:(i+1)*n]) {
					return
				}
			}
		}
	}
}

// copyShard appends the keys of a shard that are not full or are paused to keys. It
// returns keys, and the states of the appended keys one after the other.
func (b *Buckets[K]) copyShard(s *shard[K], keys []K) ([]K, []tokenbucket.State) {
	now := b.time.Now()
	s.mu.Lock()
	s.latest = max(s.latest, now)
	keys, states := s.table.appendTo(keys, s.latest, s.states)
	held := s.hold()
	s.mu.Unlock()
	for key, a := range held {
		if !a.isFull(a.bucket.Limits()) {
			keys = append(keys, key)
			_, own := a.bucket.State()
			states = append(states, own...)
		}
		a.users.Add(-1)
	}
	return keys, states
}

// Origin returns the instant from which the states' instants are counted.
func (b *Buckets[K]) Origin() time.Time { return b.time.Origin }

// Latest returns the latest reading of the clock, counted from Origin. It is later than
// the present reading if the clock stepped back.
func (b *Buckets[K]) Latest() time.Duration {
	latest := max(0, b.time.Now())
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		latest = max(latest, s.latest)
		held := s.hold()
		s.mu.Unlock()
		for _, a := range held {
			latest = max(latest, a.bucket.Latest())
			a.users.Add(-1)
		}
	}
	return latest
}
