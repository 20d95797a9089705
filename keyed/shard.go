package keyed

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// shard holds the keys whose hashes begin alike.
type shard[K comparable] struct {
	mu       sync.Mutex
	latest   time.Duration // the latest reading of the clock: earlier ones count as this
	due      int32         // keys to be swept
	used     bool          // since New
	table    table[K]
	attended map[K]*attendance   // keys that are waited for or paused: they are not in the table
	states   []tokenbucket.State // those of the key that is visited
	_        [56]byte            // neighbours share no cache line
}

func (b *Buckets[K]) shardOf(hash uint64) *shard[K] {
	return &b.shards[b.shardIndex(hash)]
}

func (b *Buckets[K]) shardIndex(hash uint64) int {
	return int(hash >> (64 - shardBits) & uint64(len(b.shards)-1))
}

// visit is one call's business with a key. Its shard is locked meanwhile, unless the
// key is attended.
type visit[K comparable] struct {
	key      K
	hash     uint64
	shard    *shard[K]
	now, at  time.Duration       // the reading of the clock, and what it counts as
	attended *attendance         // its bucket decides, if there is one; else
	limits   tokenbucket.Limits  // these decide
	states   []tokenbucket.State // on these,
	slot     int                 // of this slot; -1 if the key was not known and a place is taken for it
	old      int                 // the slot where such a key lingers, or -1
	looked   bool                // for room, in vain or not
}

// fromNow counts a wait from the reading itself.
func (v *visit[K]) fromNow(wait time.Duration) time.Duration {
	return timeline.Later(wait, v.at-v.now)
}

// fromReading counts a refusal's wait from the reading itself.
func (v *visit[K]) fromReading(d tokenbucket.Decision) tokenbucket.Decision {
	if !d.OK {
		d.Wait = v.fromNow(d.Wait)
	}
	return d
}

// hasten lets the next sweep look at the key, which may now be full earlier than before.
func (v *visit[K]) hasten() {
	if v.slot >= 0 {
		v.shard.table.hasten(v.slot)
	}
}

// enter begins a visit. It reads the clock after the key, since a reading lets nothing
// be fetched ahead: this way the key comes while the visit before still waits for its
// entry.
//
// If the key is attended, the shard is open again when enter returns, and the visit is
// counted as a user. Otherwise the shard stays locked until leave or attend.
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
	if v.slot, v.old = s.table.find(v.hash, key), -1; v.slot < 0 || s.table.lingers(v.slot) {
		v.slot, v.old = -1, v.slot
		b.enterUnknown(v)
		return
	}
	v.limits, v.states = s.table.limits, s.table.load(v.slot, s.states)
}

// enterAttended makes the visit a user of its key's own bucket, if it has one. Before
// that it does its share of the sweep: among keys that are always in use, one that is
// due to go back to the table must have a chance to.
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

// enterUnknown gives a key its own bucket, full, if there is room for one, or once
// some has been looked for, with its shard open: then the visit begins anew.
func (b *Buckets[K]) enterUnknown(v *visit[K]) {
	s := v.shard
	isSelf := v.key == v.key // not NaN
	if isSelf && b.takePlace() {
		v.limits, v.states = s.table.limits, s.states
		v.limits.Fill(v.states, v.at)
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
		b.remember(s, v.hash, v.key, v.states, v.at, v.old)
	}
	b.sweepDue(s, v.slot < 0 && v.old < 0)
	s.mu.Unlock()
}

// leaveUnchanged ends a visit to a key that is not attended, and drops the visit's states.
func (b *Buckets[K]) leaveUnchanged(v *visit[K]) {
	if v.slot < 0 {
		b.len.Add(-1)
	}
	b.sweepDue(v.shard, v.slot < 0 && v.old < 0)
	v.shard.mu.Unlock()
}

// sweepDue sweeps what is due after one more call, at once or when it is worth it.
func (b *Buckets[K]) sweepDue(s *shard[K], atOnce bool) {
	if s.due += sweepEachCall; s.due >= sweepAtOnce || atOnce {
		b.sweep(s, int(s.due))
		s.due = 0
	}
}

// remember puts a key into the table, at the slot where it lingers if that is not -1. If
// the key is full, there is nothing to remember, and remember gives its place up.
func (b *Buckets[K]) remember(s *shard[K], hash uint64, key K, states []tokenbucket.State, at time.Duration, old int) (kept bool) {
	if s.table.limits.IsFull(states, at) {
		b.len.Add(-1)
		return false
	}
	if old >= 0 {
		s.table.revive(old, states)
	} else {
		s.table.insert(hash, key, states, timeline.Later(at, s.table.limits.UntilFull(states, at)))
	}
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

// sweep forgets some keys of a shard that are full again, and gives up the bucket of one
// attended key that has no users.
func (b *Buckets[K]) sweep(s *shard[K], few int) (dropped int) {
	dropped = s.table.sweep(few, s.latest)
	if dropped > 0 {
		b.len.Add(int64(-dropped))
	}
	if len(s.attended) > 0 && b.retireOne(s) {
		dropped++
	}
	return dropped
}

// lookForRoom sweeps shards in turn until a key has been dropped or enough were
// looked at. No shard is locked by the caller.
func (b *Buckets[K]) lookForRoom() {
	now := b.time.Now()
	for range b.shards {
		s := &b.shards[b.next.Add(1)&uint64(len(b.shards)-1)]
		s.mu.Lock()
		s.latest = max(s.latest, now)
		s.table.dropLingering()
		looked := s.table.len
		dropped := b.sweep(s, lookAtKeys)
		s.mu.Unlock()
		if dropped > 0 || looked >= lookAtKeys {
			return
		}
	}
}
