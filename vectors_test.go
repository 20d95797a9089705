package tokenbucket_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/vectors"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestVectorsThroughLimit(t *testing.T) {
	for _, v := range vectors.Single() {
		limit := v.Limits[0]
		state := limit.Full(0)
		for i, step := range v.Steps {
			var d Decision
			state, d = limit.Take(state, step.At, step.Cost)
			requireStep(t, step, d, "%s, step %d", v.Name, i)
			require.InDelta(t, step.Tokens, d.Tokens, slack(limit, state), "%s, step %d", v.Name, i)
		}
	}
}

func TestVectorsThroughLimits(t *testing.T) {
	for _, v := range vectors.All() {
		limits, states := Limits(v.Limits), make([]State, len(v.Limits))
		limits.Fill(states, 0)
		for i, step := range v.Steps {
			d := limits.Take(states, step.At, step.Cost)
			requireStep(t, step, d, "%s, step %d", v.Name, i)
			requireLeast(t, step, limits.Tokens(states, step.At), limits, states, "%s, step %d", v.Name, i)
		}
	}
}

func TestVectorsThroughBucket(t *testing.T) {
	for _, v := range vectors.All() {
		mock := new(waittest.Clock)
		taking, trying := newBucket(t, mock, v.Limits...), newBucket(t, mock, v.Limits...)
		for i, step := range v.Steps {
			mock.Set(step.At)
			requireStep(t, step, taking.Take(step.Cost), "%s, step %d", v.Name, i)
			wait, ok := trying.TryAcquire(step.Cost)
			requireStep(t, step, Decision{OK: ok, Wait: wait}, "%s, step %d", v.Name, i)
			_, states := trying.State()
			requireLeast(t, step, trying.Tokens(), v.Limits, states, "%s, step %d", v.Name, i)
		}
	}
}

func requireStep(t *testing.T, step vectors.Step, d Decision, where ...any) {
	t.Helper()
	require.Equal(t, step.OK, d.OK, where...)
	require.Equal(t, step.Wait, d.Wait, where...)
}

func requireLeast(t *testing.T, step vectors.Step, tokens float64, limits Limits, states []State, where ...any) {
	t.Helper()
	most := 0.0
	for i, l := range limits {
		most = max(most, slack(l, states[i]))
	}
	require.InDelta(t, step.Tokens, tokens, most, where...)
}
