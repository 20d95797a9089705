package keyed

import (
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

// While a newcomer looks for room, its shard is open, and somebody else may bring
// the same key.
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
	clock.hook = func() { // read by enter
		clock.hook = func() { // and where room is looked for
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

// Known keys' calls sweep as many keys at once as are due, and those once.
func TestSweptKeysAreNoLongerDue(t *testing.T) {
	b, err := New[int](tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1e-9}, WithClock(new(waittest.Clock)), WithMaxKeys(1))
	require.NoError(t, err)
	b.TryAcquire(0, 1)
	require.Zero(t, b.shards[0].due)
	for call := range 3 * sweepAtOnce / sweepEachCall {
		b.TryAcquire(0, 1)
		require.EqualValues(t, (call+1)*sweepEachCall%sweepAtOnce, b.shards[0].due)
	}
}

// A call that read the clock before a Forget and got the lock after it counts by the
// Forget's reading: the tokens of the time between are not added to a full bucket.
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
