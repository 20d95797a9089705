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

// Restore lets Buckets continue where earlier Buckets stopped. Pass what Limits,
// Origin, Latest and All of the earlier Buckets returned. The keys refill for the time
// that has passed since then. If the origin was stored, it has lost its monotonic
// reading, and the wall clock measures that time. If the wall clock stepped back and is
// before the argument latest, Buckets use latest as the present time until the clock
// has passed it.
//
// The limits passed may differ from those of New. Then each key first refills under the
// limits passed. It keeps its tokens, up to the new capacity, and its debt. Keys that are
// full by now are not restored, and NaN keys are ignored. If there are more keys than
// WithMaxKeys allows, those that take longest to fill are restored.
//
// Call Restore before any other method, and call no other method until it returns.
// Restore returns ErrInvalidOption, and restores nothing, if the Buckets have been used,
// if a limit is invalid, or if the number of limits differs from that of the Buckets. It
// also does so for an origin that is too far away (see tokenbucket.WithState), an
// invalid state, a key with another number of states, or a key that comes twice.
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
			return fmt.Errorf("%w: these Buckets have been used: call Restore before any other method", tokenbucket.ErrInvalidOption)
		}
	}
	if n := len(*b.limits.Load()); len(limits) != n {
		return fmt.Errorf("%w: %d saved limits for buckets with %d: create the Buckets with as many limits as were saved", tokenbucket.ErrInvalidOption, len(limits), n)
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

// restoring holds the Buckets that Restore fills from saved states. It first collects the
// keys by shard. Then it creates each table once, at the size needed, and fills it while
// the table is in the processor's cache.
type restoring[K comparable] struct {
	buckets  *Buckets[K]
	from, to tokenbucket.Limits
	at       time.Duration             // the present instant
	states   []tokenbucket.State       // of the key that is being added
	saved    []savedKeys[K]            // for each shard
	paused   map[K][]tokenbucket.State // states of the paused keys: these get their own buckets
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

// collect checks a saved key and adds it to the keys of its shard.
func (r *restoring[K]) collect(key K, states []tokenbucket.State) error {
	// For a key that a map does not accept, this panics as a map does. The comparison below would
	// panic in another way.
	hash := maphash.Comparable(r.buckets.seed, key)
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
	saved := &r.saved[r.buckets.shardIndex(hash)]
	saved.keys = append(saved.keys, hashedKey[K]{hash, key})
	saved.states = append(saved.states, states...)
	return nil
}

// fill puts the collected keys into the tables of their shards.
func (r *restoring[K]) fill() error {
	for i := range r.saved {
		saved := r.saved[i]
		r.saved[i] = savedKeys[K]{} // frees the memory early
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

// add adds a key to its table, or to the paused keys. It adds a full key, too, to notice
// if the key comes twice; finish drops full keys.
func (r *restoring[K]) add(t *table[K], k hashedKey[K], states []tokenbucket.State) error {
	if r.paused[k.key] != nil || t.find(k.hash, k.key) >= 0 {
		return fmt.Errorf("%w: key %v comes twice: pass each key once", tokenbucket.ErrInvalidOption, k.key)
	}
	r.resume(states)
	if isPaused(r.states, r.at) {
		r.paused[k.key] = slices.Clone(r.states)
	} else {
		t.insert(k.hash, k.key, r.states, r.at)
	}
	return nil
}

// resume sets r.states to what saved states are now, under the limits of the Buckets.
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

// finish drops the keys that are full and those for which there is no room. It gives the
// paused keys their own buckets.
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
		s.add(key, &attendance{bucket: r.buckets.newBucket(r.to, states, r.at)})
	}
	r.buckets.len.Store(int64(n))
}

// drop drops the given number of keys: those that will be full first.
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
	least := lefts[excess] // the shortest time of a key that stays
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
