package waittest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func queue(t *testing.T, new New) {
	play(t, "first come first served, one large among 100", new, limits(50, 10), firstComeFirstServed)
	play(t, "a thousand of mixed costs leave at the exact instants", new, limits(11, 3), aThousandMixedCosts)
	play(t, "no newcomer overtakes the queue", new, limits(10, 1), noneOvertakes)
	play(t, "0 is free behind a queue and in debt", new, limits(1, 1), zeroIsFree)
	play(t, "never blocks until the context ends", new, limits(1, 1e-11), neverBlocks)
}

func firstComeFirstServed(s *scene) {
	s.drain(50)
	at, want := time.Duration(0), map[string]time.Duration{}
	for i := range 100 {
		cost := 1.0
		if i == 40 {
			cost = 50
		}
		name := fmt.Sprint(i)
		s.queue(name, cost)
		at += time.Duration(cost * float64(100*ms))
		want[name] = at
	}
	require.Equal(s.t, 100, s.Waiting())
	require.Equal(s.t, -149.0, s.Tokens())
	s.to(at)
	for name, at := range want {
		s.requireLeft(name, at)
	}
	require.Zero(s.t, s.Waiting())
	require.Zero(s.t, s.Tokens())
}

func aThousandMixedCosts(s *scene) {
	s.drain(11)
	random := rand.New(rand.NewPCG(1, 1))
	thirds, want := int64(0), make([]time.Duration, 1000) // of seconds
	for i := range want {
		cost := 1 + random.Int64N(10)
		thirds += cost
		want[i] = time.Duration((thirds*int64(sec) + 2) / 3) // rounded up
		s.queue(fmt.Sprint(i), float64(cost))
	}
	s.to(want[len(want)-1])
	for i, at := range want {
		s.requireLeft(fmt.Sprint(i), at)
	}
}

func noneOvertakes(s *scene) {
	s.drain(10)
	s.queue("eight", 8)
	s.queue("two", 2)
	s.to(5 * sec)
	s.requireRefused(1, 6*sec) // 11 tokens are asked for in all, 5 are in the bucket
	d := s.Take(1)
	require.Equal(s.t, 6*sec, d.Wait)
	require.Equal(s.t, -5.0, d.Tokens)
	require.Zero(s.t, d.Remaining())
	require.Equal(s.t, 15*sec, d.Reset())
	require.Equal(s.t, -5.0, s.Tokens())
	s.requireRefused(11, never)
	s.requireRefused(math.NaN(), never)
	s.requireRefused(-1, never)
	s.to(8 * sec)
	s.requireLeft("eight", 8*sec)
	s.to(10 * sec)
	s.requireLeft("two", 10*sec)
}

func zeroIsFree(s *scene) {
	s.drain(1)
	require.NoError(s.t, s.Charge(5))
	s.queue("one", 1)
	_, ok := s.TryAcquire(0)
	require.True(s.t, ok)
	require.True(s.t, s.Take(0).OK)
	require.NoError(s.t, s.Wait(background, 0))
	s.to(6 * sec)
	s.requireLeft("one", 6*sec)
}

func neverBlocks(s *scene) {
	s.drain(1)
	cancel := s.queue("one", 1)
	behind := s.queue("behind", 1)
	s.requireRefused(1, never)
	require.Equal(s.t, -2.0, s.Tokens())
	s.to(1000 * time.Hour)
	s.requireWaits("one")
	cancel()
	behind()
	s.requireFailed("one", 1000*time.Hour, context.Canceled)
	s.requireFailed("behind", 1000*time.Hour, context.Canceled)
	require.Zero(s.t, s.Waiting())
}
