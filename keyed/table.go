package keyed

import (
	"hash/maphash"

	"github.com/aa014e13/tokenbucket"
)

// table maps keys to their states. The entries stand densely in slabs that never
// move, so that growing copies none of them and a sweep can walk over them a few
// at a time; an index of 32-bit slots, probed linearly, finds them by the hash of
// their key. It is tempting to take a Go map, but that cannot be swept in steps,
// and is copied when it grows. The index is between 3/8 and 3/4 full.
//
// The zero table is not ready to use. It is not safe for concurrent use.
type table[K comparable] struct {
	seed   maphash.Seed
	stride int // states a key
	len    int
	slabs  []slab[K]
	index  []slot // a power of two long, or none
	cursor int    // where the sweep goes on
}

const slabLen = 128

type slab[K comparable] struct {
	keys   *[slabLen]K
	states []tokenbucket.State
}

// slot holds the number of an entry plus 1, 0 for none, and above it a tag: 8 bits
// of the hash, so that keys are rarely compared in vain.
type slot uint32

const (
	numberBits = 24
	maxEntries = 1<<numberBits - 2
)

func newSlot(hash uint64, entry int) slot { return tagOf(hash) | slot(entry+1) }

// tagOf takes bits that neither the place in the index nor the shard depends on.
func tagOf(hash uint64) slot { return slot(hash>>48) << numberBits }

func (s slot) tag() slot { return s &^ (1<<numberBits - 1) }

func (s slot) entry() int { return int(s&(1<<numberBits-1)) - 1 }

func (t *table[K]) hash(key K) uint64 { return maphash.Comparable(t.seed, key) }

func (t *table[K]) key(entry int) *K {
	return &t.slabs[entry/slabLen].keys[entry%slabLen]
}

func (t *table[K]) states(entry int) []tokenbucket.State {
	first := entry % slabLen * t.stride
	return t.slabs[entry/slabLen].states[first : first+t.stride : first+t.stride]
}

// find returns the states of a key, nil if it is not there.
func (t *table[K]) find(hash uint64, key K) []tokenbucket.State {
	if entry := t.entryOf(hash, key); entry >= 0 {
		return t.states(entry)
	}
	return nil
}

func (t *table[K]) entryOf(hash uint64, key K) int {
	if t.len == 0 {
		return -1
	}
	mask, tag := uint64(len(t.index)-1), tagOf(hash)
	for at := hash & mask; t.index[at] != 0; at = (at + 1) & mask {
		if s := t.index[at]; s.tag() == tag && *t.key(s.entry()) == key {
			return s.entry()
		}
	}
	return -1
}

// insert adds a key that is not there, and returns its states to be set.
func (t *table[K]) insert(hash uint64, key K) []tokenbucket.State {
	if t.len == len(t.slabs)*slabLen {
		t.slabs = append(t.slabs, slab[K]{new([slabLen]K), make([]tokenbucket.State, slabLen*t.stride)})
	}
	entry := t.len
	t.len++
	*t.key(entry) = key
	if 4*t.len > 3*len(t.index) {
		t.reindex(max(8, 2*len(t.index)))
	} else {
		t.link(hash, entry)
	}
	return t.states(entry)
}

// remove drops a key, and returns whether it was there.
func (t *table[K]) remove(hash uint64, key K) bool {
	entry := t.entryOf(hash, key)
	if entry >= 0 {
		t.drop(hash, entry)
	}
	return entry >= 0
}

// drop takes an entry out and moves the last one into its place.
func (t *table[K]) drop(hash uint64, entry int) {
	t.unlink(t.place(hash, entry))
	last := t.len - 1
	if entry != last {
		key := *t.key(last)
		hash := t.hash(key)
		t.index[t.place(hash, last)] = newSlot(hash, entry)
		*t.key(entry) = key
		copy(t.states(entry), t.states(last))
	}
	var none K
	*t.key(last) = none // nothing is kept alive
	t.len = last
	t.shrink()
}

// sweep looks at the next few entries and drops those that are idle. It returns
// how many it dropped.
func (t *table[K]) sweep(few int, idle func(states []tokenbucket.State) bool) (dropped int) {
	for range min(few, t.len) {
		if t.cursor >= t.len {
			t.cursor = 0
		}
		if !idle(t.states(t.cursor)) {
			t.cursor++
			continue
		}
		t.drop(t.hash(*t.key(t.cursor)), t.cursor) // and another has taken its place
		dropped++
	}
	return dropped
}

// shrink gives memory back: all but one slab that is not needed, and an index
// that has become far too large.
func (t *table[K]) shrink() {
	if spare := len(t.slabs)*slabLen - t.len; spare >= 2*slabLen || t.len == 0 {
		t.slabs[len(t.slabs)-1] = slab[K]{}
		t.slabs = t.slabs[:len(t.slabs)-1]
	}
	if cap(t.slabs) > 4*len(t.slabs)+4 {
		t.slabs = append(make([]slab[K], 0, 2*len(t.slabs)), t.slabs...)
	}
	if len(t.index) > 8 && 8*t.len < len(t.index) {
		t.reindex(len(t.index) / 2)
	}
}

// place returns where in the index an entry is found.
func (t *table[K]) place(hash uint64, entry int) uint64 {
	mask := uint64(len(t.index) - 1)
	at := hash & mask
	for t.index[at].entry() != entry {
		at = (at + 1) & mask
	}
	return at
}

// link enters an entry into the index, at the first free place from its own on.
func (t *table[K]) link(hash uint64, entry int) {
	mask := uint64(len(t.index) - 1)
	at := hash & mask
	for t.index[at] != 0 {
		at = (at + 1) & mask
	}
	t.index[at] = newSlot(hash, entry)
}

// unlink frees a place and moves up those behind it that may stand there, so that
// no search ends early and no tombstones are needed (Knuth, TAOCP 3, 6.4, algorithm R).
func (t *table[K]) unlink(free uint64) {
	mask := uint64(len(t.index) - 1)
	for at := (free + 1) & mask; t.index[at] != 0; at = (at + 1) & mask {
		own := t.hash(*t.key(t.index[at].entry())) & mask
		if (at-own)&mask >= (at-free)&mask {
			t.index[free] = t.index[at]
			free = at
		}
	}
	t.index[free] = 0
}

// reindex makes the index anew. It is what a growing table pauses for.
func (t *table[K]) reindex(size int) {
	t.index = make([]slot, size)
	for entry := range t.len {
		t.link(t.hash(*t.key(entry)), entry)
	}
}
