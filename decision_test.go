package tokenbucket_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/race"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// randomTake makes a request in the state of a busy ledger, sometimes with a deep
// balance.
func randomTake(random *rand.Rand) (Limit, State, time.Duration, Decision) {
	limit := Limit{math.Exp(random.Float64() * 12), math.Exp(random.Float64()*16 - 8)}
	state := State{Balance: limit.Capacity - math.Exp(random.Float64()*25)*limit.Capacity}
	toLevel := (random.Float64()*limit.Capacity - state.Balance) / limit.RefillPerSec * 1e9
	now := time.Duration(min(toLevel, 1e18))
	state, d := limit.Take(state, now, limit.Capacity*random.Float64())
	return limit, state, now, d
}

func TestRemainingIsTheLargestWholeCost(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for range 20_000 {
		limit, state, now, d := randomTake(random)
		n := float64(d.Remaining())
		_, most := limit.Take(state, now, n)
		require.True(t, most.OK, "%+v %+v", state, d)
		_, more := limit.Take(state, now, n+1)
		require.False(t, more.OK, "%+v %+v", state, d)
	}
	require.Equal(t, int64(0), Decision{Tokens: -3, Limit: Limit{1, 1}}.Remaining())
	require.Equal(t, int64(math.MaxInt64), Decision{Tokens: 1e300, Limit: Limit{1, 1}}.Remaining())
	require.Zero(t, Decision{Tokens: math.NaN()}.Remaining())
}

// In such a deep balance many tokens are within the tolerance.
func TestRemainingIsTheLargestWholeCostInDeepDebt(t *testing.T) {
	random := rand.New(rand.NewPCG(27, 28))
	for range 20_000 {
		limit := Limit{math.Exp2(random.Float64() * 42), math.Exp(random.Float64() * 40)}
		state := State{Balance: -limit.Capacity * math.Exp(random.Float64()*40)}
		toLevel := (random.Float64()*limit.Capacity - state.Balance) / limit.RefillPerSec * 1e9
		now := time.Duration(min(toLevel, 1e18))
		n := math.Floor(max(0, limit.Tokens(state, now)))
		_, most := limit.Take(state, now, n)
		require.True(t, most.OK, "%+v %+v at %d: %v", limit, state, now, n)
		_, more := limit.Take(state, now, n+1)
		require.False(t, more.OK, "%+v %+v at %d: %v", limit, state, now, n)
	}
	require.Less(t, Limit{1, 1}.Tokens(State{Balance: -0x1p960}, 0), -1e288)
}

// 4.1 minus three times 0.7 is 2, minus a rounding error.
func TestRemainingCountsWhatRoundingTook(t *testing.T) {
	limit := Limit{Capacity: 4.1, RefillPerSec: 0.1}
	state, d := limit.Full(0), Decision{}
	for range 3 {
		state, d = limit.Take(state, 0, 0.7)
	}
	require.Less(t, state.Balance, 2.0)
	require.Equal(t, int64(2), d.Remaining())
	require.Equal(t, 2.0, d.Tokens)
	_, d = limit.Take(state, 0, 2)
	require.True(t, d.OK)

	almost := Limit{math.Nextafter(3, 0), 1}
	_, d = almost.Take(almost.Full(0), 0, 0)
	require.Equal(t, int64(2), d.Remaining(), "3 is above the capacity")
}

// gofiber/limiter#1
func TestRemainingIsWholeAndNeverNegative(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{2, 1})
	for _, want := range []int64{1, 0, 0} {
		require.Equal(t, want, bucket.Take(1).Remaining())
	}
}

func TestRemainingCountsTheLimitsThatDoNotBind(t *testing.T) {
	limits, states := Limits{{10, 1}, {3, 100}}, make([]State, 2)
	limits.Fill(states, 0)
	for _, cost := range []float64{0, 1, 2} {
		d := limits.Take(states, 0, cost)
		require.True(t, d.OK)
		_, ok := limits.TryAcquire(append([]State(nil), states...), 0, float64(d.Remaining()))
		require.True(t, ok, cost)
		_, ok = limits.TryAcquire(append([]State(nil), states...), 0, float64(d.Remaining()+1))
		require.False(t, ok, cost)
	}
}

func TestResetIsWhenTheBucketIsFull(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range race.Fewer(20_000) {
		limit, state, now, d := randomTake(random)
		reset := d.Reset()
		if reset > Never-now {
			continue // beyond the end of time
		}
		where := fmt.Sprintf("%+v %+v %+v", limit, state, d)
		full := model.Exact(limit.Capacity)
		requireAtMost(t, 2*slack(limit, state), full, ledger(limit, state, now+reset), "not full: "+where)
		if reset > 0 {
			requireAtMost(t, 2*slack(limit, state), ledger(limit, state, now+reset-1), full, "full before: "+where)
		}
	}
	_, d := Limit{10, 3}.Take(Limit{10, 3}.Full(0), 0, 10)
	require.Equal(t, time.Duration(3333333334), d.Reset())
	_, d = Limit{10, 3}.Take(Limit{10, 3}.Full(0), 0, 0)
	require.Zero(t, d.Reset())
	_, d = Limit{1, 1e-11}.Take(State{}, 0, 1)
	require.Equal(t, Never, d.Reset())
}
