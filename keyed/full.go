package keyed

import (
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// A key whose bucket is full is the same as a key never seen. The table does not drop it at
// once: if the key is requested again, finding it is faster than inserting it. A key that is
// full leaves the table when
//
//   - a new key of the same group takes its slot over,
//   - there is no room for a new key: a sweep of the whole table comes before growth,
//   - a sweep finds it. Calls sweep in steps to free memory. Len sweeps to count the keys.

// fullSlot returns a slot whose key is full, in the group that a hash names, or -1. A key with
// that hash can take the slot over. fullSlot first looks at the slot that the hash names. It
// looks at others only if no slot of the group is free. In a table of the least size, fullSlot
// returns -1 if a slot of the group is free: such a table keeps its full keys.
func (t *table[K]) fullSlot(hash uint64, now time.Duration) int {
	home := t.home(hash)
	at := home / slotsPerGroup
	if at >= len(t.groups) {
		return -1
	}
	hasFree := t.groups[at].tagged(free) != 0
	if hasFree && len(t.groups) == fewestGroups {
		return -1
	}
	slots := t.groups[at].atHome()
	if slots.has(home%slotsPerGroup) && t.isFull(home, now) {
		return home
	}
	if hasFree || now < t.fullAt[at] {
		return -1
	}
	for ; slots != 0; slots = slots.rest() {
		if slot := at*slotsPerGroup + slots.first(); t.isFull(slot, now) {
			return slot
		}
	}
	return -1
}

// takeOver gives a slot that fullSlot has returned to a new key with the same hash. It leaves
// fullAt as it is: that instant has passed already.
func (t *table[K]) takeOver(slot int, hash uint64, key K, states []tokenbucket.State) {
	at, n := slot/slotsPerGroup, slot%slotsPerGroup
	t.groups[at] = t.groups[at].with(n, tagOf(hash))
	t.put(slot, key, states)
}

// sweep looks at the next groups, until it has seen at least n taken slots. It drops the
// keys that are full, and returns their number. sweep skips a group where no key can be full
// yet, since most of the cost is reading entries.
func (t *table[K]) sweep(n int, now time.Duration) (dropped int) {
	for range t.groups {
		if n <= 0 {
			break
		}
		at := t.cursor
		t.cursor = t.next(at)
		n -= t.groups[at].taken().len()
		if now >= t.fullAt[at] {
			dropped += t.sweepGroup(at, now)
		}
	}
	if dropped > 0 {
		t.shrink()
	}
	return dropped
}

func (t *table[K]) sweepGroup(at int, now time.Duration) (dropped int) {
	earliest := timeline.Never
	for taken := t.groups[at].taken(); taken != 0; taken = taken.rest() {
		slot := at*slotsPerGroup + taken.first()
		if left := t.untilFull(slot, now); left > 0 {
			earliest = min(earliest, timeline.Later(now, left))
			continue
		}
		t.drop(slot)
		dropped++
	}
	t.fullAt[at] = earliest
	return dropped
}

func (t *table[K]) isFull(slot int, now time.Duration) bool {
	return t.limits[:1].IsFull(t.entries[slot].state[:], now) && (len(t.limits) == 1 || t.limits[1:].IsFull(t.furtherStates(slot), now))
}

func (t *table[K]) untilFull(slot int, now time.Duration) time.Duration {
	left := t.limits[:1].UntilFull(t.entries[slot].state[:], now)
	if len(t.limits) > 1 {
		left = max(left, t.limits[1:].UntilFull(t.furtherStates(slot), now))
	}
	return left
}
