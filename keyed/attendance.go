package keyed

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// attendance is a bucket for one key that has waiters or is paused. All other keys are
// plain states, which take less memory.
//
// A key's state is in one place at a time: in the table, or in the bucket of its
// attendance. The state moves only while the shard of the key is locked:
//
//   - From the table to the bucket, when a call needs a bucket and finds the key in the
//     table. The bucket starts with the states that the call has just read.
//   - From the bucket back to the table, when the attendance has no users. A call becomes
//     a user while the shard is locked. Then it unlocks the shard and works on the
//     bucket, so a long queue does not delay other keys of the shard. The call counts as
//     a user until it is done, so no call can change states that are moving back.
//
// users is decremented without the lock. So a check may still count a call that has just
// left. Then the key moves back at a later check.
type attendance struct {
	bucket *tokenbucket.Bucket
	users  atomic.Int64 // calls that work on the bucket or wait for it
}

// attend gives the visited key its own bucket, if it has none, and unlocks its shard. The
// bucket stays at least until leave or unattend.
//
// Whenever a key becomes attended, attend tries to retire two others: sweepDue tries one, and
// retireOne another. So the keys that could be retired do not become more than the keys that
// are in use or paused.
func (b *Buckets[K]) attend(v *visit[K]) *tokenbucket.Bucket {
	if v.attended != nil {
		return v.attended.bucket
	}
	s := v.shard
	v.attended = &attendance{bucket: b.newBucket(v.limits(), v.states, v.at)}
	v.attended.users.Store(1)
	s.add(v.key, v.attended)
	if v.slot >= 0 {
		s.table.remove(v.hash, v.key)
	} else if v.full >= 0 {
		s.table.drop(v.full) // leaves its place to the attended key
	}
	b.sweepDue(s, true)
	b.retireOne(s)
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
// is full, and returns whether it dropped it. A key stays attended while it is paused,
// that is, while one of its states is anchored in the future.
//
// A key that is not full also stays while its bucket's latest reading of the clock is earlier
// than the shard's, as after the clock went back. In the table, the shard's reading would
// count for the key at once, and it would get refill before its time.
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

// retireOne tries to retire one attended key, any of them, and reports whether that made
// room.
func (b *Buckets[K]) retireOne(s *shard[K]) bool {
	for key, a := range s.attended {
		return a.users.Load() == 0 && b.retire(s, key, a)
	}
	return false
}

// hold makes the caller a user of every attendance of a shard, and returns them. The
// shard must be locked. The caller decrements users of each when it is done.
func (s *shard[K]) hold() map[K]*attendance {
	held := maps.Clone(s.attended)
	for _, a := range held {
		a.users.Add(1)
	}
	return held
}

// isFull reports whether the bucket is full and not paused. If its states change during
// the check, isFull returns false.
func (a *attendance) isFull(limits tokenbucket.Limits) bool {
	_, states := a.bucket.State()
	latest := a.bucket.Latest()
	_, after := a.bucket.State()
	return slices.Equal(states, after) && !isPaused(states, latest) && limits.IsFull(states, latest)
}

// add gives a key an attendance.
func (s *shard[K]) add(key K, a *attendance) {
	if s.attended == nil {
		s.attended = map[K]*attendance{}
	}
	s.attended[key] = a
	s.peak = max(s.peak, len(s.attended))
}

// dismiss removes the attendance of a key. A map does not shrink, and finding a key to retire
// takes long in one that is almost empty. So dismiss copies the map if it was far larger.
func (s *shard[K]) dismiss(key K) {
	delete(s.attended, key)
	switch n := len(s.attended); {
	case n == 0:
		s.attended, s.peak = nil, 0
	case n < s.peak/4:
		smaller := make(map[K]*attendance, n) // a clone would be as large
		maps.Copy(smaller, s.attended)
		s.attended, s.peak = smaller, n
	}
}
