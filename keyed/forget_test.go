package keyed_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// A new key without room shares the overflow bucket. Forgetting the key ends debt and
// pauses of that bucket, which would otherwise refuse all new keys for ever.
func TestForgetFillsTheOverflowBucket(t *testing.T) {
	for name, spoil := range map[string]func(b *keyed.Buckets[string]){
		"paused":  func(b *keyed.Buckets[string]) { b.Pause("b", tokenbucket.Never) },
		"charged": func(b *keyed.Buckets[string]) { _ = b.Charge("b", 1e300) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuckets[string](t, new(waittest.Clock), []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(1))
			require.True(t, b.Take("a", 10).OK)
			spoil(b)
			require.False(t, b.Take("b", 1).OK)
			b.Forget("b")
			require.True(t, b.Take("b", 1).OK)
			require.Equal(t, 9.0, b.Tokens("c"), "it is shared")
			require.Equal(t, 0.0, b.Tokens("a"), "known keys are not affected")
			require.Equal(t, 1, b.Len())
		})
	}
}

func TestForgetOfNaNFillsTheOverflowBucket(t *testing.T) {
	b := newBuckets[float64](t, new(waittest.Clock), []tokenbucket.Limit{limit(10, 1)})
	b.Pause(math.NaN(), tokenbucket.Never)
	require.False(t, b.Take(math.NaN(), 1).OK)
	b.Forget(math.NaN())
	require.True(t, b.Take(math.NaN(), 1).OK)
	require.Zero(t, b.Len())
}

// There is room again, so the new key does not share the overflow bucket.
func TestForgetOfANewcomerWithRoomLeavesTheOverflowBucket(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(1))
	require.True(t, b.Take("a", 1).OK)
	require.True(t, b.Take("b", 10).OK, "shared")
	clock.Set(sec)
	b.Forget("b")
	require.True(t, b.Take("b", 10).OK, "its own")
	require.Equal(t, 1.0, b.Tokens("c"), "shared, and refilled for a second")
}
