package keyed

import (
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// Restore lets Buckets go on from what earlier ones saved: their Limits, Origin and
// Latest, and the keys and states of All. The time between counts, by the wall clock if
// the origin was stored and has lost its monotonic reading, and no earlier than latest if
// that clock stepped back.
//
// If the limits are others than the present ones, each state is brought to its level
// under the old limit first: tokens stay, up to the new capacity, and so do debts. Keys
// that are full by now are not restored, and NaN keys are ignored. If WithMaxKeys leaves
// too little room, the keys that take longest to fill keep their places.
//
// Call Restore before the first use, and no other method meanwhile. It returns
// ErrInvalidOption, and restores nothing, if the Buckets have been used, a limit is
// invalid, there are not as many limits as now, the origin is too far away (as WithState
// of package tokenbucket says), a state is invalid, a key has another number of states,
// or a key comes twice.
func (b *Buckets[K]) Restore(limits []tokenbucket.Limit, origin time.Time, latest time.Duration, all iter.Seq2[K, []tokenbucket.State]) error {
	if err := b.checkRestore(limits, origin); err != nil {
		return err
	}
	to := *b.limits.Load()
	t := timeline.Resume(b.time.Clock, origin)
	at := max(0, t.Now(), min(latest, timeline.End))
	r := restoring[K]{
		buckets: newBuckets[K](t, config{limits: to, maxKeys: int(b.maxKeys), maxWaiters: b.maxWaiters}, at),
		from:    limits, to: to, at: at,
		states: make([]tokenbucket.State, len(to)),
		saved:  make([]savedKeys[K], len(b.shards)),
		paused: map[K][]tokenbucket.State{},
	}
	for key, states := range all {
		if err := r.collect(key, states); err != nil {
			return err
		}
	}
	if err := r.fill(); err != nil {
		return err
	}
	r.finish()
	b.time, b.seed, b.shards, b.overflow = t, r.buckets.seed, r.buckets.shards, r.buckets.overflow
	b.len.Store(r.buckets.len.Load())
	b.shards[0].used = true
	return nil
}

func (b *Buckets[K]) checkRestore(limits []tokenbucket.Limit, origin time.Time) error {
	for i := range b.shards {
		if b.shards[i].used {
			return fmt.Errorf("%w: these Buckets have been used: restore before the first use", tokenbucket.ErrInvalidOption)
		}
	}
	if n := len(*b.limits.Load()); len(limits) != n {
		return fmt.Errorf("%w: %d limits for buckets of %d: pass what Limits of buckets with as many limits returned", tokenbucket.ErrInvalidOption, len(limits), n)
	}
	if err := tokenbucket.Limits(limits).Validate(); err != nil {
		return fmt.Errorf("%w: %w", tokenbucket.ErrInvalidOption, err)
	}
	var clock tokenbucket.Clock
	if near, ok := b.time.Clock.(nearClock); ok {
		clock = near.Clock
	}
	_, err := tokenbucket.New(limits[0], tokenbucket.WithClock(clock), tokenbucket.WithState(origin, make([]tokenbucket.State, 1)))
	if err != nil {
		return fmt.Errorf("%w: the origin %v is too far away: pass what Origin returned beside the states", tokenbucket.ErrInvalidOption, origin)
	}
	return nil
}

// restoring are Buckets that are being filled from saved states. The keys are collected by
// shard first. Then each table is made once, as large as needed, and is filled while it is
// in the processor's cache.
type restoring[K comparable] struct {
	buckets  *Buckets[K]
	from, to tokenbucket.Limits
	at       time.Duration             // what the present counts as
	states   []tokenbucket.State       // those of the key that is added
	saved    []savedKeys[K]            // for each shard
	paused   map[K][]tokenbucket.State // of keys that get buckets of their own
}

// savedKeys are the keys of one shard, with their hashes and all their saved states.
type savedKeys[K comparable] struct {
	keys   []hashedKey[K]
	states []tokenbucket.State
}

type hashedKey[K comparable] struct {
	hash uint64
	key  K
}

// collect checks a saved key and adds it to its shard's.
func (r *restoring[K]) collect(key K, states []tokenbucket.State) error {
	if key != key {
		return nil
	}
	if len(states) != len(r.to) {
		return fmt.Errorf("%w: key %v: %d states for %d limits: pass the states as All returned them", tokenbucket.ErrInvalidOption, key, len(states), len(r.to))
	}
	for _, s := range states {
		if err := s.Validate(); err != nil {
			return fmt.Errorf("key %v: %w", key, err)
		}
	}
	hash := maphash.Comparable(r.buckets.seed, key)
	saved := &r.saved[r.buckets.shardIndex(hash)]
	saved.keys = append(saved.keys, hashedKey[K]{hash, key})
	saved.states = append(saved.states, states...)
	return nil
}

// fill puts the collected keys into the tables of their shards.
func (r *restoring[K]) fill() error {
	for i := range r.saved {
		saved := r.saved[i]
		r.saved[i] = savedKeys[K]{} // gives the memory back early
		t := &r.buckets.shards[i].table
		if n := len(saved.keys); n > 0 {
			t.rebuild(groupsFor(n))
		}
		for j, k := range saved.keys {
			if err := r.add(t, k, saved.states[j*len(r.to):][:len(r.to)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a key to its table, or to those that are paused. A key that is full is added,
// too, until finish: it may come twice.
func (r *restoring[K]) add(t *table[K], k hashedKey[K], states []tokenbucket.State) error {
	if r.paused[k.key] != nil || t.find(k.hash, k.key) >= 0 {
		return fmt.Errorf("%w: key %v comes twice: pass each key once", tokenbucket.ErrInvalidOption, k.key)
	}
	r.resume(states)
	if isPaused(r.states, r.at) {
		r.paused[k.key] = slices.Clone(r.states)
	} else {
		t.insert(k.hash, k.key, r.states, timeline.Later(r.at, r.to.UntilFull(r.states, r.at)))
	}
	return nil
}

// resume turns saved states into present ones.
func (r *restoring[K]) resume(saved []tokenbucket.State) {
	copy(r.states, saved)
	if !isPaused(saved, r.at) && r.from.IsFull(saved, r.at) {
		r.to.Fill(r.states, r.at)
		return
	}
	r.from.Change(r.states, r.at, r.to)
	for i, l := range r.to {
		r.states[i].Balance = min(r.states[i].Balance, l.Capacity)
	}
}

// finish drops the keys that are full and those that find no room, and gives buckets of
// their own to those that are paused.
func (r *restoring[K]) finish() {
	n := len(r.paused)
	for i := range r.buckets.shards {
		t := &r.buckets.shards[i].table
		t.sweep(t.len, r.at)
		t.fit()
		n += t.len
	}
	if excess := n - int(min(r.buckets.maxKeys, int64(n))); excess > 0 {
		r.drop(excess)
		n -= excess
	}
	for key, states := range r.paused {
		s := r.buckets.shardOf(maphash.Comparable(r.buckets.seed, key))
		if s.attended == nil {
			s.attended = map[K]*attendance{}
		}
		s.attended[key] = &attendance{bucket: r.buckets.newBucket(r.to, states, r.at)}
	}
	r.buckets.len.Store(int64(n))
}

// drop drops so many keys: those that are full first.
func (r *restoring[K]) drop(excess int) {
	var lefts []time.Duration
	for i := range r.buckets.shards {
		t := &r.buckets.shards[i].table
		for slot := range t.slots {
			lefts = append(lefts, t.untilFull(slot, r.at))
		}
	}
	for _, states := range r.paused {
		lefts = append(lefts, r.untilFull(states))
	}
	slices.Sort(lefts)
	least := lefts[excess] // of those that stay
	ties := excess - slices.Index(lefts, least)
	drops := func(left time.Duration) bool {
		if left == least {
			ties--
			return ties >= 0
		}
		return left < least
	}
	for i := range r.buckets.shards {
		t := &r.buckets.shards[i].table
		for slot := range t.slots {
			if drops(t.untilFull(slot, r.at)) {
				t.drop(slot)
			}
		}
		t.shrink()
	}
	for key, states := range r.paused {
		if drops(r.untilFull(states)) {
			delete(r.paused, key)
		}
	}
}

// untilFull returns how long a paused key takes to fill.
func (r *restoring[K]) untilFull(states []tokenbucket.State) time.Duration {
	longest := r.to.UntilFull(states, r.at)
	for _, s := range states {
		longest = max(longest, timeline.Until(r.at, s.Anchor))
	}
	return longest
}
