package tokenbucket_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/race"
)

// slack is the tolerance of a decision, in tokens.
func slack(l Limit, s State) float64 {
	return max(l.Capacity, math.Abs(s.Balance)) / (1 << 50)
}

// ledger returns the exact sum of a state at an instant, without the cap.
func ledger(l Limit, s State, now time.Duration) *big.Rat {
	elapsed := new(big.Int).Sub(big.NewInt(int64(max(now, s.Anchor))), big.NewInt(int64(s.Anchor)))
	gain := new(big.Rat).SetFrac(elapsed, big.NewInt(1e9))
	return gain.Mul(gain, model.Exact(l.RefillPerSec)).Add(gain, model.Exact(s.Balance))
}

// exactLevel returns the exact level of a state at an instant.
func exactLevel(l Limit, s State, now time.Duration) *big.Rat {
	if level := ledger(l, s, now); level.Cmp(model.Exact(l.Capacity)) < 0 {
		return level
	}
	return model.Exact(l.Capacity)
}

// requireAtMost checks that a - b is not above a number of tokens.
func requireAtMost(t *testing.T, most float64, a, b *big.Rat, where string) {
	t.Helper()
	if diff := new(big.Rat).Sub(a, b); diff.Cmp(model.Exact(most)) > 0 {
		require.Fail(t, "off", "%s: by %s tokens, at most %v are right", where, diff.FloatString(30), most)
	}
}

// trial runs requests, charges and refunds on Limits and on the model, and compares the
// two.
type trial struct {
	t        *testing.T
	limits   Limits
	states   []State
	exact    *model.Bucket
	drift    []float64 // tokens, for each limit: the largest possible sum of rounding errors
	admitted *big.Rat  // minus the refunds
	now      time.Duration
	latest   time.Duration // the latest instant so far
	wait     time.Duration // the wait of the latest refusal
}

func newTrial(t *testing.T, limits ...Limit) *trial {
	states := make([]State, len(limits))
	Limits(limits).Fill(states, 0)
	return &trial{
		t: t, limits: limits, states: states,
		exact: model.New(limits...), drift: make([]float64, len(limits)), admitted: new(big.Rat),
	}
}

// pass lets time pass, or steps back if span is negative: up to the end of time, and to
// some time before the origin.
func (r *trial) pass(span time.Duration) {
	r.now = max(r.now+min(span, math.MaxInt64-max(0, r.now)), -100*year)
	r.latest = max(r.latest, r.now)
}

// take makes a request.
func (r *trial) take(cost float64) {
	before := slices.Clone(r.states)
	d := r.limits.Take(r.states, r.now, cost)
	where := fmt.Sprintf("%+v, %+v, cost %v at %d: %+v", r.limits, before, cost, r.now, d)
	r.holdToEachLimit(before, cost, d, where)
	if !d.OK {
		require.Equal(r.t, before, r.states, "a refusal changes nothing: %s", where)
		r.wait = d.Wait
	}
	if !(cost >= 0 && cost <= math.MaxFloat64) {
		return
	}
	r.holdToModel(before, model.Exact(cost), d, where)
	if d.OK {
		r.exact.Charge(r.now, model.Exact(cost))
		r.admitted.Add(r.admitted, model.Exact(cost))
		r.follow(before, cost, where)
	}
	r.holdToBound(before, where)
}

// holdToEachLimit checks that several limits decide as each of them does alone. After the
// decision, the numbers are those of the first limit with the longest wait.
func (r *trial) holdToEachLimit(before []State, cost float64, d Decision, where string) {
	r.t.Helper()
	longest, binding, next := time.Duration(0), 0, time.Duration(0)
	for i, l := range r.limits {
		longest = max(longest, holdLimit(r.t, l, before[i], r.now, cost, where))
		if _, again := l.Take(r.states[i], r.now, cost); again.Wait > next {
			binding, next = i, again.Wait
		}
	}
	require.Equal(r.t, longest, d.Wait, where)
	require.Equal(r.t, longest == 0, d.OK, where)
	require.Equal(r.t, binding, d.LimitIndex, where)
	require.Equal(r.t, r.limits[binding], d.Limit, where)
	require.Equal(r.t, r.limits[binding].Tokens(r.states[binding], r.now), d.Tokens, where)
}

// holdLimit checks an admission, and that a wait is the least that suffices.
func holdLimit(t *testing.T, l Limit, s State, now time.Duration, cost float64, where string) time.Duration {
	t.Helper()
	after, d := holdAdmission(t, l, s, now, cost, where)
	if d.OK {
		require.Zero(t, d.Wait, where)
		return 0
	}
	require.Equal(t, s, after, where)
	require.Positive(t, d.Wait, where)
	if due := now + d.Wait; d.Wait == Never {
		_, d := holdAdmission(t, l, s, now+Never-max(0, now), cost, where)
		require.False(t, d.OK, where)
	} else if due > now {
		_, d := holdAdmission(t, l, s, due, cost, where)
		require.True(t, d.OK, where)
		_, d = holdAdmission(t, l, s, due-1, cost, where)
		require.False(t, d.OK, where)
	}
	return d.Wait
}

// holdAdmission compares an answer with the exact level of the state. A cost is admitted
// if the level is short by no more than the tolerance. Rounding of the level adds at most
// 7/2 of a unit in the last place, which is less than the tolerance. So a cost that the
// exact level covers is never refused.
func holdAdmission(t *testing.T, l Limit, s State, now time.Duration, cost float64, where string) (State, Decision) {
	t.Helper()
	after, d := l.Take(s, now, cost)
	switch {
	case cost == 0:
		require.True(t, d.OK, where)
	case !(cost > 0 && cost <= l.Capacity):
		require.False(t, d.OK, where)
		require.Equal(t, Never, d.Wait, where)
	case d.OK:
		requireAtMost(t, 2*slack(l, s), model.Exact(cost), exactLevel(l, s, now), where)
	default:
		require.Positive(t, model.Exact(cost).Cmp(exactLevel(l, s, now)), "refused what is there: %s", where)
	}
	return after, d
}

// holdToModel checks that the model decides the same, unless its level is so close to the
// cost that rounding errors may decide. For the model, an instant before the latest grant
// counts as the instant of that grant, which gives the highest possible level.
func (r *trial) holdToModel(before []State, cost *big.Rat, d Decision, where string) {
	r.t.Helper()
	exact := r.exact.At(r.now)
	most := 1.0 // ns
	affordable := true
	for i, l := range r.limits {
		off := r.off(i, before)
		most += off / l.RefillPerSec * 2e9
		if d.OK && cost.Sign() > 0 {
			requireAtMost(r.t, off, cost, exact.Tokens(i), "admitted beyond the exact level: "+where)
		}
		left := new(big.Rat).Sub(exact.Tokens(i), cost)
		affordable = affordable && left.Cmp(model.Exact(off)) > 0
	}
	if r.now < r.latest {
		return
	}
	if !d.OK {
		require.False(r.t, affordable, "refused below the exact level: %s", where)
		require.LessOrEqual(r.t, math.Abs(float64(exact.Wait(cost)-d.Wait)), most, where)
	}
}

// off returns how much the model and the library may differ in one limit, in tokens.
func (r *trial) off(i int, states []State) float64 {
	return r.drift[i] + 2*slack(r.limits[i], states[i])
}

// follow checks that the states lost exactly the tokens that were taken.
func (r *trial) follow(before []State, taken float64, where string) {
	r.t.Helper()
	for i, l := range r.limits {
		rounding := max(slack(l, before[i]), slack(l, r.states[i]))
		want := exactLevel(l, before[i], r.now)
		want.Sub(want, model.Exact(taken))
		if capacity := model.Exact(l.Capacity); want.Cmp(capacity) > 0 {
			want = capacity
		}
		got := exactLevel(l, r.states[i], r.now)
		requireAtMost(r.t, rounding, want, got, "lost: "+where)
		requireAtMost(r.t, rounding, got, want, "minted: "+where)
		if r.states[i].Anchor == before[i].Anchor {
			rounding /= 8 // half a unit in the last place, for one subtraction
		}
		r.drift[i] += rounding
	}
}

// holdToBound checks that no more than capacity + refill * time has been admitted.
func (r *trial) holdToBound(before []State, where string) {
	r.t.Helper()
	for i, l := range r.limits {
		bound := new(big.Rat).SetFrac(big.NewInt(int64(r.latest)), big.NewInt(1e9))
		bound.Mul(bound, model.Exact(l.RefillPerSec)).Add(bound, model.Exact(l.Capacity))
		requireAtMost(r.t, r.off(i, before), r.admitted, bound, "more than capacity + refill * time: "+where)
	}
}

// give charges tokens at the latest instant, or refunds them if the number is negative.
func (r *trial) give(tokens float64) {
	r.now = r.latest
	before := slices.Clone(r.states)
	where := fmt.Sprintf("%+v, %+v, %v given back at %d", r.limits, before, tokens, r.now)
	if tokens < 0 {
		require.NoError(r.t, r.limits.Charge(r.states, r.now, -tokens))
		r.exact.Charge(r.now, model.Exact(-tokens))
	} else {
		require.NoError(r.t, r.limits.Refund(r.states, r.now, tokens))
		r.exact.Refund(r.now, model.Exact(tokens))
		r.admitted.Sub(r.admitted, model.Exact(tokens))
	}
	r.follow(before, -tokens, where)
}

// run makes one move for each byte: some time passes, possibly backwards, and then a
// request is made, or now and then a charge or a refund.
func (r *trial) run(cost float64, span time.Duration, moves []byte) {
	l := r.limits[0]
	for _, m := range moves {
		fill := time.Duration(min(l.Capacity/l.RefillPerSec*1e9, float64(100*year)))
		wait := r.wait % Never // 0 instead of Never
		r.pass([]time.Duration{0, 1, span, -span, wait, wait - 1, fill / 3, fill * 2}[m&7])
		tokens := []float64{cost, l.Capacity, l.Capacity / 3, 1, 0, cost / 7, l.Capacity * 0.7, l.Capacity * 2}[m>>3&7]
		switch {
		case m >= 248:
			r.give(-l.Capacity * float64(m&7) * 1000)
		case m >= 240:
			r.give(l.Capacity * float64(m&7) * 1000 / 3)
		default:
			r.take(tokens)
		}
	}
}

func randomMoves(random *rand.Rand, n int) []byte {
	moves := make([]byte, n)
	for i := range moves {
		moves[i] = byte(random.IntN(256))
	}
	return moves
}

var (
	extremeCapacities = []float64{1e-300, 0.3, 1, 1e9, 1 << 42}
	extremeRefills    = []float64{5e-324, 1e-11, 1. / 3, 1e9, 1e300}
	extremeCosts      = []float64{0.1, 1e-301, 1 << 41, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}
	extremeSpans      = []time.Duration{7, sec, 150 * year}
)

func TestExtremes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, capacity := range extremeCapacities {
		for _, refill := range extremeRefills {
			for _, cost := range extremeCosts {
				for _, span := range extremeSpans {
					newTrial(t, Limit{capacity, refill}).run(cost, span, randomMoves(random, race.Fewer(20)))
				}
			}
		}
	}
}

func TestRandomSequencesMatchTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range race.Fewer(300) {
		limits := make([]Limit, 1+i%3)
		for i := range limits {
			limits[i] = Limit{math.Exp(random.Float64()*12 - 2), math.Exp(random.Float64()*16 - 8)}
		}
		newTrial(t, limits...).run(1, time.Duration(random.Int64N(int64(time.Hour))), randomMoves(random, 40))
	}
}

// The state is anchored again at every grant for centuries, each time with a rounding.
func TestSlowSequencesMatchTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range race.Fewer(100) {
		capacity := math.Exp(random.Float64() * 20)
		limit := Limit{capacity, capacity / (5 + random.Float64()*1e8)}
		newTrial(t, limit).run(capacity*random.Float64(), 20*time.Hour, randomMoves(random, 100))
	}
}

func FuzzTake(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, capacity := range extremeCapacities {
		for _, refill := range extremeRefills {
			i := random.IntN(len(extremeCosts))
			f.Add(capacity, refill, 0.0, 0.0, extremeCosts[i], int64(extremeSpans[i%3]), randomMoves(random, 20))
			f.Add(7.0, 0.5, capacity, refill, extremeCosts[i], int64(extremeSpans[i%3]), randomMoves(random, 20))
		}
	}
	f.Fuzz(func(t *testing.T, capacity, refill, capacity2, refill2, cost float64, span int64, moves []byte) {
		limits := Limits{{capacity, refill}, {capacity2, refill2}}
		if capacity2 == 0 {
			limits = limits[:1]
		}
		for _, l := range limits {
			if l.Validate() != nil || l.Capacity < 1e-300 || l.RefillPerSec > 1e300 {
				t.Skip()
			}
		}
		newTrial(t, limits...).run(cost, time.Duration(span), moves[:min(len(moves), 64)])
	})
}
