package tokenbucket_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A debt far below -1024 capacities is paid off by the refill, even if the debt grows
// again and again.
func TestDeepDebtRoundsNothingAway(t *testing.T) {
	limit := Limit{Capacity: 1, RefillPerSec: 0.1}
	states := []State{limit.Full(0)}
	require.NoError(t, Limits{limit}.Charge(states, 0, 1e9+1))
	for i := range 100_000 {
		require.NoError(t, Limits{limit}.Charge(states, time.Duration(i+1)*sec, 0.25))
	}
	require.InDelta(t, -1e9-25e3+10e3, limit.Tokens(states[0], 1e5*sec), 1e-6)
	require.NoError(t, Limits{limit}.Charge(states, 1e5*sec, math.MaxFloat64))
	require.NoError(t, Limits{limit}.Charge(states, 1e5*sec, math.MaxFloat64))
	require.Equal(t, -0x1p960, states[0].Balance, "where debts stop growing")
	_, d := limit.Take(states[0], 1e6*sec, 1)
	require.Equal(t, Never, d.Wait)
	require.False(t, math.IsInf(d.Tokens, 0) || math.IsNaN(d.Tokens))
}

func TestRefundAtAnEarlierInstantMintsNothing(t *testing.T) {
	limits := Limits{{10, 1}}
	states := []State{limits[0].Full(10 * sec)}
	_, ok := limits.TryAcquire(states, 10*sec, 10)
	require.True(t, ok)
	require.NoError(t, limits.Refund(states, 0, 10))
	_, ok = limits.TryAcquire(states, 5*sec, 10)
	require.True(t, ok)
	wait, _ := limits.TryAcquire(states, 10*sec, 1)
	require.Equal(t, sec, wait, "nothing was refilled since 10 s")
}

func TestLimitsBind(t *testing.T) {
	limits := Limits{{10, 1}, {2, 0.5}, {2, 0.5}}
	states := make([]State, 3)
	limits.Fill(states, 0)
	d := limits.Take(states, 0, 1)
	require.Equal(t, limits[0], d.Limit, "none would wait next: the first")
	d = limits.Take(states, 0, 1)
	require.Equal(t, limits[1], d.Limit, "the first of those that would make the same cost wait longest")
	require.Zero(t, d.Remaining())
	d = limits.Take(states, 0, 1)
	require.Equal(t, Decision{Wait: 2 * sec, Limit: limits[1], LimitIndex: 1}, d)
	require.Equal(t, 8.0, limits[0].Tokens(states[0], 0), "a refusal by one takes nothing from another")
	d = limits.Take(states, 0, 3)
	require.Equal(t, Never, d.Wait)
	require.Equal(t, limits[1], d.Limit, "the one that can never be met")
	require.Equal(t, Decision{OK: true, LimitIndex: -1}, Limits{}.Take(nil, 0, 0))
	require.Equal(t, Never, Limits{}.Take(nil, 0, 1).Wait)
	require.Zero(t, Limits{}.Tokens(nil, 0), "no limits hold no tokens")
}

func TestLimitsAreFullWhenEachIs(t *testing.T) {
	limits := Limits{{2, 1}, {2, 0.5}}
	states := make([]State, 2)
	limits.Fill(states, 0)
	require.True(t, limits.IsFull(states, 0))
	_, ok := limits.TryAcquire(states, 0, 2)
	require.True(t, ok)
	require.True(t, limits[0].IsFull(states[0], 2*sec))
	require.Equal(t, 3*sec, limits.UntilFull(states, sec))
	require.Zero(t, limits.UntilFull(states, 4*sec))
	require.False(t, limits.IsFull(states, 4*sec-1))
	require.True(t, limits.IsFull(states, 4*sec))
	require.Equal(t, 1.0, limits.Tokens(states, 2*sec), "the least of the levels")
	require.NoError(t, limits.Refund(states, 2*sec, 5))
	require.True(t, limits.IsFull(states, 2*sec))
}

func TestChangedLimitsKeepTheTokens(t *testing.T) {
	limits := Limits{{10, 1}, {10, 1}, {10, 1}, {10, 1}}
	to := Limits{{10, 1}, {100, 50}, {2, 1}, {20, 5}}
	states := []State{{1, 0}, {1, 0}, {-5, 0}, {3, 9 * sec}}
	limits.Change(states, 4*sec, to)
	require.Equal(t, []State{{1, 0}, {5, 4 * sec}, {-1, 4 * sec}, {3, 9 * sec}}, states, "the same, tokens, debt, paused")
	states = []State{{1, 0}, {1, 0}, {1, 0}, {3, 0}}
	limits.Change(states, 60*sec, to)
	require.Equal(t, []State{{1, 0}, {10, 60 * sec}, {2, 60 * sec}, {10, 60 * sec}}, states, "no more than either capacity")
}
