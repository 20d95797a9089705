package keyed

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// attendedUses are all calls that work on the bucket of an attended key.
var attendedUses = map[string]func(b *Buckets[string], key string){
	"TryAcquire":     func(b *Buckets[string], key string) { b.TryAcquire(key, 1) },
	"Take":           func(b *Buckets[string], key string) { b.Take(key, 1) },
	"Wait":           func(b *Buckets[string], key string) { _ = b.Wait(context.Background(), key, 11) },
	"Refund":         func(b *Buckets[string], key string) { _ = b.Refund(key, 1) },
	"Charge":         func(b *Buckets[string], key string) { _ = b.Charge(key, 1) },
	"Pause":          func(b *Buckets[string], key string) { b.Pause(key, time.Minute) },
	"Tokens":         func(b *Buckets[string], key string) { b.Tokens(key) },
	"Waiting":        func(b *Buckets[string], key string) { b.Waiting(key) },
	"Peek":           func(b *Buckets[string], key string) { b.Peek(key, 1) },
	"PeekEach":       func(b *Buckets[string], key string) { b.PeekEach(key, 1) },
	"TakeEach":       func(b *Buckets[string], key string) { b.TakeEach(key, 1) },
	"WaitEach":       func(b *Buckets[string], key string) { _ = b.WaitEach(context.Background(), key, 11) },
	"RefundEach":     func(b *Buckets[string], key string) { _ = b.RefundEach(key, 1) },
	"ChargeEach":     func(b *Buckets[string], key string) { _ = b.ChargeEach(key, 1) },
	"TryAcquireEach": func(b *Buckets[string], key string) { b.TryAcquireEach(key, 1) },
	"Forget":         func(b *Buckets[string], key string) { b.Forget(key) },
}

// The bucket of a key reads the clock when its work begins. Then, and whenever such a
// call reads the clock, the shard is unlocked, so other keys of the shard are served.
func TestWorkOnAnAttendedKeyLeavesItsShardOpen(t *testing.T) {
	for name, use := range attendedUses {
		for key, readings := range map[string]int{"attended": 2, "without room": 4} {
			t.Run(name+"/"+key, func(t *testing.T) {
				clock := new(hookedClock)
				b, err := New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, WithClock(clock), WithMaxKeys(2))
				require.NoError(t, err)
				s := &b.shards[0]
				b.TryAcquire("other", 1)
				b.Pause("attended", time.Hour)
				s.attended["attended"].users.Add(1) // as a waiter does

				read := 0
				var hook func()
				hook = func() {
					require.True(t, s.mu.TryLock())
					s.mu.Unlock()
					b.TryAcquire("other", 0.25)
					read++
					clock.hook = hook
				}
				clock.hook = hook
				use(b, key)
				clock.hook = nil
				require.GreaterOrEqual(t, read, readings, "the key's bucket reads the clock, after the Buckets did")
				require.Equal(t, 9-float64(read)/4, b.Tokens("other"))
			})
		}
	}
}

// A key that is always in use moves back to the table when its pause is over.
func TestAttendedKeysInUseAreRetired(t *testing.T) {
	clock := new(hookedClock)
	b, err := New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, WithClock(clock))
	require.NoError(t, err)
	b.Pause("key", time.Second)
	clock.Set(2 * time.Second)
	for range sweepAtOnce / sweepEachCall {
		b.TryAcquire("key", 0.0625)
	}
	require.Nil(t, b.shardOf(b.shards[0].table.hash("key")).attended)
	require.Equal(t, 0.0, b.Tokens("key"))
}

// One key after the other is paused for the time of a hundred pauses. The keys whose pauses are
// over are retired about as fast as others are paused.
func TestPausedKeysDoNotPileUp(t *testing.T) {
	for name, keys := range map[string]int{"new": 20_000, "known": 5000} {
		clock := new(hookedClock)
		b, err := New[int](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, WithClock(clock))
		require.NoError(t, err)
		b.shards = b.shards[:1]
		if name == "known" {
			for key := range keys {
				b.TryAcquire(key, 10)
			}
		}
		for i := range 20_000 {
			b.Pause(i%keys, 100*time.Millisecond)
			clock.Add(time.Millisecond)
			require.Less(t, len(b.shards[0].attended), 500, name)
		}
	}
}
