package keyed

import (
	"hash/maphash"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// A value stands for the states of two limits with different balances; 0 is full.
var tableLimits = tokenbucket.Limits{{Capacity: 1, RefillPerSec: 1}, {Capacity: 1, RefillPerSec: 1}}

func statesOf(value float64) []tokenbucket.State {
	if value == 0 {
		return []tokenbucket.State{{Balance: 1}, {Balance: 1}}
	}
	return []tokenbucket.State{{Balance: 1}, {Balance: -value}}
}

func newTable() *table[int] {
	return &table[int]{seed: maphash.MakeSeed(), limits: tableLimits}
}

// A Go map is the model. Each pair of bytes is an operation and a key. There are few
// keys, so that they collide, or many, so that the table grows and shrinks.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 1, 2, 0, 0, 1}, uint8(1))
	f.Add(make([]byte, 600), uint8(7))
	f.Add([]byte("1220070YB0CB!ZC8"), uint8('_')) // sweeps twice
	f.Fuzz(func(t *testing.T, ops []byte, spread uint8) {
		tab, model := newTable(), map[int]float64{}
		for i := 0; i+1 < len(ops); i += 2 {
			key := int(ops[i+1])
			if spread%2 == 1 {
				key += i << 8
			}
			operate(t, tab, model, ops[i]%4, key, float64(i%6))
			require.Equal(t, len(model), tab.len)
		}
		requireSame(t, tab, model)
		for key := range model {
			require.True(t, tab.remove(tab.hash(key), key))
			require.False(t, tab.remove(tab.hash(key), key))
			delete(model, key)
		}
		requireSame(t, tab, model)
		require.LessOrEqual(t, len(tab.groups), fewestGroups)
	})
}

func operate(t *testing.T, tab *table[int], model map[int]float64, op byte, key int, value float64) {
	hash := tab.hash(key)
	switch {
	case op < 2: // insert or overwrite
		switch slot := tab.find(hash, key); {
		case slot >= 0:
			overwrite(tab, slot, value)
		default:
			add(t, tab, model, key, value)
		}
		model[key] = value
	case op == 2:
		tab.remove(hash, key)
		delete(model, key)
	default: // sweep away every key whose value is 0
		tab.sweep(tab.len, 0)
		dropFull(model)
	}
}

// add inserts a key, or lets it take over the slot of a full one.
func add(t *testing.T, tab *table[int], model map[int]float64, key int, value float64) {
	hash := tab.hash(key)
	if slot := tab.fullSlot(hash, 0); slot >= 0 {
		full := tab.entries[slot].key
		require.Zero(t, model[full])
		delete(model, full)
		tab.takeOver(slot, hash, key, statesOf(value))
	} else if tab.insert(hash, key, statesOf(value), 0) > 0 {
		dropFull(model)
	}
}

func dropFull(model map[int]float64) {
	maps.DeleteFunc(model, func(_ int, value float64) bool { return value == 0 })
}

func overwrite(tab *table[int], slot int, value float64) {
	states := tab.load(slot, make([]tokenbucket.State, 2))
	copy(states, statesOf(value))
	tab.store(slot, states)
	tab.hasten(slot)
}

func requireSame(t *testing.T, tab *table[int], model map[int]float64) {
	t.Helper()
	require.Equal(t, len(model), tab.len)
	states := make([]tokenbucket.State, 2)
	for key, value := range model {
		slot := tab.find(tab.hash(key), key)
		require.GreaterOrEqual(t, slot, 0, key)
		require.Equal(t, statesOf(value), tab.load(slot, states))
	}
	requireCounts(t, tab)
}

// requireCounts counts again how many keys passed by each group, and checks that free
// slots are empty.
func requireCounts(t *testing.T, tab *table[int]) {
	t.Helper()
	passed := make([]int, len(tab.groups))
	for at, g := range tab.groups {
		for taken := g.taken(); taken != 0; taken = taken.rest() {
			key := tab.entries[at*slotsPerGroup+taken.first()].key
			home := tab.home(tab.hash(key)) / slotsPerGroup
			require.Equal(t, home == at, g.atHome().has(taken.first()))
			for by := home; by != at; by = tab.next(by) {
				passed[by]++
			}
		}
	}
	for at, g := range tab.groups {
		require.Equal(t, passed[at], int(g>>(8*slotsPerGroup)), "group %d", at)
		for left := g.tagged(free); left != 0; left = left.rest() {
			require.Zero(t, tab.entries[at*slotsPerGroup+left.first()], "nothing is kept alive")
		}
	}
}

func TestTableGrowsAndShrinks(t *testing.T) {
	tab, model := newTable(), map[int]float64{}
	for key := range 5000 {
		operate(t, tab, model, 0, key, float64(key%5))
	}
	requireSame(t, tab, model)
	require.LessOrEqual(t, len(tab.entries), 5000*3/2)
	for key := 0; key < 5000; key += 3 {
		operate(t, tab, model, 2, key, 0)
	}
	requireSame(t, tab, model)
	for key := range 5000 {
		operate(t, tab, model, byte(key%3), key, float64(key%5))
	}
	requireSame(t, tab, model)
	for key := range 4990 {
		operate(t, tab, model, 2, key, 0)
	}
	requireSame(t, tab, model)
	require.Equal(t, fewestGroups, len(tab.groups))
}

// Full keys make room, so that the table grows only if they are few.
func TestFullKeysMakeRoomInTheTable(t *testing.T) {
	const most = mostPerGroup * fewestGroups
	for _, c := range []struct{ full, groups int }{{0, 2 * fewestGroups}, {fewestGroups, 2 * fewestGroups}, {fewestGroups + 1, fewestGroups}} {
		tab := newTable()
		for key := range most {
			value := 1.0
			if key < c.full {
				value = 0
			}
			require.Zero(t, tab.insert(tab.hash(key), key, statesOf(value), 0))
		}
		require.Equal(t, c.full, tab.insert(tab.hash(most), most, statesOf(1), 0))
		require.Len(t, tab.groups, c.groups)
		require.Equal(t, most+1-c.full, tab.len)
	}
}

// Keys with one hash pass by one group after another, around the end of the table. There
// are more of them than a group can count.
func TestTableKeepsKeysOfOneHash(t *testing.T) {
	for _, hash := range []uint64{0, 1<<56 - 1, 0xabcdef << 20} {
		tab := newTable()
		tab.rebuild(100)
		for key := range 500 {
			tab.insert(hash, key, statesOf(1), 0)
		}
		for key := range 500 {
			require.GreaterOrEqual(t, tab.find(hash, key), 0, key)
		}
		require.Less(t, tab.find(hash, 500), 0)
		for key := range 400 {
			tab.dropFrom(tab.home(hash)/slotsPerGroup, tab.find(hash, key))
			require.GreaterOrEqual(t, tab.find(hash, 499), 0)
		}
	}
}

// A search ends even if keys have passed by every group.
func TestTableSearchEnds(t *testing.T) {
	tab := newTable()
	tab.rebuild(2)
	first, second := uint64(1), uint64(1<<56-1)
	for key := range 8 {
		tab.insert(first, key, statesOf(1), 0)
	}
	for key := range 4 {
		tab.insert(second, 100+key, statesOf(1), 0)
	}
	for key := range 6 {
		tab.dropFrom(tab.home(first)/slotsPerGroup, tab.find(first, key))
	}
	for key := range 4 {
		tab.insert(second, 200+key, statesOf(1), 0)
	}
	require.True(t, tab.groups[0].isPassed() && tab.groups[1].isPassed())
	require.Less(t, tab.find(first, 300), 0)
	require.Less(t, tab.find(second, 300), 0)
}

func TestTableSweepsEveryKey(t *testing.T) {
	tab, model := newTable(), map[int]float64{}
	for key := range 1000 {
		operate(t, tab, model, 0, key, 1)
	}
	dropped := 0
	for range 1000/4 + 1 {
		dropped += tab.sweep(4, 0)
	}
	require.Zero(t, dropped)
	for range 1000/4 + 1 {
		tab.sweep(4, 10*time.Second)
	}
	require.Zero(t, tab.len)
}

// A sweep skips a group until one of its keys may be full, and not for longer.
func TestTableSweepsAKeyTheInstantItIsFull(t *testing.T) {
	tab := newTable()
	tab.rebuild(1)
	for key, value := range []float64{2, 1, 1, 3} { // full value + 1 seconds later
		tab.insert(tab.hash(key), key, statesOf(value), 0)
		require.Zero(t, tab.sweep(tab.len, 0))
	}
	for _, c := range []struct {
		now     time.Duration
		dropped int
	}{{2*time.Second - 1, 0}, {2 * time.Second, 2}, {3*time.Second - 1, 0}, {3 * time.Second, 1}} {
		require.Equal(t, c.dropped, tab.sweep(tab.len, c.now), c.now)
	}
	slot := tab.find(tab.hash(3), 3)
	overwrite(tab, slot, 0)
	require.Equal(t, 1, tab.sweep(tab.len, 3*time.Second))
}

// A sweep continues at the same place when the table is rebuilt.
func TestTableSweepsOnWhileItGrows(t *testing.T) {
	tab, model := newTable(), map[int]float64{}
	for key := range 1000 {
		operate(t, tab, model, 0, key, 0)
	}
	for key := range 4000 {
		tab.sweep(4, 0)
		operate(t, tab, model, 0, 1000+key, 1)
	}
	require.Equal(t, 4000, tab.len)

	tab.rebuild(1000)
	tab.cursor = 600
	for _, c := range []struct{ size, cursor int }{{1250, 750}, {900, 540}} {
		tab.rebuild(c.size)
		require.Equal(t, c.cursor, tab.cursor, c.size)
	}
}

func TestMostKeysAreWhereTheirHashesSay(t *testing.T) {
	tab, there := newTable(), 0
	for key := range 5000 {
		tab.insert(tab.hash(key), key, statesOf(1), 0)
	}
	for key := range 5000 {
		if hash := tab.hash(key); tab.find(hash, key) == tab.home(hash) {
			there++
		}
	}
	require.Greater(t, there, 5000/2)
}

func TestTags(t *testing.T) {
	for hash := range uint64(256) {
		tag := tagOf(hash)
		require.NotZero(t, tag)
		require.Zero(t, tag&displaced)
		g := 200*passedBy | tag<<16 | 0x01<<8 | 0x80<<32
		require.Equal(t, 2, (g &^ (0xff00 | 0xff<<32)).tagged(tag).first())
		require.Equal(t, []group{0, 1, tag, 0}, []group{g.tag(0), g.tag(1), g.tag(2), g.tag(6)})
		require.Equal(t, slots(0x80_00_80_80_00), g.taken())
	}
}
