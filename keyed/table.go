package keyed

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// table maps keys to their states. It consists of groups of seven slots. The hash of a
// key names a slot. If that slot was taken, the key is in another slot of the same group.
// If the group was full, the key is in one of the next groups. A word for each group says
// which slots are taken, and holds seven bits of each key's hash. The words for a million
// keys about fit into a processor's cache. Three keys in five are in the slot that their
// hash names, and the processor fetches that entry at the same time as the word. So
// finding a key costs one cache miss, that of its entry.
//
// A Go map would be simpler, but it cannot be swept in steps, and it doubles when it
// grows. This table grows by a quarter, and a large one is two thirds full after that.
//
// The zero table is not ready to use. It is not safe for concurrent use.
type table[K comparable] struct {
	seed    maphash.Seed
	limits  tokenbucket.Limits
	len     int // keys, full ones too
	cursor  int // the group where the sweep goes on
	groups  []group
	fullAt  []time.Duration     // for each group: none of its keys is full before this instant
	entries []entry[K]          // one for each slot
	states  []tokenbucket.State // states of the further limits, in the order of the entries
}

// entry is a key with the state of its first limit: 32 bytes for a string, half a
// cache line.
type entry[K comparable] struct {
	key   K
	state [1]tokenbucket.State
}

const (
	slotsPerGroup = 7
	mostPerGroup  = 6 // most keys per group, on average: with one more, the table grows
	leastPerGroup = 3 // fewest keys per group, on average: with one less, the table shrinks
	fewestGroups  = 8 // fewest groups of a table that has had a key, and fewest that it grows by
)

func (t *table[K]) hash(key K) uint64 { return maphash.Comparable(t.seed, key) }

// home returns the slot that a hash names. It uses neither the bits that choose the shard
// nor those of the tag.
func (t *table[K]) home(hash uint64) int {
	slot, _ := bits.Mul64(hash<<shardBits, uint64(len(t.entries)))
	return int(slot)
}

func (t *table[K]) next(at int) int {
	if at++; at == len(t.groups) {
		return 0
	}
	return at
}

// find returns the slot of a key, or -1 if the key is not there. The slot is valid until
// keys are inserted or dropped. find first looks at the slot that the hash names. Most
// keys are there, so a processor predicts that and fetches the entry at the same time as
// the word.
func (t *table[K]) find(hash uint64, key K) int {
	slot := t.home(hash)
	at, n := slot/slotsPerGroup, slot%slotsPerGroup
	if at < len(t.groups) && t.groups[at].tag(n) == tagOf(hash) && t.entries[slot].key == key {
		return slot
	}
	return t.search(at, tagOf(hash), key)
}

// search looks for a key in the group that its hash names and the groups after it. It
// returns its slot, or -1.
func (t *table[K]) search(at int, tag group, key K) int {
	for range t.groups {
		g := t.groups[at]
		for same := g.tagged(tag); same != 0; same = same.rest() {
			if slot := at*slotsPerGroup + same.first(); t.entries[slot].key == key {
				return slot
			}
		}
		if !g.isPassed() {
			break
		}
		at = t.next(at)
		tag |= displaced
	}
	return -1
}

// insert adds a key that is not in the table. If there is no room, insert first drops all
// keys that are full, and returns their number. If these are few, the table grows.
func (t *table[K]) insert(hash uint64, key K, states []tokenbucket.State, now time.Duration) (dropped int) {
	if t.len >= mostPerGroup*len(t.groups) {
		if dropped = t.sweep(t.len, now); dropped <= len(t.groups) {
			t.rebuild(len(t.groups) + max(fewestGroups, len(t.groups)/4))
		}
	}
	slot := t.take(hash, timeline.Later(now, t.limits.UntilFull(states, now)))
	t.put(slot, key, states)
	return dropped
}

func (t *table[K]) put(slot int, key K, states []tokenbucket.State) {
	t.entries[slot] = entry[K]{key, [1]tokenbucket.State{states[0]}}
	copy(t.furtherStates(slot), states[1:])
}

// take takes a free slot for a key with this hash, and returns the slot.
func (t *table[K]) take(hash uint64, fullAt time.Duration) int {
	slot, tag := t.home(hash), tagOf(hash)
	at, n := slot/slotsPerGroup, slot%slotsPerGroup
	for t.groups[at].tagged(free) == 0 {
		t.groups[at] = t.groups[at].pass()
		at = t.next(at)
		tag |= displaced
	}
	if t.groups[at].tag(n) != free {
		n = t.groups[at].tagged(free).first()
	}
	t.groups[at] |= tag << (8 * n)
	t.fullAt[at] = min(t.fullAt[at], fullAt)
	t.len++
	return at*slotsPerGroup + n
}

// load returns the states of a slot, which the caller may change. With one limit, that is
// the state in the table. With several limits, it is a copy in scratch, and store writes
// the changes back.
func (t *table[K]) load(slot int, scratch []tokenbucket.State) []tokenbucket.State {
	first := t.entries[slot].state[:]
	if len(t.limits) == 1 {
		return first
	}
	copy(scratch, first)
	copy(scratch[1:], t.furtherStates(slot))
	return scratch
}

// store writes back the states that load returned. A single state is in the table
// already.
func (t *table[K]) store(slot int, states []tokenbucket.State) {
	if len(t.limits) > 1 {
		t.entries[slot].state[0] = states[0]
		copy(t.furtherStates(slot), states[1:])
	}
}

// hasten makes the next sweep look at a key that may now be full earlier than before.
func (t *table[K]) hasten(slot int) { t.fullAt[slot/slotsPerGroup] = 0 }

func (t *table[K]) furtherStates(slot int) []tokenbucket.State {
	further := len(t.limits) - 1
	return t.states[slot*further:][:further]
}

// remove drops a key, and reports whether the key was there.
func (t *table[K]) remove(hash uint64, key K) bool {
	slot := t.find(hash, key)
	if slot < 0 {
		return false
	}
	t.dropFrom(t.home(hash)/slotsPerGroup, slot)
	t.shrink()
	return true
}

// drop drops the key of a slot. If the key is displaced, drop hashes it to find the group that
// the hash names.
func (t *table[K]) drop(slot int) {
	home := slot / slotsPerGroup
	if t.groups[home].tag(slot%slotsPerGroup)&displaced != 0 {
		home = t.home(t.hash(t.entries[slot].key)) / slotsPerGroup
	}
	t.dropFrom(home, slot)
}

// dropFrom drops the key of a slot. The hash of the key names the group home.
func (t *table[K]) dropFrom(home, slot int) {
	at, n := slot/slotsPerGroup, slot%slotsPerGroup
	t.groups[at] = t.groups[at].with(n, free)
	for passed := home; passed != at; passed = t.next(passed) {
		t.groups[passed] = t.groups[passed].unpass()
	}
	t.len--
	t.entries[slot] = entry[K]{} // so that the key can be freed
}

// change changes the limits, drops the keys that are full, and returns their number.
// scratch has room for one state per limit.
func (t *table[K]) change(to tokenbucket.Limits, now time.Duration, scratch []tokenbucket.State) (dropped int) {
	for slot := range t.slots {
		states := t.load(slot, scratch)
		if t.limits.IsFull(states, now) {
			t.drop(slot)
			dropped++
			continue
		}
		t.limits.Change(states, now, to)
		t.store(slot, states)
		t.hasten(slot)
	}
	t.limits = to
	t.shrink()
	return dropped
}

// appendTo appends the keys that are not full to keys. It returns keys, and the states of
// the appended keys one after the other.
func (t *table[K]) appendTo(keys []K, now time.Duration, scratch []tokenbucket.State) ([]K, []tokenbucket.State) {
	states := make([]tokenbucket.State, 0, t.len*len(t.limits))
	for slot := range t.slots {
		if s := t.load(slot, scratch); !t.limits.IsFull(s, now) {
			keys = append(keys, t.entries[slot].key)
			states = append(states, s...)
		}
	}
	return keys, states
}

// slots yields the slots of all keys. The caller may drop keys during
// the iteration.
func (t *table[K]) slots(yield func(slot int) bool) {
	for at, g := range t.groups {
		for taken := g.taken(); taken != 0; taken = taken.rest() {
			if !yield(at*slotsPerGroup + taken.first()) {
				return
			}
		}
	}
}

// shrink frees memory if far too few slots are taken.
func (t *table[K]) shrink() {
	if t.len < leastPerGroup*len(t.groups) {
		t.fit()
	}
}

// fit frees memory if the table is larger than its keys need.
func (t *table[K]) fit() {
	if size := groupsFor(t.len); size < len(t.groups) {
		t.rebuild(size)
	}
}

// groupsFor returns how many groups a number of keys needs, with some room for more.
func groupsFor(keys int) int { return max(fewestGroups, keys/(mostPerGroup-1)+1) }

// rebuild gives the table a new size, in groups. The keys stay in the order of their hashes,
// and the cursor stays at the same place in that order.
func (t *table[K]) rebuild(size int) {
	old := *t
	t.len = 0
	t.groups = make([]group, size)
	t.fullAt = slices.Repeat([]time.Duration{timeline.Never}, size)
	t.entries = make([]entry[K], size*slotsPerGroup)
	t.states = make([]tokenbucket.State, size*slotsPerGroup*(len(t.limits)-1))
	t.cursor = int(int64(old.cursor) * int64(size) / max(1, int64(len(old.groups)))) // int64, since an int may have 32 bits
	for from := range old.slots {
		to := t.take(t.hash(old.entries[from].key), old.fullAt[from/slotsPerGroup])
		t.entries[to] = old.entries[from]
		copy(t.furtherStates(to), old.furtherStates(from))
	}
}

// group describes seven slots. Each of the seven low bytes is the tag of a slot's key.
// The top byte counts the keys that passed by: they are in a later group because this one
// was full. A search ends at a group that no key has passed by. When a key is dropped,
// the groups that it passed by no longer count it, so it does not make later searches
// longer (as in F14, the table of Facebook's folly).
type group uint64

const (
	free      group = 0    // the tag of a slot that is not taken
	displaced group = 0x80 // in the tag of a key that is not in the group that its hash names
	each      group = 0x01_01_01_01_01_01_01
	passedBy  group = 1 << (8 * slotsPerGroup)
)

// tagOf returns seven bits of the hash that are not all 0.
func tagOf(hash uint64) group { return max(1, group(hash&0x7f)) }

// tag returns the tag of a slot.
func (g group) tag(n int) group { return g >> (8 * n) & 0xff }

// with returns the group with a new tag of a slot.
func (g group) with(n int, tag group) group { return g&^(0xff<<(8*n)) | tag<<(8*n) }

// tagged marks the slots that have a tag. Adding 0x7f to the low seven bits of a byte sets its
// highest bit unless they are all 0, and carries nothing into the next byte. Then "| x" adds the
// highest bits of x. So the highest bit of a byte stays 0 only if the whole byte of x is 0.
func (g group) tagged(tag group) slots {
	x := g ^ tag*each // 0 where the tag is
	return slots(^(x&(0x7f*each) + 0x7f*each | x) & (0x80 * each))
}

// taken marks the slots that are not free.
func (g group) taken() slots { return g.tagged(free) ^ slots(0x80*each) }

// atHome marks the slots whose keys are not displaced.
func (g group) atHome() slots { return g.taken() &^ slots(g&(displaced*each)) }

func (g group) isPassed() bool { return g >= passedBy }

// pass counts a key that passed by. A count of 255 means 255 or more. It stays until the
// table is rebuilt.
func (g group) pass() group {
	if g >= 0xff*passedBy {
		return g
	}
	return g + passedBy
}

// unpass removes a key from the count.
func (g group) unpass() group {
	if g >= 0xff*passedBy {
		return g
	}
	return g - passedBy
}

// slots is a set of a group's slots, each marked by the highest bit of its byte.
type slots uint64

func (s slots) len() int   { return bits.OnesCount64(uint64(s)) }
func (s slots) first() int { return bits.TrailingZeros64(uint64(s)) / 8 }

func (s slots) has(n int) bool { return s>>(8*n)&0x80 != 0 }

// rest returns the set without its first slot.
func (s slots) rest() slots { return s & (s - 1) }
