package keyed_test

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// forgottenKeys returns Buckets that have forgotten n keys, 0 and upwards.
func forgottenKeys(t *testing.T, n int, opts ...keyed.Option) (*keyed.Buckets[int], *waittest.Clock) {
	clock := new(waittest.Clock)
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(2, 1), limit(5, 2)}, opts...)
	for key := range n {
		require.True(t, b.Take(key, 1).OK)
	}
	clock.Set(sec)
	for key := 0; b.Len() > 0; key-- {
		b.Tokens(key - 1)
	}
	return b, clock
}

func TestFullKeysAreAsIfNeverSeen(t *testing.T) {
	b, _ := forgottenKeys(t, 100)
	require.Empty(t, maps.Collect(b.All()))
	require.NoError(t, b.SetLimits(limit(3, 1), limit(4, 1)))
	for key := range 100 {
		require.Equal(t, 3.0, b.Tokens(key))
		b.Forget(key)
		require.Zero(t, b.Waiting(key))
		require.NoError(t, b.Refund(key, 1))
		require.Equal(t, 2.0, b.Peek(key, 1).Tokens)
		require.True(t, b.Take(key, 0).OK)
		require.False(t, b.Take(key, 4).OK)
	}
	require.Zero(t, b.Len())
	require.True(t, b.Take(1, 3).OK)
	require.NoError(t, b.Charge(2, 5))
	b.Pause(3, sec)
	require.Equal(t, 3, b.Len())
	require.Equal(t, map[int][]tokenbucket.State{
		1: {{Balance: 0, Anchor: sec}, {Balance: 1, Anchor: sec}},
		2: {{Balance: -2, Anchor: sec}, {Balance: -1, Anchor: sec}},
		3: {{Anchor: 2 * sec}, {Anchor: 2 * sec}},
	}, maps.Collect(b.All()))
	for key := range 4 {
		b.Forget(key)
		require.Equal(t, 3.0, b.Tokens(key))
	}
	require.Zero(t, b.Len())
}

func TestForgottenKeysThatReturnAreBounded(t *testing.T) {
	b, _ := forgottenKeys(t, 50, keyed.WithMaxKeys(50))
	for key := range 50 {
		require.True(t, b.Take(100+key, 2).OK)
	}
	require.Equal(t, 50, b.Len())
	require.True(t, b.Take(0, 2).OK, "from the overflow bucket")
	require.False(t, b.Take(1, 1).OK)
	require.Equal(t, 50, b.Len())
}

// Keys return when they are full or nearly full, and clients come and go. Each key is
// compared with a Bucket.
func TestReturningKeysAreHeldToAModel(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 5))
		clock := new(waittest.Clock)
		limits := []tokenbucket.Limit{limit(10, 10), limit(20, 3)}[:1+seed%2]
		b := newBuckets[int](t, clock, limits, keyed.WithMaxKeys(1000))
		model := map[int]*tokenbucket.Bucket{}
		first := 0
		for i := range 20_000 {
			if i%5000 == 0 {
				first += 200
			}
			clock.Set(time.Duration(i) * sec / 1000)
			key := first + i%400
			if model[key] == nil {
				model[key] = newModel(t, clock, limits)
			}
			same(t, b, model[key], key, random)
		}
	}
}

// Len counts at the present, also if the last call came long before.
func TestLenForgetsTheKeysThatAreFullNow(t *testing.T) {
	for _, n := range []int{1, 100, 10_000} {
		clock := new(waittest.Clock)
		b, err := keyed.New[int](tokenbucket.PerSecond(1), keyed.WithClock(clock))
		require.NoError(t, err)
		for key := range n {
			require.True(t, b.Take(key, 1).OK)
		}
		require.Equal(t, n, b.Len(), "none is full yet")
		for range 2 { // calls for keys that are known
			for key := range n {
				b.Take(key, 1)
			}
		}
		clock.Set(time.Hour)
		require.Zero(t, b.Len(), n)
	}
}
