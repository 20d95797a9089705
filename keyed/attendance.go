package keyed

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// attendance is a bucket of its own for a key that needs a queue or a pause: other
// keys do not pay for them.
//
// A key's state is in one place at a time: in the table, or in the bucket of its
// attendance. It moves only while its shard is locked:
//
//   - To the bucket when a visit finds it in the table. Its bucket then goes on from
//     the states that this visit has just seen.
//   - Back when the attendance has no user. A call becomes a user while the shard is
//     locked, and works on the bucket after that, with the shard open: however long the
//     queue, other keys of the shard are not held up. As long as it works, it is
//     counted, so the states that move back are final.
//
// users is decreased without the lock: a call that has just left is at worst taken for
// one that is still there, and the key moves back later.
type attendance struct {
	bucket *tokenbucket.Bucket
	users  atomic.Int64 // calls that work on the bucket or wait for it
}

// attend gives the visited key a bucket of its own, if it has none, and opens its
// shard. The bucket stays until leave or unattend.
func (b *Buckets[K]) attend(v *visit[K]) *tokenbucket.Bucket {
	if v.attended != nil {
		return v.attended.bucket
	}
	s := v.shard
	v.attended = &attendance{bucket: b.newBucket(v.limits, v.states, v.at)}
	v.attended.users.Store(1)
	if s.attended == nil {
		s.attended = map[K]*attendance{}
	}
	s.attended[v.key] = v.attended
	if v.slot >= 0 || v.old >= 0 {
		s.table.remove(v.hash, v.key)
	}
	b.sweepDue(s, v.slot < 0)
	s.mu.Unlock()
	return v.attended.bucket
}

// unattend ends a visit to an attended key, and puts it back into the table if no
// other call uses it.
func (b *Buckets[K]) unattend(v *visit[K]) {
	if v.attended == b.overflow {
		return
	}
	s := v.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.attended.users.Add(-1) == 0 {
		b.retire(s, v.key, v.attended)
	}
}

// retire puts an attended key that has no users back into the table, or drops it if it
// is full, and returns whether it dropped it. A key stays attended as long as it is
// paused, that is, anchored in the future, and while its clock is behind the table's.
func (b *Buckets[K]) retire(s *shard[K], key K, a *attendance) (dropped bool) {
	_, states := a.bucket.State()
	latest := a.bucket.Latest()
	if isPaused(states, latest) {
		return false
	}
	if isFull := s.table.limits.IsFull(states, latest); latest < s.latest && !isFull {
		return false
	}
	s.latest = max(s.latest, latest)
	s.dismiss(key)
	return !b.remember(s, s.table.hash(key), key, states, s.latest, -1)
}

func isPaused(states []tokenbucket.State, at time.Duration) bool {
	for _, state := range states {
		if state.Anchor > at {
			return true
		}
	}
	return false
}

// retireOne looks at one attended key, any of them, and returns whether that made room.
func (b *Buckets[K]) retireOne(s *shard[K]) bool {
	for key, a := range s.attended {
		return a.users.Load() == 0 && b.retire(s, key, a)
	}
	return false
}

// hold makes the caller a user of every attendance of a shard.
func (s *shard[K]) hold() map[K]*attendance {
	held := maps.Clone(s.attended)
	for _, a := range held {
		a.users.Add(1)
	}
	return held
}

// isFull reports whether the bucket is full and not paused. If its states change
// meanwhile, it is not taken for full.
func (a *attendance) isFull(limits tokenbucket.Limits) bool {
	_, states := a.bucket.State()
	latest := a.bucket.Latest()
	_, after := a.bucket.State()
	return slices.Equal(states, after) && !isPaused(states, latest) && limits.IsFull(states, latest)
}

// dismiss takes a key's own bucket away.
func (s *shard[K]) dismiss(key K) {
	delete(s.attended, key)
	if len(s.attended) == 0 {
		s.attended = nil // maps give no memory back
	}
}
