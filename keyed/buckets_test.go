package keyed

import (
	"context"
	"hash/maphash"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// hookedClock calls a function, once, when it is read.
type hookedClock struct {
	waittest.Clock
	hook func()
}

func (c *hookedClock) Since(t time.Time) time.Duration {
	now := c.Clock.Since(t)
	if hook := c.hook; hook != nil {
		c.hook = nil
		hook()
	}
	return now
}

// While a call for a new key looks for room, its shard is unlocked, and another call may
// insert the same key.
func TestKeyBroughtWhileRoomIsLookedFor(t *testing.T) {
	clock := new(hookedClock)
	b, err := New[int](tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, WithClock(clock), WithMaxKeys(2*lookAtKeys))
	require.NoError(t, err)
	require.Len(t, b.shards, 2)
	for key := range 2 * lookAtKeys {
		b.TryAcquire(key, 1)
	}
	// The other shard is locked when the clock is read there for the first time.
	inShard := func(key int) bool {
		return b.shardOf(maphash.Comparable(b.seed, key)) == &b.shards[b.next.Load()&1]
	}
	known, newcomer := 0, 2*lookAtKeys
	for !inShard(known) {
		known++
	}
	for !inShard(newcomer) {
		newcomer++
	}
	clock.hook = func() { // enter reads the clock
		clock.hook = func() { // lookForRoom reads it
			b.Forget(known)
			_, ok := b.TryAcquire(newcomer, 1)
			require.True(t, ok)
		}
	}
	wait, ok := b.TryAcquire(newcomer, 1)
	require.False(t, ok)
	require.Equal(t, time.Second, wait)
	require.Equal(t, 2*lookAtKeys, b.Len())
}

// While there is no room, calls sweep as many keys at once as are due, and those once.
func TestSweptKeysAreNoLongerDue(t *testing.T) {
	b, err := New[int](tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1e-9}, WithClock(new(waittest.Clock)), WithMaxKeys(1))
	require.NoError(t, err)
	for call := range 3 * sweepAtOnce / sweepEachCall {
		b.TryAcquire(0, 1)
		require.EqualValues(t, (call+1)*sweepEachCall%sweepAtOnce, b.shards[0].due)
	}
}

// A call may read the clock before a Forget and get the lock after it. It counts at the
// reading of the Forget: the refill of the time between is not added to the full bucket.
func TestForgetTakesNoteOfTheTime(t *testing.T) {
	clock := new(hookedClock)
	b, err := New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, WithClock(clock))
	require.NoError(t, err)
	clock.hook = func() {
		clock.Set(5 * time.Second)
		b.Forget("k")
	}
	_, ok := b.TryAcquire("k", 10)
	require.True(t, ok)
	require.Equal(t, 0.0, b.Tokens("k"))
}

// A key that is full again when it returns has its slot still, and takes no new place.
func TestFullKeysThatReturnAreKnown(t *testing.T) {
	const keys = 3000
	clock := new(waittest.Clock)
	b, err := New[int](tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, WithClock(clock))
	require.NoError(t, err)
	slots := map[int]int{}
	for round := range 3 {
		clock.Set(time.Duration(round) * time.Second)
		for key := range keys {
			_, ok := b.TryAcquire(key, 1)
			require.True(t, ok)
			hash := maphash.Comparable(b.seed, key)
			slot := b.shardOf(hash).table.find(hash, key)
			require.True(t, round == 0 || slots[key] == slot)
			slots[key] = slot
		}
		require.EqualValues(t, keys, b.len.Load())
	}
}

// Calls free memory even if no caller calls Len and no key is inserted.
func TestCallsFreeTheMemoryOfFullKeys(t *testing.T) {
	for name, key := range map[string]int{"known": 0, "unknown": -1} {
		clock := new(waittest.Clock)
		b, err := New[int](tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1}, WithClock(clock), WithMaxKeys(255))
		require.NoError(t, err)
		require.Len(t, b.shards, 1)
		b.TryAcquire(0, 500)
		for key := range 250 {
			b.TryAcquire(key, 1)
		}
		clock.Set(10 * time.Second)
		tab := &b.shards[0].table
		for range len(tab.groups) * sweepAtOnce / sweepEachCall {
			b.Tokens(key)
		}
		require.Len(t, tab.groups, fewestGroups, name)
	}
}

// A nil context panics, and no lock stays locked.
func TestNilContextsPanic(t *testing.T) {
	b, err := New[string](tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, WithMaxKeys(1))
	require.NoError(t, err)
	var none context.Context
	for _, wait := range []func(){
		func() { _ = b.Wait(none, "key", 1) },
		func() { _ = b.WaitEach(none, "key", 1) },
	} {
		require.Panics(t, wait)
		require.True(t, b.shards[0].mu.TryLock())
		b.shards[0].mu.Unlock()
	}
}

// A newcomer that takes over the slot of a full key takes its place, too.
func TestPlacesOfFullKeysAreCounted(t *testing.T) {
	clock := new(hookedClock)
	b, err := New[int](tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, WithClock(clock), WithMaxKeys(255))
	require.NoError(t, err)
	for key := range 250 {
		b.TryAcquire(key, 1)
	}
	clock.Set(time.Second)
	s := &b.shards[0]
	for key := 1000; key < 1300; key++ {
		switch key % 4 {
		case 0:
			b.Peek(key, 1)
		case 1:
			b.Pause(key, time.Minute)
		case 2:
			b.TryAcquire(key, 1)
		default:
			b.Forget(key)
		}
		require.EqualValues(t, s.table.len+len(s.attended), b.len.Load())
	}
}

// A call may retire its own key, whose bucket then reads the clock later than the call did. The
// call counts at that later reading: here the key is dropped because it is full by then.
func TestCallThatRetiresItsKeyTakesNoteOfTheTime(t *testing.T) {
	clock := new(hookedClock)
	b, err := New[string](tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, WithClock(clock))
	require.NoError(t, err)
	b.Pause("key", time.Second)
	clock.Set(2 * time.Second)
	s := b.shardOf(maphash.Comparable(b.seed, "key"))
	s.due = sweepAtOnce - sweepEachCall // the next call sweeps
	clock.hook = func() { clock.Set(5 * time.Second) }
	_, ok := b.TryAcquire("key", 3)
	require.True(t, ok)
	require.Equal(t, 0.0, b.Tokens("key"))
}
