package tokenbucket_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// perMinute allows 3 requests and 1000 tokens a minute.
var perMinute = Limits{tokenbucket.PerMinute(3), tokenbucket.PerMinute(1000)}

func full(limits Limits) []State {
	states := make([]State, len(limits))
	limits.Fill(states, 0)
	return states
}

// levels returns the tokens of each limit.
func levels(limits Limits, states []State, now time.Duration) []float64 {
	tokens := make([]float64, len(limits))
	for i, l := range limits {
		tokens[i] = l.Tokens(states[i], now)
	}
	return tokens
}

func TestOneCostForEachLimit(t *testing.T) {
	states := full(perMinute)
	for range 2 {
		require.True(t, perMinute.TakeEach(states, 0, 1, 400).OK)
	}
	d := perMinute.TakeEach(states, 0, 1, 400)
	require.Equal(t, Decision{Wait: 12 * sec, Tokens: 200, Limit: perMinute[1], LimitIndex: 1}, d)
	require.Equal(t, []float64{1, 200}, levels(perMinute, states, 0), "a refusal takes nothing from either")

	other := append([]State(nil), states...)
	d = perMinute.TakeEach(other, 0, 0, 200)
	require.Equal(t, Decision{OK: true, Tokens: 0, Limit: perMinute[1], LimitIndex: 1}, d)
	require.Equal(t, []float64{1, 0}, levels(perMinute, other, 0))

	require.NoError(t, perMinute.RefundEach(states, 0, 0, 250))
	require.True(t, perMinute.TakeEach(states, 0, 1, 400).OK)
	require.Equal(t, []float64{0, 50}, levels(perMinute, states, 0))
}

func TestConcurrentEstimatesSpendNoMoreThanThereIs(t *testing.T) { // litellm#18730, litellm#29193
	limits := Limits{tokenbucket.PerMinute(100), tokenbucket.PerMinute(100)}
	states := full(limits)
	for _, row := range []struct {
		tokens float64
		wait   time.Duration
	}{{58, 0}, {80, 22800 * ms}, {175, Never}, {175, Never}, {175, Never}, {1024, Never}} {
		wait, ok := limits.TryAcquireEach(states, 0, 1, row.tokens)
		require.Equal(t, row.wait, wait, row.tokens)
		require.Equal(t, wait == 0, ok)
	}
	require.Equal(t, []float64{99, 42}, levels(limits, states, 0))

	bucket := tokenbucket.MustNew(limits[0], tokenbucket.WithLimit(limits[1]))
	require.ErrorIs(t, bucket.WaitEach(t.Context(), 1, 1024), tokenbucket.ErrCostExceedsCapacity)
}

func TestLimitIndexOfDifferentCosts(t *testing.T) {
	limits := Limits{{10, 1}, {10, 1}, {10, 1}}
	for _, row := range []struct {
		costs []float64
		index int
		name  string
	}{
		{[]float64{1, 2, 3}, 0, "nothing waits next: the first that is asked"},
		{[]float64{0, 2, 3}, 1, "the first is not asked"},
		{[]float64{4, 5, 6}, 2, "only the last waits next"},
		{[]float64{6, 6, 6}, 0, "a tie"},
		{[]float64{0, 0, 0}, 0, "none is asked"},
		{[]float64{1, 11, 12}, 1, "never, the first of two"},
		{[]float64{-1, 11, 1}, 0, "invalid"},
		{[]float64{1, 1, math.NaN()}, 2, "not a number"},
	} {
		d := limits.TakeEach(full(limits), 0, row.costs...)
		require.Equal(t, row.index, d.LimitIndex, row.name)
		require.Equal(t, limits[row.index], d.Limit, row.name)
	}
}

func TestWrongNumberOfCosts(t *testing.T) {
	states := full(perMinute)
	for _, costs := range [][]float64{nil, {1}, {1, 2, 3}, {-1}} {
		wait, ok := perMinute.TryAcquireEach(states, 0, costs...)
		require.Equal(t, Never, wait)
		require.False(t, ok)
		require.Equal(t, Decision{Wait: Never, LimitIndex: -1}, perMinute.TakeEach(states, 0, costs...))
		require.ErrorIs(t, perMinute.RefundEach(states, 0, costs...), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, perMinute.ChargeEach(states, 0, costs...), tokenbucket.ErrInvalidCost)
	}
	require.EqualError(t, perMinute.ChargeEach(states, 0, 1),
		"tokenbucket: invalid cost: 1 costs for 2 limits: pass one for each, in the order of Limits")
	require.Equal(t, full(perMinute), states)
}

func TestOneInvalidCostChangesNothing(t *testing.T) {
	states := full(perMinute)
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, perMinute.RefundEach(states, 0, 1, cost), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, perMinute.ChargeEach(states, 0, 1, cost), tokenbucket.ErrInvalidCost)
		require.Equal(t, Never, perMinute.TakeEach(states, 0, 1, cost).Wait)
	}
	require.Equal(t, full(perMinute), states)
	require.NoError(t, perMinute.ChargeEach(states, 0, 1, 1500))
	require.Equal(t, []float64{2, -500}, levels(perMinute, states, 0))
}

func TestRemainingOfDifferentCostsIsInOneUnit(t *testing.T) {
	d := perMinute.TakeEach(full(perMinute), 0, 1, 700)
	require.Equal(t, 1, d.LimitIndex)
	require.EqualValues(t, 300, d.Remaining(), "tokens, although 2 requests are fewer")
	d = perMinute.TakeEach(full(perMinute), 0, 2, 2)
	require.Equal(t, 0, d.LimitIndex)
	require.EqualValues(t, 1, d.Remaining())
}
