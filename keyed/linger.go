package keyed

import (
	"math"

	"github.com/aa014e13/tokenbucket"
)

// A key whose bucket is full is the same as a key never seen. A sweep does not drop it at
// once: the key lingers. It stays in its slot until another key needs room. If the key is
// used again before that, it takes its slot back, which is faster than dropping it and
// inserting it again. In all other respects a lingering key counts as unknown: it has no
// state, is not in Len, and is neither saved nor changed by SetLimits.
//
// Lingering keys take only slots that are left over: a table neither grows nor stays large
// for them.

// lingering is the first state of each key that lingers. No other state is infinite. The
// further states of such a key have no meaning.
var lingering = tokenbucket.State{Balance: math.Inf(1)}

// lingers reports whether the key of a slot lingers.
func (t *table[K]) lingers(slot int) bool {
	return t.entries[slot].state[0].Balance > math.MaxFloat64
}

// revive gives a lingering key states again. The next sweep finds out when the key is
// full: most keys are full by then.
func (t *table[K]) revive(slot int, states []tokenbucket.State) {
	t.entries[slot].state[0] = states[0]
	copy(t.furtherStates(slot), states[1:])
	t.hasten(slot)
	t.len++
	t.linger--
}

// dropLingering drops all keys that linger, and reports whether it did. If fewer keys
// linger than there are groups, a look at each group is not worth it, and dropLingering
// does nothing.
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
