package keyed

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// shard holds the keys whose hashes have the same shardIndex.
type shard[K comparable] struct {
	mu       sync.Mutex
	latest   time.Duration // the latest reading of the clock; earlier readings count as this one
	due      int           // how many keys to sweep before Len counts the keys, or to make room
	index    uint8         // among the shards
	used     bool          // whether a call has visited the shard since New
	table    table[K]
	attended map[K]*attendance   // keys with waiters or a pause; they are not in the table
	peak     int                 // the most keys that this map has had
	states   []tokenbucket.State // of the key that is visited
	_        [56]byte            // so that two shards share no cache line
}

func (b *Buckets[K]) shardOf(hash uint64) *shard[K] {
	return &b.shards[b.shardIndex(hash)]
}

func (b *Buckets[K]) shardIndex(hash uint64) int {
	return int(hash >> (64 - shardBits) & uint64(len(b.shards)-1))
}

// visit is the work of one call on a key. The shard of the key is locked during the
// visit, unless the key is attended.
type visit[K comparable] struct {
	key      K
	hash     uint64
	shard    *shard[K]
	now, at  time.Duration       // the reading of the clock, and the instant it counts as
	attended *attendance         // if not nil, its bucket decides; otherwise limits and states do
	states   []tokenbucket.State // of the key
	slot     int                 // slot of the key; -1 if the key is not in the table
	full     int                 // the slot of a full key, which an unknown key takes over; or -1. If both are -1, a place is taken for the key
	looked   bool                // whether the call has looked for room
}

// limits returns the limits of a key that is not attended. Its shard is locked, so they do not
// change during the visit. A copy in the visit would make Take slower.
func (v *visit[K]) limits() tokenbucket.Limits { return v.shard.table.limits }

// fromNow turns a wait that counts from v.at into one that counts from the call's own
// reading of the clock.
func (v *visit[K]) fromNow(wait time.Duration) time.Duration {
	return timeline.Later(wait, v.at-v.now)
}

// countFromNow does the same for the wait of a refusal.
func (v *visit[K]) countFromNow(d *tokenbucket.Decision) {
	if !d.OK {
		d.Wait = v.fromNow(d.Wait)
	}
}

// hasten makes the next sweep look at the key, which may now be full earlier than before.
func (v *visit[K]) hasten() {
	if v.slot >= 0 {
		v.shard.table.hasten(v.slot)
	}
}

// enter begins a visit. It hashes the key before it reads the clock. Reading the clock delays
// all loads that come after it. In this order, the processor can load the key while the table
// entry of the previous visit is still on its way from memory.
//
// If the key is attended, the shard is unlocked again when enter returns, and the visit
// counts as a user. Otherwise the shard stays locked until leave or attend.
func (b *Buckets[K]) enter(v *visit[K], key K) {
	v.key, v.hash = key, maphash.Comparable(b.seed, key)
	v.now = b.time.Now()
	s := b.shardOf(v.hash)
	s.mu.Lock()
	s.latest = max(s.latest, v.now)
	s.used = true
	v.shard, v.at = s, s.latest
	if len(s.attended) > 0 && b.enterAttended(v) {
		return
	}
	if v.slot, v.full = s.table.find(v.hash, key), -1; v.slot < 0 {
		b.enterUnknown(v)
		return
	}
	v.states = s.table.load(v.slot, s.states)
}

// enterAttended makes the visit a user of its key's own bucket, and reports whether the
// key has one. Before that it does its part of the sweep. Otherwise no key would move
// back to the table if all calls were for attended keys.
func (b *Buckets[K]) enterAttended(v *visit[K]) bool {
	s := v.shard
	if s.attended[v.key] == nil {
		return false
	}
	b.sweepDue(s, false)
	if v.attended = s.attended[v.key]; v.attended == nil {
		v.at = s.latest
		return false
	}
	v.attended.users.Add(1)
	s.mu.Unlock()
	return true
}

// enterUnknown gives an unknown key full states if there is room for it. If not, it
// unlocks the shard, looks for room once, and begins the visit again. If there is no room
// then either, the overflow bucket decides.
func (b *Buckets[K]) enterUnknown(v *visit[K]) {
	s := v.shard
	isSelf := v.key == v.key // not NaN
	if isSelf {
		v.full = s.table.fullSlot(v.hash, v.at)
	}
	if v.full >= 0 || isSelf && b.takePlace() {
		v.states = s.states
		v.limits().Fill(v.states, v.at)
		return
	}
	s.mu.Unlock()
	if !isSelf || v.looked {
		v.attended = b.overflow
		return
	}
	b.lookForRoom()
	v.looked = true
	b.enter(v, v.key) // another call may have brought the key
}

// leave ends a visit.
func (b *Buckets[K]) leave(v *visit[K]) {
	s := v.shard
	switch {
	case v.attended == b.overflow:
		return
	case v.attended != nil:
		v.attended.users.Add(-1)
		return
	case v.slot >= 0:
		s.table.store(v.slot, v.states)
	default:
		b.remember(s, v.hash, v.key, v.states, v.at, v.full)
	}
	b.sweepDue(s, v.slot < 0)
	s.mu.Unlock()
}

// leaveUnchanged ends a visit to a key that is not attended, and drops the visit's states.
func (b *Buckets[K]) leaveUnchanged(v *visit[K]) {
	if v.slot < 0 && v.full < 0 {
		b.len.Add(-1)
	}
	b.sweepDue(v.shard, v.slot < 0)
	v.shard.mu.Unlock()
}

// sweepDue counts four more keys as due (sweepEachCall). Every sixteenth call sweeps. If keys
// are attended, a call for a newcomer also sweeps: for a key that is unknown, or that becomes
// attended.
func (b *Buckets[K]) sweepDue(s *shard[K], newcomer bool) {
	if s.due == 0 {
		b.sweepBeforeLen(s)
	}
	s.due += sweepEachCall
	if s.due%sweepAtOnce == 0 || newcomer && len(s.attended) > 0 {
		b.sweepSome(s)
	}
}

// sweepBeforeLen makes the next Len sweep the keys of the shard that are due by then.
func (b *Buckets[K]) sweepBeforeLen(s *shard[K]) {
	set, bit := &b.due[s.index/64], uint64(1)<<(s.index%64)
	if set.Load()&bit == 0 {
		set.Or(bit)
	}
}

// sweepSome sweeps the keys that are due if WithMaxKeys leaves no room. Otherwise a sweep
// only frees memory. Then sweepSome sweeps one group, if the table can shrink, and the keys
// stay due until Len sweeps them.
func (b *Buckets[K]) sweepSome(s *shard[K]) {
	// The bound is above the number of keys, and a multiple of sweepAtOnce, so that every
	// sixteenth call still sweeps.
	s.due = min(s.due, sweepAtOnce*len(s.table.groups))
	n := 0
	if b.len.Load() >= b.maxKeys {
		n = min(s.due, lookAtKeys)
		s.due -= n
	} else if len(s.table.groups) > fewestGroups {
		n = 1
	}
	b.sweep(s, n)
}

// remember puts a key into the table, and reports whether it did. full is a slot that the key
// takes over, or -1 if it has taken a place. A full key is not put into the table, and its
// place is free again.
func (b *Buckets[K]) remember(s *shard[K], hash uint64, key K, states []tokenbucket.State, at time.Duration, full int) (kept bool) {
	isFull := s.table.limits.IsFull(states, at)
	switch {
	case full >= 0 && !isFull:
		s.table.takeOver(full, hash, key, states)
	case full < 0 && isFull:
		b.len.Add(-1)
	case full < 0:
		if dropped := s.table.insert(hash, key, states, at); dropped > 0 {
			b.len.Add(int64(-dropped))
		}
	}
	return !isFull
}

// takePlace counts one more key, unless that would be too many, and reports whether it
// did.
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

// sweep looks at n keys of a shard, or a few more, and drops those that are full again. It
// also tries to retire one attended key. It returns how many keys it dropped.
func (b *Buckets[K]) sweep(s *shard[K], n int) (dropped int) {
	dropped = s.table.sweep(n, s.latest)
	if dropped > 0 {
		b.len.Add(int64(-dropped))
	}
	if len(s.attended) > 0 && b.retireOne(s) {
		dropped++
	}
	return dropped
}

// lookForRoom sweeps shards in turn until it has dropped a key or has swept a shard of at
// least lookAtKeys keys. The caller has locked no shard.
func (b *Buckets[K]) lookForRoom() {
	now := b.time.Now()
	for range b.shards {
		s := &b.shards[b.next.Add(1)&uint64(len(b.shards)-1)]
		s.mu.Lock()
		s.latest = max(s.latest, now)
		looked := s.table.len
		dropped := b.sweep(s, lookAtKeys)
		s.mu.Unlock()
		if dropped > 0 || looked >= lookAtKeys {
			return
		}
	}
}
