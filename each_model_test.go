package tokenbucket_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/race"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// TestCostsForEachLimitMatchTheModel makes a million random calls of Limits and of a
// Bucket, fewer with the race detector. Costs, refills and instants have few binary digits,
// so every answer and every level equals the model's, to the nanosecond and to the last
// bit: nothing is lost or minted.
func TestCostsForEachLimitMatchTheModel(t *testing.T) {
	runs, steps := 100, 10_000
	if testing.Short() || race.Enabled {
		runs, steps = 20, 500
	}
	for seed := range uint64(runs) {
		e := newEachTrial(t, rand.New(rand.NewPCG(seed, 17)))
		for range steps {
			e.step()
		}
		require.False(t, t.Failed(), "seed %d", seed)
	}
}

// eachTrial is the same bucket three times.
type eachTrial struct {
	*testing.T
	random *rand.Rand
	limits Limits
	now    time.Duration

	states []State
	clock  *waittest.Clock
	bucket *tokenbucket.Bucket
	model  *model.Bucket
}

func newEachTrial(t *testing.T, random *rand.Rand) *eachTrial {
	e := &eachTrial{T: t, random: random, clock: new(waittest.Clock)}
	for range 1 + random.IntN(3) {
		e.limits = append(e.limits, Limit{float64(1+random.IntN(200)) / 4, float64(1+random.IntN(100)) / 4})
	}
	e.states = full(e.limits)
	e.bucket = newBucket(t, e.clock, e.limits...)
	e.model = model.New(e.limits...)
	return e
}

func (e *eachTrial) step() {
	e.now += time.Duration(e.random.Int64N(int64(sec)))
	if e.random.IntN(1000) == 0 {
		e.now += time.Hour // all buckets are full, and exact again
	}
	e.clock.Set(e.now)
	costs := e.randomCosts()
	switch e.random.IntN(8) {
	case 0:
		require.NoError(e, e.limits.RefundEach(e.states, e.now, costs...))
		require.NoError(e, e.bucket.RefundEach(costs...))
		e.model.RefundEach(e.now, exact(costs))
	case 1:
		require.NoError(e, e.limits.ChargeEach(e.states, e.now, costs...))
		require.NoError(e, e.bucket.ChargeEach(costs...))
		e.model.ChargeEach(e.now, exact(costs))
	default:
		e.take(costs)
	}
	if e.random.IntN(16) == 0 {
		e.holdLevels()
	}
}

// randomCosts returns costs of which some are 0, some are equal and some are too large.
func (e *eachTrial) randomCosts() []float64 {
	costs := make([]float64, len(e.limits))
	for i, l := range e.limits {
		costs[i] = float64(e.random.IntN(int(l.Capacity*4)+2)) / 4
		if e.random.IntN(4) == 0 {
			costs[i] = costs[0] * float64(e.random.IntN(2))
		}
	}
	return costs
}

func exact(costs []float64) []*big.Rat {
	rats := make([]*big.Rat, len(costs))
	for i, cost := range costs {
		rats[i] = model.Exact(cost)
	}
	return rats
}

// take takes costs three times and compares the answers.
func (e *eachTrial) take(costs []float64) {
	peeked := e.bucket.PeekEach(costs...)
	d := e.bucket.TakeEach(costs...)
	hold(e, peeked, d)
	hold(e, d, e.limits.TakeEach(e.states, e.now, costs...))
	rats := exact(costs)
	*e.model = *e.model.At(e.now)
	wait, ok := e.model.TakeEach(e.now, rats)
	hold(e, ok, d.OK)
	hold(e, wait, d.Wait)
	binding := e.binding(rats)
	hold(e, binding, d.LimitIndex)
	hold(e, e.limits[binding], d.Limit)
}

// hold fails if two answers differ. It is like require.Equal, but many times as fast.
func hold[T comparable](e *eachTrial, want, got T) {
	if want != got {
		e.Helper()
		require.Equal(e, want, got, fmt.Sprintf("%+v at %v", e.limits, e.now))
	}
}

// binding returns the limit with the longest wait, among those with a cost above 0.
func (e *eachTrial) binding(costs []*big.Rat) int {
	binding, longest := 0, time.Duration(-1)
	for i, cost := range costs {
		if wait := e.model.WaitOf(i, cost); cost.Sign() > 0 && wait > longest {
			binding, longest = i, wait
		}
	}
	return binding
}

func (e *eachTrial) holdLevels() {
	later := e.model.At(e.now)
	_, states := e.bucket.State()
	for i, l := range e.limits {
		hold(e, 0, later.Tokens(i).Cmp(exactLevel(l, e.states[i], e.now)))
		hold(e, 0, later.Tokens(i).Cmp(exactLevel(l, states[i], e.now)))
	}
}

// TestOneCostIsTheSameCostForEachLimit compares each method with the one that ends in
// Each.
func TestOneCostIsTheSameCostForEachLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 18))
	for range 2000 {
		limits := Limits{{float64(1 + random.IntN(10)), 1}, {float64(1 + random.IntN(10)), 0.3}}
		one, each := full(limits), full(limits)
		for now := time.Duration(0); now < 20*sec; now += time.Duration(random.Int64N(int64(2 * sec))) {
			cost := float64(random.IntN(30)-2) / 3
			require.Equal(t, limits.Take(one, now, cost), limits.TakeEach(each, now, cost, cost))
			require.Equal(t, one, each)
		}
		require.NoError(t, limits.Refund(one, 0, 0.1))
		require.NoError(t, limits.RefundEach(each, 0, 0.1, 0.1))
		require.NoError(t, limits.Charge(one, 0, 0.7))
		require.NoError(t, limits.ChargeEach(each, 0, slices.Repeat([]float64{0.7}, 2)...))
		require.Equal(t, one, each)
	}
}
