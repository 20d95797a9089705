package keyed

import (
	"math"

	"github.com/aa014e13/tokenbucket"
)

// A key whose bucket is full is the same as a key never seen. It is not dropped at once
// but lingers: its slot stays as long as no other key needs it. If the key returns before,
// it takes its slot again, which is faster than to drop it and insert it anew. Otherwise
// it counts as unknown: it has no state, is not in Len, and is neither saved nor changed.
//
// Lingering keys take only room that is left: a table does not grow for them, and does not
// stay large for them.

// lingering is the first state of a key that lingers. No other state is infinite. The further
// states mean nothing then.
var lingering = tokenbucket.State{Balance: math.Inf(1)}

// lingers reports whether the key of a slot lingers.
func (t *table[K]) lingers(slot int) bool {
	return t.entries[slot].state[0].Balance > math.MaxFloat64
}

// revive gives a key that lingers states again. The next sweep finds out when it is full:
// mostly, that is when it is.
func (t *table[K]) revive(slot int, states []tokenbucket.State) {
	t.entries[slot].state[0] = states[0]
	copy(t.furtherStates(slot), states[1:])
	t.hasten(slot)
	t.len++
	t.linger--
}

// dropLingering drops all keys that linger, if they are so many that this is worth looking
// at each group, and reports whether they were.
func (t *table[K]) dropLingering() bool {
	if t.linger == 0 || t.linger < len(t.groups) {
		return false
	}
	for at, g := range t.groups {
		for taken := g.taken(); taken != 0; taken = taken.rest() {
			if slot := at*slotsPerGroup + taken.first(); t.lingers(slot) {
				t.drop(slot)
			}
		}
	}
	return true
}
