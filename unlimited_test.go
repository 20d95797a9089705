package tokenbucket_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestUnlimitedIsALimitLikeOthers(t *testing.T) {
	l := tokenbucket.Unlimited()
	require.Equal(t, Limit{1 << 42, 1e300}, l)
	require.NoError(t, l.Validate())
	text, err := json.Marshal(l)
	require.NoError(t, err)
	var same Limit
	require.NoError(t, json.Unmarshal(text, &same))
	require.Equal(t, l, same)
}

// TestUnlimitedArithmetic begins at both ends of time, where the gain is infinite.
func TestUnlimitedArithmetic(t *testing.T) {
	l := tokenbucket.Unlimited()
	for _, anchor := range []time.Duration{math.MinInt64, -1, 0, 1} {
		for _, balance := range []float64{-0x1p960, -1e20, 0, 1 << 42} {
			for _, elapsed := range []time.Duration{1, sec, math.MaxInt64 - 2} {
				now := anchor + elapsed
				s, d := l.Take(State{balance, anchor}, now, 1<<42)
				require.Equal(t, Decision{OK: true, Limit: l}, d, "%v %v %v", balance, anchor, now)
				require.Equal(t, State{0, now}, s)
				require.Equal(t, 1<<42*1.0, l.Tokens(s, now+1))
				require.Equal(t, time.Duration(1), d.Reset())
			}
		}
	}
	s, d := l.Take(l.Full(0), 0, 1<<42+1)
	require.Equal(t, Never, d.Wait)
	require.Equal(t, l.Full(0), s)
}

func TestUnlimitedBucketAdmitsEverythingAtOnce(t *testing.T) {
	bucket := tokenbucket.MustNew(tokenbucket.Unlimited()) // with the system clock, and without the lock if it can
	for i := range 100_000 {
		_, ok := bucket.TryAcquire(float64(1 + i%1000))
		require.True(t, ok)
	}
	require.NoError(t, bucket.Wait(t.Context(), 1e6))
	require.NoError(t, bucket.WaitEach(t.Context(), 0.5))
	require.True(t, bucket.Take(1e12).OK)
	require.ErrorIs(t, bucket.Wait(t.Context(), 1<<43), tokenbucket.ErrCostExceedsCapacity)
}

func TestUnlimitedBesideALimit(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), tokenbucket.Unlimited(), Limit{2, 1})
	require.True(t, bucket.TakeEach(1e9, 2).OK)
	d := bucket.TakeEach(1e9, 1)
	require.Equal(t, sec, d.Wait)
	require.Equal(t, 1, d.LimitIndex)
}

func TestPauseHoldsUnlimited(t *testing.T) {
	clock := new(waittest.Clock)
	bucket := newBucket(t, clock, tokenbucket.Unlimited())
	require.NoError(t, bucket.Charge(1e30))
	bucket.Pause(sec)
	wait, ok := bucket.TryAcquire(1)
	require.False(t, ok)
	require.Equal(t, sec+1, wait, "refilling begins when the pause ends")
	clock.Set(sec)
	_, ok = bucket.TryAcquire(1)
	require.False(t, ok)
	clock.Set(sec + 1)
	_, ok = bucket.TryAcquire(1 << 42)
	require.True(t, ok)
}
