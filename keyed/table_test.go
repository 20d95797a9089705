package keyed

import (
	"hash/maphash"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// A Go map is the model. Each byte pair is an operation and a key; few keys, so
// that they meet, or many, so that the table grows and shrinks.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 1, 2, 0, 0, 1}, uint8(1))
	f.Add(make([]byte, 600), uint8(7))
	f.Fuzz(func(t *testing.T, ops []byte, spread uint8) {
		tab := table[int]{seed: maphash.MakeSeed(), stride: 2}
		model := map[int]float64{}
		for i := 0; i+1 < len(ops); i += 2 {
			key := int(ops[i+1])
			if spread%2 == 1 {
				key += i << 8
			}
			operate(&tab, model, ops[i]%4, key, float64(i))
			require.Equal(t, len(model), tab.len)
		}
		requireSame(t, &tab, model)
		for key := range model {
			require.True(t, tab.remove(tab.hash(key), key))
			delete(model, key)
		}
		requireSame(t, &tab, model)
		require.LessOrEqual(t, len(tab.slabs), 1)
		require.LessOrEqual(t, len(tab.index), 8)
	})
}

func operate(tab *table[int], model map[int]float64, op byte, key int, value float64) {
	hash := tab.hash(key)
	switch {
	case op < 2: // insert or overwrite
		states := tab.find(hash, key)
		if states == nil {
			states = tab.insert(hash, key)
		}
		states[1].Balance = value
		model[key] = value
	case op == 2:
		tab.remove(hash, key)
		delete(model, key)
	default: // sweep whatever is divisible by 3
		tab.sweep(4, func(states []tokenbucket.State) bool {
			if int(states[1].Balance)%3 != 0 {
				return false
			}
			for key, value := range model {
				if value == states[1].Balance {
					delete(model, key)
				}
			}
			return true
		})
	}
}

func requireSame(t *testing.T, tab *table[int], model map[int]float64) {
	t.Helper()
	require.Equal(t, len(model), tab.len)
	for key, value := range model {
		states := tab.find(tab.hash(key), key)
		require.NotNil(t, states, key)
		require.Equal(t, value, states[1].Balance)
	}
}

// Keys whose hashes begin at the same place stand in one run of the index.
func TestTableKeepsRunsTogether(t *testing.T) {
	tab := table[int]{seed: maphash.MakeSeed(), stride: 2}
	model := map[int]float64{}
	for key := range 5000 {
		operate(&tab, model, 0, key, float64(key))
	}
	for key := 0; key < 5000; key += 3 {
		operate(&tab, model, 2, key, 0)
	}
	requireSame(t, &tab, model)
	for key := range 5000 {
		operate(&tab, model, byte(key%3), key, float64(key))
	}
	requireSame(t, &tab, model)
}

func TestTableSweepsEveryEntry(t *testing.T) {
	tab := table[int]{seed: maphash.MakeSeed(), stride: 2}
	model := map[int]float64{}
	for key := range 1000 {
		operate(&tab, model, 0, key, 1)
	}
	seen := 0
	for range 250 {
		tab.sweep(4, func([]tokenbucket.State) bool { seen++; return false })
	}
	require.Equal(t, 1000, seen)
	for range 250 {
		tab.sweep(4, func([]tokenbucket.State) bool { return true })
	}
	require.Zero(t, tab.len)
}
