package tokenbucket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/vectors"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

type (
	Limit    = tokenbucket.Limit
	Limits   = tokenbucket.Limits
	State    = tokenbucket.State
	Decision = tokenbucket.Decision
)

const (
	Never = tokenbucket.Never
	ms    = time.Millisecond
	sec   = time.Second
	year  = 365 * 24 * time.Hour
)

func newBucket(t testing.TB, clock tokenbucket.Clock, limits ...Limit) *tokenbucket.Bucket {
	t.Helper()
	opts := []tokenbucket.Option{tokenbucket.WithClock(clock)}
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	bucket, err := tokenbucket.New(limits[0], opts...)
	require.NoError(t, err)
	return bucket
}

// The exact vectors.

// slack is the tolerance in tokens: what a decision may be off.
func slack(l Limit, s State) float64 {
	return max(l.Capacity, math.Abs(s.Balance)) / (1 << 50)
}

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

// The arithmetic against the exact model.

// ledger is what a state comes to at an instant, cap or no cap, exactly.
func ledger(l Limit, s State, now time.Duration) *big.Rat {
	elapsed := new(big.Int).Sub(big.NewInt(int64(max(now, s.Anchor))), big.NewInt(int64(s.Anchor)))
	gain := new(big.Rat).SetFrac(elapsed, big.NewInt(1e9))
	return gain.Mul(gain, model.Exact(l.RefillPerSec)).Add(gain, model.Exact(s.Balance))
}

// exactLevel is the level of a state at an instant, exactly.
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

// trial runs requests, charges and refunds through Limits and through the model, and
// holds one to the other.
type trial struct {
	t        *testing.T
	limits   Limits
	states   []State
	exact    *model.Bucket
	drift    []float64 // tokens, for each limit: what rounding may have added up to
	admitted *big.Rat  // less what was refunded
	now      time.Duration
	latest   time.Duration // the latest instant so far
	wait     time.Duration // what the latest refusal said
}

func newTrial(t *testing.T, limits ...Limit) *trial {
	states := make([]State, len(limits))
	Limits(limits).Fill(states, 0)
	return &trial{
		t: t, limits: limits, states: states,
		exact: model.New(limits...), drift: make([]float64, len(limits)), admitted: new(big.Rat),
	}
}

// pass lets time pass, or steps back for a negative span: up to the end of time, and
// to a while before its origin.
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

// holdToEachLimit checks that several limits are what each of them says alone: the
// figures are those of the first with the longest wait, after the decision.
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

// holdAdmission checks an answer against the state's exact level. What the level
// lacks by no more than the tolerance is admitted; rounding of the level itself is
// another 7 halves of a unit in the last place, less than a tolerance. So what is
// there exactly is never refused.
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

// holdToModel checks that the model decides alike, unless its level is so near to
// the cost that what rounding may have added up to makes the difference. An instant
// before the latest grant counts as that for the model, which is the most that there can be.
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

// off is how far the model and the library may be apart in one limit, in tokens.
func (r *trial) off(i int, states []State) float64 {
	return r.drift[i] + 2*slack(r.limits[i], states[i])
}

// follow checks that the states lost what was taken and nothing else.
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

// give charges, or refunds what is negative, at the latest instant.
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

// run makes a move of each byte: some time passes, maybe backwards, then a request,
// now and then a charge or a refund.
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
					newTrial(t, Limit{capacity, refill}).run(cost, span, randomMoves(random, 20))
				}
			}
		}
	}
}

func TestRandomSequencesMatchTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		limits := make([]Limit, 1+i%3)
		for i := range limits {
			limits[i] = Limit{math.Exp(random.Float64()*12 - 2), math.Exp(random.Float64()*16 - 8)}
		}
		newTrial(t, limits...).run(1, time.Duration(random.Int64N(int64(time.Hour))), randomMoves(random, 40))
	}
}

// Reanchored at every grant for centuries, each time with a rounding.
func TestSlowSequencesMatchTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 100 {
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

// What a decision says.

// randomTake makes a request in the state of a busy ledger, a deep balance at times.
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

// In a balance that deep many tokens are within the tolerance.
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

// 0.7 thrice from 4.1 leave 2, less a rounding.
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

func TestShortfallUpToTheToleranceCountsAsNone(t *testing.T) {
	limit := Limit{1, 1}
	state, d := limit.Take(State{Balance: 1 - 0x1p-50}, 0, 1)
	require.True(t, d.OK)
	require.Equal(t, -0x1p-50, state.Balance, "what was borrowed stays on the ledger")
	_, d = limit.Take(State{Balance: 1 - 0x1p-50 - 0x1p-53}, 0, 1)
	require.Equal(t, time.Duration(1), d.Wait)
}

// gofiber/limiter#1
func TestRemainingIsWholeAndNeverNegative(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{2, 1})
	for _, want := range []int64{1, 0, 0} {
		require.Equal(t, want, bucket.Take(1).Remaining())
	}
}

func TestResetIsWhenTheBucketIsFull(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range 20_000 {
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

// Long years.

// At a gigabyte a second a byte is a nanosecond, so that whole numbers tell whether
// any was lost or minted in three million chunks.
func TestBusyYearLosesNoByte(t *testing.T) {
	const capacity = 1 << 34
	limit := Limit{capacity, 1e9}
	random := rand.New(rand.NewPCG(13, 14))
	state, left, now := limit.Full(0), int64(capacity), time.Duration(0)
	for now < year {
		chunk := 65_536 * (1 + random.Int64N(capacity/65_536))
		var d Decision
		state, d = limit.Take(state, now, float64(chunk))
		if short := time.Duration(max(0, chunk-left)); d.Wait != short {
			require.Equal(t, short, d.Wait, now)
		}
		if d.OK {
			left -= chunk
		}
		if d.Tokens != float64(left) {
			require.Equal(t, float64(left), d.Tokens, now)
		}
		now += d.Wait
		left = min(capacity, left+int64(d.Wait))
	}
}

// With the small capacity the balance would get deep, with the large one the anchor old.
func TestYearBelowTheCapKeepsNanoseconds(t *testing.T) {
	for _, capacity := range []float64{50, 1e6} {
		limit := Limit{capacity, 1}
		state, _ := limit.Take(limit.Full(0), 0, capacity)
		for at := 20 * sec; at < year; at += 20 * sec {
			early := 1 + at/sec%997
			var d Decision
			if state, d = limit.Take(state, at-early, 20); d.Wait != early {
				require.Equal(t, early, d.Wait, at)
			}
			if state, d = limit.Take(state, at, 20); !d.OK {
				require.True(t, d.OK, at)
			}
		}
	}
}

// 1024 tokens a nanosecond: were the balance let down to where float64s are many
// tokens apart, an odd cost would be lost in it.
func TestNoTokenIsLostInADeepBalance(t *testing.T) {
	const capacity = 1 << 40
	limit := Limit{capacity, 1024e9}
	random := rand.New(rand.NewPCG(25, 26))
	state, left, now := limit.Full(0), int64(capacity), time.Duration(0)
	for now < 20*time.Hour {
		cost := 1 + 2*random.Int64N(capacity/2)
		var d Decision
		if state, d = limit.Take(state, now, float64(cost)); d.OK {
			left -= cost
		}
		if off := math.Abs(d.Tokens - float64(left)); off > 1 {
			require.LessOrEqual(t, off, 1.0, now)
		}
		now += d.Wait
		left = min(capacity, left+1024*int64(d.Wait))
	}
}

// A running level is off by another rounding at each grant, and after some thousands
// a wait is off by a nanosecond. Whole numbers tell: the level is counted in parts of a
// token of which both a quarter of a token and the refill of a nanosecond are multiples.
func TestRoundingAtEachGrantDoesNotAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	for _, c := range []struct{ quarters, tokens, seconds int64 }{ // the capacity; the refill is tokens in seconds
		{80, 10, 13}, {20, 1, 3}, {20, 1, 60}, {7, 7, 1}, {40, 3, 10},
	} {
		limit := Limit{float64(c.quarters) / 4, float64(c.tokens) / float64(c.seconds)}
		quarter, nanosecond := c.seconds*1e9, c.tokens*4
		state, left, now := limit.Full(0), c.quarters*quarter, time.Duration(0)
		for range 100_000 {
			cost := 1 + random.Int64N(c.quarters)
			var d Decision
			state, d = limit.Take(state, now, float64(cost)/4)
			short := max(0, cost*quarter-left)
			if want := time.Duration((short + nanosecond - 1) / nanosecond); d.Wait != want {
				require.Equal(t, want, d.Wait, "%+v at %v", limit, now)
			}
			if d.OK {
				left -= cost * quarter
			}
			pause := []time.Duration{d.Wait, time.Duration(random.Int64N(int64(d.Wait) + 1))}[random.IntN(2)]
			now += pause
			left = min(c.quarters*quarter, left+int64(pause)*nanosecond)
		}
	}
}

// Nearly 600 years lie between the anchor and now.
func TestWaitFromTheOtherEndOfTime(t *testing.T) {
	random := rand.New(rand.NewPCG(29, 30))
	for range 1000 {
		limit := Limit{10, math.Exp(random.Float64()*3) * 1e-9}
		state := State{Balance: -20 * random.Float64(), Anchor: time.Duration(math.MinInt64 + random.Int64N(1<<62))}
		now := time.Duration(random.Int64N(1 << 62))
		where := fmt.Sprintf("%+v, %+v at %d", limit, state, now)
		exact := exactLevel(limit, state, now)
		if wait := holdLimit(t, limit, state, now, 10, where); wait == Never {
			require.Negative(t, exactLevel(limit, state, math.MaxInt64).Cmp(model.Exact(limit.Capacity)), where)
		} else if wait > 0 {
			short := exact.Sub(model.Exact(10), exact)
			seconds, _ := short.Quo(short, model.Exact(limit.RefillPerSec)).Float64()
			require.InEpsilon(t, seconds, wait.Seconds(), 1e-9, where)
		}
	}
}

// A debt far below -1024 capacities is paid off by what is refilled, however often
// it is added to.
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

// Several limits.

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

// The bucket against the model, with a clock that steps back now and then: an
// earlier reading counts as the latest, and the wait is told from the reading.
func TestBucketMatchesTheModel(t *testing.T) {
	ask := []func(*tokenbucket.Bucket, float64) (time.Duration, bool){
		(*tokenbucket.Bucket).TryAcquire,
		func(b *tokenbucket.Bucket, cost float64) (time.Duration, bool) {
			d := b.Take(cost)
			return d.Wait, d.OK
		},
	}
	random := rand.New(rand.NewPCG(15, 16))
	for i := range 300 {
		limits, fractions := make([]Limit, 1+i%3), make([]model.Limit, 1+i%3)
		for i := range limits {
			capacity, refill := 1+random.Int64N(60), 1+random.Int64N(100)
			limits[i] = Limit{float64(capacity) / 2, float64(refill) / 7}
			fractions[i] = model.Limit{Capacity: big.NewRat(capacity, 2), RefillPerSec: big.NewRat(refill, 7)}
		}
		mock, exact := new(waittest.Clock), model.NewExact(fractions...)
		bucket := newBucket(t, mock, limits...)
		var latest time.Duration
		for range 60 {
			now := max(0, latest+time.Duration(random.Int64N(int64(3*sec)))-sec)
			latest = max(latest, now)
			mock.Set(now)
			tokens := float64(random.IntN(24)) / 4
			switch random.IntN(8) {
			case 0:
				require.NoError(t, bucket.Charge(tokens))
				exact.Charge(latest, model.Exact(tokens))
			case 1:
				require.NoError(t, bucket.Refund(tokens))
				exact.Refund(latest, model.Exact(tokens))
			default:
				want, wantOK := exact.Take(latest, model.Exact(tokens))
				if !wantOK && want != Never {
					want += latest - now
				}
				wait, ok := ask[random.IntN(2)](bucket, tokens)
				require.Equal(t, wantOK, ok, "%+v at %v", limits, now)
				require.Equal(t, want, wait, "%+v at %v", limits, now)
			}
			left, _ := exact.At(latest).Least().Float64()
			require.InDelta(t, left, bucket.Tokens(), 1e-12)
		}
	}
}

func TestFrozenClockAdmitsTheCapacityAndNoMore(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1}, Limit{20, 1})
	var admitted atomic.Int64
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			if _, ok := bucket.TryAcquire(1); ok {
				admitted.Add(1)
			}
		})
	}
	group.Wait()
	require.Equal(t, int64(10), admitted.Load())
}

// Limits as they are written.

func TestLimitsAsTheyAreWritten(t *testing.T) {
	require.Equal(t, Limit{7, 7}, tokenbucket.PerSecond(7))
	require.Equal(t, Limit{30, 0.5}, tokenbucket.PerMinute(30))
	require.Equal(t, Limit{36, 0.01}, tokenbucket.PerHour(36))
	require.Equal(t, Limit{1, 1. / 49}, tokenbucket.Per(1, 49*sec))
	require.Equal(t, Limit{20, 1. / 6}, tokenbucket.Within(30, time.Minute, 20))
	require.Equal(t, Limit{28, 271. / 3600}, tokenbucket.Within(299, time.Hour, 28))

	inf, nan := math.Inf(1), math.NaN()
	for i, l := range []Limit{
		tokenbucket.PerSecond(0), tokenbucket.PerMinute(-1), tokenbucket.PerHour(nan), tokenbucket.Per(inf, sec),
		tokenbucket.Per(1, 0), tokenbucket.Per(1, -sec), tokenbucket.Per(0, 0), tokenbucket.Per(-1, -sec), tokenbucket.Per(1<<43, sec),
		tokenbucket.Within(5, sec, 5), tokenbucket.Within(5, sec, 6), tokenbucket.Within(5, sec, 0), tokenbucket.Within(5, sec, -1),
		tokenbucket.Within(5, 0, 1), tokenbucket.Within(5, -sec, 1), tokenbucket.Within(5, -sec, 6), tokenbucket.Within(nan, sec, 1),
		tokenbucket.Within(5, sec, nan), tokenbucket.Within(inf, sec, 1), tokenbucket.Within(-5, sec, -6),
	} {
		require.ErrorIs(t, l.Validate(), tokenbucket.ErrInvalidLimit, "%d: %+v", i, l)
	}
}

func TestWithinPassesNoMoreInAnyWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 18))
	most := 0.0
	for i := range 600 {
		n := float64(2 + random.IntN(60))
		d := time.Duration(1 + random.Int64N(int64(time.Minute)))
		burst := math.Ceil(4*n*random.Float64()) / 4
		limit := tokenbucket.Within(n, d, min(burst, n-0.25))
		require.NoError(t, limit.Validate())
		passed := mostInWindow(traffic(limit, d, random, i%3), d)
		require.LessOrEqual(t, passed, n, "%+v in %v", limit, d)
		most = max(most, passed/n)
	}
	require.Equal(t, 1.0, most, "the promise is as tight as it can be")
}

func TestPerPassesTwiceInOneWindow(t *testing.T) {
	limit := tokenbucket.PerMinute(30)
	require.Equal(t, 60.0, mostInWindow(traffic(limit, time.Minute, nil, 0), time.Minute))

	random := rand.New(rand.NewPCG(19, 20))
	for i := range 200 {
		passed := mostInWindow(traffic(limit, time.Minute, random, i%3), time.Minute)
		require.LessOrEqual(t, passed, 60.0)
	}
}

type grant struct {
	at   time.Duration
	cost float64
}

// traffic returns what is admitted in six windows to a greedy client, at each instant
// at which it can be. With a source of chance it pauses now and then; costs are 1, or
// any number of quarters in style 1, and in style 2 it comes back in bursts.
func traffic(limit Limit, window time.Duration, random *rand.Rand, style int) (grants []grant) {
	state, cost := limit.Full(0), min(1, limit.Capacity)
	for now := time.Duration(0); now < 6*window; {
		var d Decision
		if state, d = limit.Take(state, now, cost); d.OK {
			grants = append(grants, grant{now, cost})
		}
		now += d.Wait
		if random == nil || !d.OK && style != 2 {
			continue
		}
		if style == 1 {
			cost = min(limit.Capacity, float64(1+random.IntN(12))/4)
		}
		if style == 2 && !d.OK || random.IntN(10) == 0 {
			now += time.Duration(random.Int64N(int64(window)))
		}
	}
	return grants
}

// mostInWindow slides a window over the grants, both of its ends counting.
func mostInWindow(grants []grant, window time.Duration) (most float64) {
	first, sum := 0, 0.0
	for _, g := range grants {
		for sum += g.cost; g.at-grants[first].at > window; first++ {
			sum -= grants[first].cost
		}
		most = max(most, sum)
	}
	return most
}

// The common mistakes.

// table rows are {instant, cost, want}: the wait, 0 for admitted.
type row struct {
	at   time.Duration
	cost float64
	want time.Duration
}

func run(t *testing.T, limit Limit, rows ...row) {
	t.Helper()
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, limit)
	for i, r := range rows {
		mock.Set(r.at)
		wait, ok := bucket.TryAcquire(r.cost)
		require.Equal(t, r.want, wait, "row %d: %+v", i, r)
		require.Equal(t, r.want == 0, ok, "row %d: %+v", i, r)
	}
}

// poll asks for 1 again and again and returns how often it was admitted.
func poll(t *testing.T, limit Limit, drain float64, every, until time.Duration) (admitted int) {
	t.Helper()
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, limit)
	bucket.TryAcquire(drain)
	for at := time.Duration(0); at <= until; at += every {
		mock.Set(at)
		if _, ok := bucket.TryAcquire(1); ok {
			admitted++
		}
	}
	return admitted
}

func TestMistakeNoCap(t *testing.T) {
	run(t, Limit{3, 1}, row{time.Hour, 3, 0}, row{time.Hour, 1, sec})
}

func TestMistakeIntegerTokens(t *testing.T) {
	run(t, Limit{1, 0.5}, row{0, 1, 0}, row{sec, 1, sec}, row{1900 * ms, 1, 100 * ms}, row{2 * sec, 1, 0})
}

func TestMistakeRefusalMovesLast(t *testing.T) {
	run(t, Limit{1, 1}, row{0, 1, 0}, row{300 * ms, 1, 700 * ms}, row{600 * ms, 1, 400 * ms}, row{sec - 1, 1, 1}, row{sec, 1, 0})
}

func TestMistakeRefillingWithoutMovingLastOnARefusal(t *testing.T) {
	run(t, Limit{1, 1}, row{0, 1, 0}, row{600 * ms, 1, 400 * ms}, row{600 * ms, 1, 400 * ms}, row{700 * ms, 1, 300 * ms})
}

func TestMistakeStartsEmpty(t *testing.T) { run(t, Limit{3, 1}, row{0, 3, 0}) }

func TestMistakeRefilledSinceTimeZero(t *testing.T) {
	mock := waittest.NewClock(time.Unix(1e9, 0))
	bucket, err := tokenbucket.New(Limit{3, 1}, tokenbucket.WithClock(mock), tokenbucket.WithTokens(0))
	require.NoError(t, err)
	require.Zero(t, bucket.Tokens())
	mock.Set(sec)
	require.Equal(t, 1.0, bucket.Tokens())
}

func TestMistakeOneCostForEverything(t *testing.T) {
	run(t, Limit{10, 1}, row{0, 5, 0}, row{0, 1, 0}, row{0, 5, sec}, row{0, 4, 0})
}

func TestMistakeQuotingTheWaitForOne(t *testing.T) {
	run(t, Limit{10, 0.5}, row{0, 10, 0}, row{0, 1, 2 * sec}, row{0, 5, 10 * sec})
}

// Public bug reports of other limiters. Those with waiters are in package waittest.

func TestReportedCases(t *testing.T) {
	hundred := func(first row, last row, again row) []row {
		return append(append([]row{first}, slices.Repeat([]row{again}, 100)...), last)
	}
	for name, c := range map[string]struct {
		limit Limit
		rows  []row
	}{
		"RateLimiters#3": {Limit{1, 1}, []row{
			{0, 1, 0}, {100 * ms, 1, 900 * ms}, {200 * ms, 1, 800 * ms}, {300 * ms, 1, 700 * ms}, {400 * ms, 1, 600 * ms}, {500 * ms, 1, 500 * ms},
			{600 * ms, 1, 400 * ms}, {700 * ms, 1, 300 * ms}, {800 * ms, 1, 200 * ms}, {900 * ms, 1, 100 * ms}, {sec, 1, 0},
		}},
		"golang/go#34861": {Limit{1, 10. / 13}, []row{{0, 1, 0}, {0, 1, 1300 * ms}, {1300*ms - 1, 1, 1}, {1300 * ms, 1, 0}}},
		"betty#1266":      {Limit{1, 3}, []row{{0, 1, 0}, {0, 1, 333333334}, {333333333, 1, 1}, {333333334, 1, 0}}},
		"golang/go#71154": {Limit{1, 1e-11}, []row{{0, 1, 0}, {0, 1, Never}, {290 * year, 1, Never}}},
		"limits#362":      {Limit{1, 1}, []row{{0, 1, 0}, {0, -5, Never}, {0, math.NaN(), Never}, {0, 1, sec}, {0, 0, 0}}},
		"bucket4j#220":    {Limit{3, 1.5}, []row{{0, 4, Never}, {0, 3, 0}, {0, 1, 666666667}}},
		"golang/go#56287": {Limit{10, 1}, []row{{10 * sec, 10, 0}, {9 * sec, 1, 2 * sec}, {10 * sec, 1, sec}, {11 * sec, 1, 0}}},
		"golang/go#52584": {Limit{2, 1}, hundred(row{0, 2, 0}, row{0, 1, sec}, row{0, 2, 2 * sec})},
		"aiolimiter#217":  {Limit{3, 1}, []row{{0, 2, 0}, {0, 2, sec}}},
		"ratelimit#122":   {Limit{3, 1}, []row{{0, 3, 0}, {4 * sec, 1, 0}, {4 * sec, 1, 0}, {4 * sec, 1, 0}, {4 * sec, 1, sec}}},
		"bucket4j#51": {Limit{1000, 1000}, []row{
			{0, 1000, 0}, {12 * time.Hour, 1000, 0}, {12 * time.Hour, 1, ms}, {290 * year, 1000, 0}, {290 * year, 1, ms},
		}},
		"boundary#4094":      {Limit{1, 1. / 3}, []row{{0, 1, 0}, {sec, 1, 2 * sec}, {2500 * ms, 1, 500 * ms}, {3 * sec, 1, 0}}},
		"burst out of order": {Limit{3, 1}, []row{{10 * sec, 1, 0}, {10*sec - 5, 1, 0}, {10*sec - 9, 1, 0}, {10*sec - 9, 1, sec + 9}}},
	} {
		t.Run(name, func(t *testing.T) { run(t, c.limit, c.rows...) })
	}
}

func TestReportedPolling(t *testing.T) {
	assert.Equal(t, 101, poll(t, Limit{1, 10}, 0, 10*ms, 10*sec), "golang/go#46579")
	assert.Equal(t, 200, poll(t, Limit{1200, 20}, 1200, 40*ms, 10*sec), "symfony#42627")
	assert.Equal(t, 110, poll(t, Limit{10, 100}, 0, ms/2, sec), "golang/go#39970")
	assert.Equal(t, 9, poll(t, Limit{3, 3}, 0, 100*ms, 2*sec), "gubernator#118")
}

func TestReportedLimitsChange(t *testing.T) { // contracts-sui#350
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{100, 1})
	bucket.TryAcquire(100)
	mock.Set(10 * sec)
	require.NoError(t, bucket.SetLimits(Limit{100, 100}))
	require.Equal(t, 10.0, bucket.Tokens())
	require.NoError(t, bucket.SetLimits(Limit{5, 100}))
	require.Equal(t, 5.0, bucket.Tokens())
	require.Equal(t, []Limit{{5, 100}}, bucket.Limits())
	require.NoError(t, bucket.SetLimits(Limit{50, 1}))
	require.Equal(t, 5.0, bucket.Tokens(), "a larger capacity mints nothing")
	bucket.Limits()[0] = Limit{1000, 1000}
	require.Equal(t, []Limit{{50, 1}}, bucket.Limits(), "what Limits returns is a copy")
}

// Retry-After, both ways.

func TestRetryAfterRoundsUp(t *testing.T) {
	for wait, want := range map[time.Duration]int64{
		math.MinInt64: 0, -sec: 0, 0: 0, 1: 1, ms: 1, sec - 1: 1, sec: 1, sec + 1: 2, 5500 * ms: 6, Never - 1: 9223372037,
	} {
		got, ok := tokenbucket.RetryAfter(wait)
		require.True(t, ok)
		require.Equal(t, want, got, wait)
	}
	_, ok := tokenbucket.RetryAfter(Never)
	require.False(t, ok)
}

// boundary#4094, redis-cell#56; and bucket4j#220 at the end
func TestDecisionRetryAfterIsNeverTooEarly(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{1, 1. / 3})
	for _, r := range []struct {
		at      time.Duration
		cost    float64
		seconds int64
		ok      bool
	}{
		{0, 1, 0, true}, {sec, 1, 2, true}, {2500 * ms, 1, 1, true}, {3 * sec, 1, 0, true}, {3 * sec, 1, 3, true}, {3 * sec, 4, 0, false},
	} {
		mock.Set(r.at)
		seconds, ok := bucket.Take(r.cost).RetryAfter()
		require.Equal(t, r.seconds, seconds, "%+v", r)
		require.Equal(t, r.ok, ok, "%+v", r)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, time.November, 6, 8, 49, 37, 5e8, time.FixedZone("", 3600)) // 07:49:37.5 UTC
	for value, want := range map[string]time.Duration{
		"0": 0, "120": 2 * time.Minute, " 7\t": 7 * sec, "007": 7 * sec,
		"9223372036":                       9223372036 * sec,
		"9223372037":                       Never, // go-retryablehttp#297
		"18446744073709551617":             Never,
		strings.Repeat("9", 400):           Never,
		strings.Repeat("0", 400) + "1":     sec,
		"Fri, 06 Nov 2026 07:49:38 GMT":    500 * ms,
		" Fri, 06 Nov 2026 07:50:37 GMT\t": 59500 * ms,
		"Friday, 06-Nov-26 07:49:38 GMT":   500 * ms,
		"Fri Nov  6 07:49:38 2026":         500 * ms,
		"Fri Nov 06 07:49:38 2026":         500 * ms,
		"Fri, 06 Nov 2026 07:49:37 GMT":    0,
		"Sun, 06 Nov 1994 08:49:37 GMT":    0,
		"Sunday, 06-Nov-94 08:49:37 GMT":   0, // 2094 would be 68 years ahead
		"Sun Nov  6 08:49:37 1994":         0,
		"Fri, 06 Nov 2099 07:49:38 GMT":    26663*24*time.Hour + 500*ms, // four digits are never folded
		"Fri Nov  6 07:49:38 1970":         0,
		"Mon, 31 Dec 9999 23:59:59 GMT":    Never,
		"Mon, 06 Nov 2026 07:49:38 GMT":    500 * ms, // it is a Friday, and the date is plain all the same
	} {
		got, err := tokenbucket.ParseRetryAfter(value, now)
		require.NoError(t, err, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{
		"", " ", "-1", "+5", "1.5", "99x", "1 2", "1e3", "0x10", "1_000", "١٢", "5s", "soon", "NaN", "-0", "5,", "5;",
		"Fri, 06 Nov 2026", "Fri, 06 Nov 2026 07:49:38", "Fri, 06 Nov 2026 07:49:38 CET", "Fri, 06 Nov 2026 07:49:38 UTC",
		"Fri, 06 Nov 2026 07:49:38 +0000", "Fri, 06 Nov 2026 07:49:38.5 GMT", "Friday, 06-Nov-26 07:49:38.5 GMT", "Fri Nov  6 07:49:38.5 2026",
		"Fri, 06 Nov 2026 7:49:38 GMT", "Fri, 6 Nov 2026 07:49:38 GMT", "Fri, 31 Feb 2026 07:49:38 GMT", "Fri, 06 Nov 2026 24:00:00 GMT",
		"2026-11-06T07:49:38Z", "Fri, 06 Nov 2026 07:49:38 GMT x", "Friday, 06-Nov-2026 07:49:38 GMT", "Fri Nov 6 07:49:38 2026",
	} {
		_, err := tokenbucket.ParseRetryAfter(value, now)
		require.Error(t, err, value)
	}
}

func TestParseRetryAfterTwoDigitYears(t *testing.T) {
	for _, c := range []struct {
		now, value string
		past       bool
	}{
		{"2026-01-01", "Wednesday, 01-Jan-76 00:00:00 GMT", false}, // 50 years ahead, not more
		{"2026-01-01", "Friday, 02-Jan-76 00:00:00 GMT", true},     // 1976: 2076 would be more
		{"2018-01-01", "Sunday, 01-Jan-68 00:00:00 GMT", false},    // 2068
		{"2017-12-31", "Monday, 01-Jan-68 00:00:00 GMT", true},     // 1968
		{"2099-12-31", "Friday, 01-Jan-00 00:00:00 GMT", false},    // tomorrow, in 2100
		{"2026-01-01", "Thursday, 01-Jan-26 00:00:01 GMT", false},
		{"2026-01-01", "Friday, 31-Dec-99 23:59:59 GMT", true},
	} {
		now, err := time.Parse(time.DateOnly, c.now)
		require.NoError(t, err)
		wait, err := tokenbucket.ParseRetryAfter(c.value, now)
		require.NoError(t, err)
		require.Equal(t, c.past, wait == 0, c.value)
	}
}

// What is written is what is read, in each form, rounded up to the second.
func TestRetryAfterThereAndBack(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	start := time.Date(2026, time.February, 28, 23, 59, 59, 0, time.UTC)
	for range 5000 {
		now := start.Add(time.Duration(random.Int64N(int64(60 * year))))
		wait := time.Duration(random.Int64N(int64(49*year)) >> random.IntN(62))
		seconds, ok := tokenbucket.RetryAfter(wait)
		require.True(t, ok)
		back, err := tokenbucket.ParseRetryAfter(fmt.Sprint(seconds), now)
		require.NoError(t, err)
		require.True(t, back >= wait && back-wait < sec, "%v came back as %v", wait, back)

		date := now.Add(wait).Truncate(sec)
		for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
			back, err := tokenbucket.ParseRetryAfter(date.Format(layout), now)
			require.NoError(t, err)
			require.Equal(t, max(0, date.Sub(now)), back, "%v from %v", date.Format(layout), now)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, value := range []string{
		"", "0", "120", " 7\t", "9223372036", "9223372037", "-1", "1.5",
		"Fri, 06 Nov 2026 07:49:38 GMT", "Friday, 06-Nov-26 07:49:38 GMT", "Fri Nov  6 07:49:38 2026",
	} {
		f.Add(value, int64(1793951377))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		wait, err := tokenbucket.ParseRetryAfter(value, time.Unix(unix%1e11, 0))
		require.GreaterOrEqual(t, wait, time.Duration(0))
		digits := strings.TrimSpace(value)
		if digits == "" || strings.Trim(digits, "0123456789") != "" {
			require.True(t, err == nil || wait == 0)
			return
		}
		require.NoError(t, err)
		want, _ := new(big.Int).SetString(digits, 10)
		if want.Mul(want, big.NewInt(1e9)); !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		require.Equal(t, want.Int64(), int64(wait))
	})
}

// Costs.

func TestCosts(t *testing.T) {
	costs := tokenbucket.Costs{"export": 5, "ping": 0}
	require.Equal(t, []float64{5, 0, 1}, []float64{costs.Of("export"), costs.Of("ping"), costs.Of("other")})
	require.Equal(t, 1.0, tokenbucket.Costs(nil).Of("any"))
	require.NoError(t, costs.Validate(5))
	require.NoError(t, tokenbucket.Costs(nil).Validate(1))

	err := tokenbucket.Costs{"b": 11, "a": -1, "c": math.NaN(), "d": 2, "e": math.Inf(1)}.Validate(10)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 4)
	for i, name := range []string{`"a"`, `"b"`, `"c"`, `"e"`} {
		require.Contains(t, lines[i], name)
	}
	require.Error(t, costs.Validate(math.NaN()))
}

// Bad input.

func TestInvalidLimits(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	bucket := newBucket(t, new(waittest.Clock), Limit{1, 1})
	for _, l := range []Limit{
		{}, {0, 1}, {1, 0}, {-1, 1}, {1, -1}, {nan, 1}, {1, nan}, {inf, 1}, {1, inf}, {-inf, 1}, {1, -inf}, {math.Nextafter(1<<42, inf), 1},
	} {
		require.ErrorIs(t, l.Validate(), tokenbucket.ErrInvalidLimit, "%+v", l)
		_, err := tokenbucket.New(l)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit, "%+v", l)
		_, err = tokenbucket.New(Limit{1, 1}, tokenbucket.WithLimit(l))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit, "%+v", l)
		require.ErrorIs(t, bucket.SetLimits(l), tokenbucket.ErrInvalidLimit, "%+v", l)
	}
	require.ErrorIs(t, bucket.SetLimits(), tokenbucket.ErrInvalidLimit)
	require.ErrorIs(t, bucket.SetLimits(Limit{1, 1}, Limit{1, 1}), tokenbucket.ErrInvalidLimit)
	require.Equal(t, []Limit{{1, 1}}, bucket.Limits())
	require.Equal(t, 1.0, bucket.Tokens())
	require.NoError(t, Limit{1 << 42, math.MaxFloat64}.Validate())
	require.NoError(t, Limit{5e-324, 5e-324}.Validate())
	require.Panics(t, func() { tokenbucket.MustNew(Limit{}) })
}

// What an invalid limit answers need not make sense, but it answers, at once.
func TestInvalidLimitsDoNotHang(t *testing.T) {
	numbers := []float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 5e-324}
	for _, capacity := range numbers {
		for _, refill := range numbers {
			for _, cost := range numbers {
				limit := Limit{capacity, refill}
				state, d := limit.Take(limit.Full(0), math.MaxInt64, cost)
				require.GreaterOrEqual(t, d.Wait, time.Duration(0))
				require.GreaterOrEqual(t, d.Remaining(), int64(0))
				require.GreaterOrEqual(t, d.Reset(), time.Duration(0))
				_, d = limit.Take(state, math.MinInt64, cost)
				require.GreaterOrEqual(t, d.Wait, time.Duration(0))
			}
		}
	}
}

func TestZeroLimitAdmitsNothing(t *testing.T) {
	var limit Limit
	for _, state := range []State{{}, limit.Full(5), {Balance: 3}} {
		after, d := limit.Take(state, sec, 1)
		require.Equal(t, Decision{Wait: Never}, d)
		require.Equal(t, state, after)
		_, d = limit.Take(state, sec, 0)
		require.True(t, d.OK)
		require.Zero(t, limit.Tokens(state, sec))
	}
}

func TestInvalidOptions(t *testing.T) {
	for i, opt := range []tokenbucket.Option{
		tokenbucket.WithTokens(-1), tokenbucket.WithTokens(11), tokenbucket.WithTokens(math.NaN()), tokenbucket.WithTokens(math.Inf(1)),
		tokenbucket.WithMaxWaiters(-1),
		tokenbucket.WithState(time.Now(), nil), tokenbucket.WithState(time.Now(), make([]State, 2)),
		tokenbucket.WithState(time.Now(), []State{{Balance: math.NaN()}}), tokenbucket.WithState(time.Now(), []State{{Balance: math.Inf(-1)}}),
		tokenbucket.WithState(time.Now(), []State{{Balance: -math.MaxFloat64}}),
		tokenbucket.WithState(time.Time{}, []State{{}}), tokenbucket.WithState(time.Now().Add(Never).Add(Never), []State{{}}),
		tokenbucket.WithState(time.Date(1884, 1, 1, 0, 0, 0, 0, time.UTC), []State{{}}), // it could step back
	} {
		_, err := tokenbucket.New(Limit{10, 1}, opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, i)
	}
	deepest := []State{Limit{10, 1}.Full(0)}
	require.NoError(t, Limits{{10, 1}}.Charge(deepest, 0, math.MaxFloat64))
	_, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithState(time.Now(), deepest))
	require.NoError(t, err)
	bucket, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithClock(nil), tokenbucket.WithTokens(10))
	require.NoError(t, err)
	_, ok := bucket.TryAcquire(10)
	require.True(t, ok)
}

func TestInvalidCosts(t *testing.T) {
	ctx := context.Background()
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1}, Limit{5, 1})
	for _, cost := range []float64{-1, math.NaN(), math.Inf(-1), math.Inf(1), 5.5, math.Copysign(5e-324, -1)} {
		want := tokenbucket.ErrInvalidCost
		if cost > 5 {
			want = tokenbucket.ErrCostExceedsCapacity
		}
		wait, ok := bucket.TryAcquire(cost)
		require.Equal(t, Never, wait)
		require.False(t, ok)
		d := bucket.Take(cost)
		require.False(t, d.OK)
		require.Equal(t, Never, d.Wait)
		require.ErrorIs(t, bucket.Wait(ctx, cost), want, cost)
		_, err := bucket.Reserve(cost)
		require.ErrorIs(t, err, want, cost)
		if cost != 5.5 {
			require.ErrorIs(t, bucket.Refund(cost), tokenbucket.ErrInvalidCost)
			require.ErrorIs(t, bucket.Charge(cost), tokenbucket.ErrInvalidCost)
		}
	}
	require.Equal(t, 5.0, bucket.Tokens(), "nothing was taken")
	require.Zero(t, bucket.Waiting())
}

func TestCostZeroIsAlwaysAdmitted(t *testing.T) {
	ctx := context.Background()
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1}, Limit{5, 1})
	require.NoError(t, bucket.Charge(100), "above the capacity, on purpose")
	require.Equal(t, -95.0, bucket.Tokens())
	bucket.Pause(sec)
	for _, zero := range []float64{0, math.Copysign(0, -1)} {
		wait, ok := bucket.TryAcquire(zero)
		require.True(t, ok)
		require.Zero(t, wait)
		require.True(t, bucket.Take(zero).OK)
		require.NoError(t, bucket.Wait(ctx, zero))
		reservation, err := bucket.Reserve(zero)
		require.NoError(t, err)
		require.Zero(t, reservation.Delay())
		require.NoError(t, bucket.Refund(zero))
		require.NoError(t, bucket.Charge(zero))
	}
	require.Equal(t, -95.0, bucket.Tokens())
}

func TestZeroBucketAdmitsNothing(t *testing.T) {
	ctx := context.Background()
	var bucket tokenbucket.Bucket
	wait, ok := bucket.TryAcquire(1)
	require.Equal(t, Never, wait)
	require.False(t, ok)
	_, ok = bucket.TryAcquire(0)
	require.True(t, ok)
	require.Equal(t, Never, bucket.Take(1).Wait)
	require.True(t, bucket.Take(0).OK)
	require.ErrorIs(t, bucket.Wait(ctx, 1), tokenbucket.ErrCostExceedsCapacity)
	require.NoError(t, bucket.Wait(ctx, 0))
	_, err := bucket.Reserve(1)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
	require.NoError(t, bucket.Refund(1))
	require.NoError(t, bucket.Charge(1))
	bucket.Pause(sec)
	bucket.Pause(Never)
	bucket.Fill()
	require.NoError(t, bucket.SetLimits())
	require.ErrorIs(t, bucket.SetLimits(Limit{1, 1}), tokenbucket.ErrInvalidLimit)
	require.Empty(t, bucket.Limits())
	require.Zero(t, bucket.Tokens())
	require.Zero(t, bucket.Waiting())
	_, states := bucket.State()
	require.Empty(t, states)
	var decision Decision
	require.Zero(t, decision.Reset())
	require.Zero(t, decision.Remaining())
	var reservation tokenbucket.Reservation
	require.Zero(t, reservation.Delay())
	require.False(t, reservation.Cancel())
}

func TestDeadlineErrorIsATimeout(t *testing.T) {
	var err error = &tokenbucket.DeadlineError{Wait: sec}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var timeout interface{ Timeout() bool }
	require.True(t, errors.As(err, &timeout) && timeout.Timeout())
	require.Contains(t, (&tokenbucket.DeadlineError{Wait: Never}).Error(), "never", "not a number of hours")
}

func TestErrorsSayWhatOffendsAndWhatToDo(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	limit := Limit{10, 1e-3}
	bucket, err := tokenbucket.New(limit, tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(0))
	require.NoError(t, err)
	build := func(l Limit, opts ...tokenbucket.Option) error { _, err := tokenbucket.New(l, opts...); return err }
	reserve := func(cost float64) error { _, err := bucket.Reserve(cost); return err }
	parse := func(value string) error { _, err := tokenbucket.ParseRetryAfter(value, time.Now()); return err }
	for i, c := range []struct {
		err          error
		offends, say string
	}{
		{build(Limit{-3, 1}), "capacity -3", "choose one above 0"},
		{build(Limit{3, -7}), "refill -7", "choose a finite one above 0"},
		{bucket.SetLimits(limit, limit), "2 limits for a bucket of 1", "pass one for each"},
		{build(limit, tokenbucket.WithTokens(11)), "WithTokens(11)", "choose from 0 to the capacity of 10"},
		{build(limit, tokenbucket.WithMaxWaiters(-2)), "WithMaxWaiters(-2)", "choose 0 or more"},
		{build(limit, tokenbucket.WithState(time.Time{}, nil)), "WithState", "pass what State"},
		{bucket.Wait(ctx, -1), "-1", "pass a number of tokens, 0 or more"},
		{bucket.Wait(ctx, 11), "cost 11, capacity 10", "split the request or raise the capacity"},
		{bucket.Wait(ctx, 9), "the wait of 2h", "allow more time"},
		{reserve(9), "0 are queued already", "retry later or raise WithMaxWaiters"},
		{bucket.Charge(math.Inf(1)), "+Inf", "pass a finite number of tokens"},
		{bucket.Refund(math.NaN()), "NaN", "pass a finite number of tokens"},
		{tokenbucket.Costs{"export": 50}.Validate(10), `"export"`, "split the request or raise the capacity"},
		{parse("soon"), `"soon"`, "treat it as absent"},
	} {
		require.Error(t, c.err, i)
		require.True(t, strings.HasPrefix(c.err.Error(), "tokenbucket: ") || i == 12, c.err)
		require.Contains(t, c.err.Error(), c.offends)
		require.Contains(t, c.err.Error(), c.say)
	}
}

// Options and state.

func TestWithTokensFillsEachLimit(t *testing.T) {
	mock := new(waittest.Clock)
	bucket, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithLimit(Limit{3, 1}), tokenbucket.WithTokens(5), tokenbucket.WithClock(mock))
	require.NoError(t, err)
	require.Equal(t, 3.0, bucket.Tokens())
	_, states := bucket.State()
	require.Equal(t, []State{{Balance: 5}, {Balance: 3}}, states)
}

func TestStateGoesOn(t *testing.T) {
	mock := new(waittest.Clock)
	first := newBucket(t, mock, Limit{10, 1}, Limit{5, 0.3})
	resume := func() *tokenbucket.Bucket {
		origin, states := first.State()
		bucket, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithLimit(Limit{5, 0.3}),
			tokenbucket.WithClock(mock), tokenbucket.WithState(origin, states), tokenbucket.WithTokens(1))
		require.NoError(t, err)
		states[1].Balance = -1e9 // both keep copies
		return bucket
	}
	for i := range 50 {
		mock.Set(time.Duration(i) * 700 * ms)
		if i == 30 {
			first.Pause(5 * sec)
			require.NoError(t, first.Refund(2))
		}
		second := resume()
		require.Equal(t, first.Tokens(), second.Tokens(), i)
		require.Equal(t, first.Take(2), second.Take(2), i)
	}
	_, states := first.State()
	smaller, err := tokenbucket.New(Limit{1, 1}, tokenbucket.WithLimit(Limit{5, 0.3}), tokenbucket.WithClock(mock),
		tokenbucket.WithState(time.Time{}, states))
	require.NoError(t, err)
	require.LessOrEqual(t, smaller.Tokens(), 1.0)
}

func TestStateGoesOnAfterARestart(t *testing.T) {
	type stored struct {
		Origin time.Time
		States []State
	}
	synctest.Test(t, func(t *testing.T) {
		first := tokenbucket.MustNew(Limit{10, 1})
		first.TryAcquire(10)
		time.Sleep(3500 * ms)
		origin, states := first.State()
		file, err := json.Marshal(stored{origin, states})
		require.NoError(t, err)

		time.Sleep(2 * sec) // the time in between counts
		var back stored
		require.NoError(t, json.Unmarshal(file, &back))
		second, err := tokenbucket.New(Limit{10, 1}, tokenbucket.WithState(back.Origin, back.States))
		require.NoError(t, err)
		require.Equal(t, 5.5, second.Tokens())
		require.NoError(t, second.Wait(t.Context(), 6))
		require.Equal(t, 6*sec, time.Since(origin))
	})
}

// Without the latest reading, a state anchored in the future is paused until then.
func TestLatestGoesOnWhereTheClockStepsBack(t *testing.T) {
	clock := new(waittest.Clock)
	first := newBucket(t, clock, Limit{10, 1})
	clock.Set(10 * sec)
	require.True(t, first.Take(1).OK)
	clock.Set(5 * sec)
	require.Equal(t, 10*sec, first.Latest())
	origin, states := first.State()
	resume := func(reading time.Duration) *tokenbucket.Bucket {
		return tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithClock(clock),
			tokenbucket.WithState(origin, states), tokenbucket.WithLatest(reading))
	}
	require.True(t, resume(first.Latest()).Take(9).OK)
	require.Equal(t, 6*sec, resume(first.Latest()).Take(10).Wait)
	require.Equal(t, 5*sec, resume(0).Take(1).Wait)
	require.Equal(t, 5*sec, resume(-sec).Latest())
}

// Clocks and costs of a call.

var _ tokenbucket.Clock = (*clock.Mock)(nil)

func TestOneClockReadACall(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{3, 1})
	for range 2 { // admitted, then refused
		for name, call := range map[string]func(){
			"TryAcquire": func() { bucket.TryAcquire(1) },
			"Take":       func() { bucket.Take(1) },
			"Refund":     func() { _ = bucket.Refund(0) },
			"Charge":     func() { _ = bucket.Charge(0) },
		} {
			before := mock.Reads()
			call()
			require.Equal(t, before+1, mock.Reads(), name)
		}
		require.NoError(t, bucket.Charge(2))
	}
	require.NoError(t, bucket.Refund(100))
	before := mock.Reads()
	require.NoError(t, bucket.Wait(context.Background(), 1))
	require.Equal(t, before+1, mock.Reads(), "Wait")
}

func TestNothingIsAllocated(t *testing.T) {
	ctx := context.Background()
	one, two := Limit{1 << 40, 1}, tokenbucket.WithLimit(Limit{1 << 40, 2})
	states := []State{one.Full(0)}
	for name, bucket := range map[string]*tokenbucket.Bucket{
		"one": tokenbucket.MustNew(one), "two": tokenbucket.MustNew(one, two),
		"empty": tokenbucket.MustNew(one, tokenbucket.WithTokens(0)), "two, empty": tokenbucket.MustNew(one, two, tokenbucket.WithTokens(0)),
	} {
		_, admitted := bucket.TryAcquire(1e9)
		for method, call := range map[string]func(){
			"TryAcquire": func() { bucket.TryAcquire(1e9) },
			"Take":       func() { bucket.Take(1e9) },
			"Tokens":     func() { bucket.Tokens() },
			"Wait": func() {
				if admitted {
					_ = bucket.Wait(ctx, 1)
				}
			},
			"Limit.Take":  func() { one.Take(states[0], 0, 1) },
			"Limits.Take": func() { Limits{one}.Take(states, 0, 1) },
		} {
			require.Zero(t, testing.AllocsPerRun(100, call), "%s: %s", name, method)
		}
	}
}

func TestBlockedWaitAllocatesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithTokens(0))
		allocs := testing.AllocsPerRun(100, func() {
			if err := bucket.Wait(context.Background(), 1); err != nil {
				t.Error(err)
			}
		})
		require.LessOrEqual(t, allocs, 5.0)
	})
}

// Benchmarks. BenchmarkClock is the limit of the machine, to compare with: one
// reading of the clock and one uncontended compare-and-swap.

func BenchmarkClock(b *testing.B) {
	origin := time.Now()
	var word atomic.Int64
	b.ReportAllocs()
	for b.Loop() {
		old := word.Load()
		word.CompareAndSwap(old, int64(time.Since(origin)))
	}
}

var (
	roomy   = Limit{Capacity: 1 << 42, RefillPerSec: 1}
	tight   = Limit{Capacity: 1, RefillPerSec: 1e-6}
	another = map[Limit]Limit{roomy: {1 << 41, 2}, tight: {1, 2e-6}}
)

// benchmark runs a loop on a bucket that admits everything and on one that refuses
// everything, with one limit and with two.
func benchmark(b *testing.B, loop func(*testing.B, *tokenbucket.Bucket)) {
	for _, answer := range []struct {
		name   string
		limit  Limit
		tokens float64
	}{{"admitted", roomy, 1 << 41}, {"refused", tight, 0}} {
		opts := []tokenbucket.Option{tokenbucket.WithTokens(answer.tokens)}
		for limits := 1; limits <= 2; limits++ {
			b.Run(fmt.Sprintf("%s/limits=%d", answer.name, limits), func(b *testing.B) {
				b.ReportAllocs()
				loop(b, tokenbucket.MustNew(answer.limit, opts...))
			})
			opts = append(opts, tokenbucket.WithLimit(another[answer.limit]))
		}
	}
}

func BenchmarkTryAcquire(b *testing.B) {
	benchmark(b, func(b *testing.B, bucket *tokenbucket.Bucket) {
		for b.Loop() {
			bucket.TryAcquire(1)
		}
	})
}

func BenchmarkTake(b *testing.B) {
	benchmark(b, func(b *testing.B, bucket *tokenbucket.Bucket) {
		for b.Loop() {
			bucket.Take(1)
		}
	})
}

func BenchmarkTryAcquireParallel(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			bucket.TryAcquire(1)
		}
	})
}

func BenchmarkWait(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = bucket.Wait(ctx, 1)
	}
}

func BenchmarkLimitTake(b *testing.B) {
	state := roomy.Full(0)
	var now time.Duration
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		state, _ = roomy.Take(state, now, 1)
	}
}

// Waiting.

func TestWaiting(t *testing.T) {
	waittest.Run(t, func(t testing.TB, clock tokenbucket.Clock, limits ...Limit) waittest.Bucket {
		return newBucket(t, clock, limits...)
	})
}

func TestReservation(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{10, 1})
	reserve := func(cost float64, delay time.Duration) *tokenbucket.Reservation {
		t.Helper()
		r, err := bucket.Reserve(cost)
		require.NoError(t, err)
		require.Equal(t, delay, r.Delay())
		return r
	}
	paid := reserve(10, 0)
	require.False(t, paid.Cancel(), "paid at once")
	require.Zero(t, paid.Delay())

	first, second, third := reserve(2, 2*sec), reserve(3, 5*sec), reserve(4, 9*sec)
	require.Equal(t, 3, bucket.Waiting())
	require.Equal(t, -9.0, bucket.Tokens())
	mock.Set(2*sec - 1)
	require.Equal(t, time.Duration(1), first.Delay())
	mock.Set(2 * sec)
	require.Zero(t, first.Delay(), "due, though nobody called")
	require.False(t, first.Cancel(), "due")
	require.Equal(t, 2, bucket.Waiting())

	require.NoError(t, bucket.Charge(1))
	require.Equal(t, 4*sec, second.Delay())
	require.Equal(t, 8*sec, third.Delay())
	require.True(t, second.Cancel())
	require.False(t, second.Cancel(), "twice")
	require.Equal(t, Never, second.Delay())
	require.Equal(t, 5*sec, third.Delay())
	bucket.Pause(10 * sec)
	require.Equal(t, 15*sec, third.Delay())
	require.NoError(t, bucket.Refund(9))
	require.Equal(t, 10*sec, third.Delay(), "nothing before the pause ends")
	free := reserve(0, 0)
	require.False(t, free.Cancel())
	mock.Set(time.Hour)
	require.Zero(t, third.Delay())
	require.Equal(t, 10.0, bucket.Tokens())
	_, err := bucket.Reserve(11)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
}

func TestReservationsAndWaitersShareTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithTokens(0))
		ahead, err := bucket.Reserve(4)
		require.NoError(t, err)
		done := make(chan time.Duration, 1)
		go func() {
			assert.NoError(t, bucket.Wait(context.Background(), 2))
			done <- time.Since(start)
		}()
		synctest.Wait()
		behind, err := bucket.Reserve(1)
		require.NoError(t, err)
		require.Equal(t, 7*sec, behind.Delay())
		time.Sleep(sec)
		require.True(t, ahead.Cancel(), "the waiter behind it has to be roused")
		require.Equal(t, 2*sec, <-done)
		time.Sleep(sec)
		require.Zero(t, behind.Delay())
		require.Zero(t, bucket.Tokens())
	})
}

func TestSetLimitsWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithTokens(0))
		left := make(chan error, 2)
		go func() { left <- bucket.Wait(context.Background(), 8) }()
		synctest.Wait()
		large, err := bucket.Reserve(9)
		require.NoError(t, err)
		go func() {
			assert.NoError(t, bucket.Wait(context.Background(), 4))
			assert.Equal(t, 2*sec, time.Since(start))
			left <- nil
		}()
		synctest.Wait()
		time.Sleep(sec)
		require.ErrorIs(t, bucket.SetLimits(Limit{10, 0}), tokenbucket.ErrInvalidLimit)
		require.Equal(t, 16*sec, large.Delay(), "nothing changed")
		require.NoError(t, bucket.SetLimits(Limit{5, 3}))
		require.ErrorIs(t, <-left, tokenbucket.ErrCostExceedsCapacity)
		require.Equal(t, sec, time.Since(start), "at once")
		require.Equal(t, Never, large.Delay())
		require.False(t, large.Cancel())
		require.NoError(t, <-left)
	})
}

func TestSetLimitsWakesWhoWouldWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{1, 1e-12}, tokenbucket.WithTokens(0))
		left := make(chan error)
		go func() { left <- bucket.Wait(context.Background(), 1) }()
		synctest.Wait()
		time.Sleep(1000 * time.Hour)
		require.NoError(t, bucket.SetLimits(Limit{1, 1}))
		require.NoError(t, <-left)
	})
}

func TestMaxWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		nobody := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithMaxWaiters(0))
		require.NoError(t, nobody.Wait(ctx, 1))
		require.ErrorIs(t, nobody.Wait(ctx, 1), tokenbucket.ErrTooManyWaiters)
		require.NoError(t, nobody.Wait(ctx, 0))

		two := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithMaxWaiters(2), tokenbucket.WithTokens(0))
		go func() { assert.NoError(t, two.Wait(ctx, 1)) }()
		synctest.Wait()
		reserved, err := two.Reserve(1)
		require.NoError(t, err)
		require.ErrorIs(t, two.Wait(ctx, 1), tokenbucket.ErrTooManyWaiters)
		_, err = two.Reserve(1)
		require.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
		require.True(t, reserved.Cancel())
		require.NoError(t, two.Wait(ctx, 1), "there is room again")
	})
}

// A mock whose After runs what is due before it answers, calling back into the bucket.
type eagerClock struct {
	waittest.Clock
	before func()
}

func (c *eagerClock) After(d time.Duration) <-chan time.Time {
	c.before()
	return c.Clock.After(d)
}

func TestMistakeHoldingTheLockWhileSleeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(eagerClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		mock.before = func() { bucket.TryAcquire(1) }
		bucket.TryAcquire(1)
		done := make(chan error)
		go func() { done <- bucket.Wait(context.Background(), 1) }()
		synctest.Wait()
		require.Equal(t, 1, bucket.Waiting())
		_, ok := bucket.TryAcquire(1)
		require.False(t, ok)
		mock.Set(sec)
		require.NoError(t, <-done)
	})
}

func TestBucketMadeOutsideOfABubble(t *testing.T) {
	bucket := tokenbucket.MustNew(Limit{1, 1})
	synctest.Test(t, func(t *testing.T) {
		bucket.TryAcquire(1)
		bucket.TryAcquire(1)
		require.LessOrEqual(t, bucket.Tokens(), 1.0)
	})
}

// Reservations and changed limits, held to the oracle.

// TestReservationsMatchTheOracle lets reservations, their cancellations and all that
// moves the level happen at random, on a clock that steps back now and then. Where
// the level is noted, by Pause and SetLimits, the instants are exact in binary.
func TestReservationsMatchTheOracle(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 11))
		b := &booking{T: t, random: random, clock: new(waittest.Clock), exact: seed%2 == 0}
		b.limits = b.randomLimits(1 + random.IntN(3))
		b.bucket = newBucket(t, b.clock, b.limits...)
		b.oracle = waittest.NewOracle(b.limits...)
		for i := range 100 {
			b.where = fmt.Sprintf("seed %d, step %d, %+v at %v", seed, i, b.limits, b.now)
			b.passTime()
			b.act()
			b.check()
		}
	}
}

type booking struct {
	*testing.T
	random *rand.Rand
	clock  *waittest.Clock
	bucket *tokenbucket.Bucket
	oracle *waittest.Oracle
	limits []Limit
	exact  bool
	where  string

	now, back time.Duration // the latest instant seen, and by how much the clock is behind it
	booked    []booked
}

type booked struct {
	*tokenbucket.Reservation
	place *waittest.Place
}

func (b *booking) randomLimits(n int) []Limit {
	refills := []float64{1, 3, 7, 10}
	if b.exact {
		refills = []float64{1, 2, 4, 8}
	}
	limits := make([]Limit, n)
	for i := range limits {
		limits[i] = Limit{float64(1 + b.random.IntN(12)), refills[b.random.IntN(len(refills))]}
	}
	return limits
}

func (b *booking) least() float64 {
	return slices.MinFunc(b.limits, func(x, y Limit) int { return int(x.Capacity - y.Capacity) }).Capacity
}

func (b *booking) passTime() {
	tick := sec / 32
	if !b.exact {
		tick = time.Duration(b.random.Int64N(int64(sec / 8)))
	}
	b.now += tick * time.Duration(b.random.IntN(3)*b.random.IntN(20))
	b.oracle.Advance(b.now)
	b.clock.Set(b.now)
	b.bucket.Tokens() // now it has seen it
	b.back = 0
	if b.random.IntN(4) == 0 {
		b.back = time.Duration(b.random.Int64N(int64(sec)))
	}
	b.clock.Set(b.now - b.back)
}

func (b *booking) act() {
	cost := float64(b.random.IntN(int(b.least())*4+1)) / 4
	tokens := float64(b.random.IntN(24)) / 4
	switch b.random.IntN(10) {
	case 0, 1, 2:
		r, err := b.bucket.Reserve(cost)
		require.NoError(b, err)
		b.booked = append(b.booked, booked{r, b.oracle.Wait(cost)})
	case 3, 4:
		if len(b.booked) > 0 {
			r := b.booked[b.random.IntN(len(b.booked))]
			require.Equal(b, b.oracle.Cancel(r.place), r.Cancel(), b.where)
		}
	case 5:
		wait, ok := b.bucket.TryAcquire(cost)
		want, wantOK := b.oracle.Try(cost)
		require.Equal(b, wantOK, ok, b.where)
		require.Equal(b, b.told(want), wait, b.where)
	case 6:
		require.NoError(b, b.bucket.Refund(tokens))
		b.oracle.Refund(tokens)
	case 7:
		require.NoError(b, b.bucket.Charge(tokens))
		b.oracle.Charge(tokens)
	case 8:
		b.pauseOrSetLimits()
	case 9:
		if b.random.IntN(4) == 0 {
			b.bucket.Fill()
			b.oracle.Fill()
		}
	}
}

func (b *booking) pauseOrSetLimits() {
	switch {
	case !b.exact:
	case b.random.IntN(2) == 0:
		d := sec / 32 * time.Duration(1+b.random.IntN(90))
		b.bucket.Pause(d)
		b.oracle.Pause(d)
	default:
		b.limits = b.randomLimits(len(b.limits))
		require.NoError(b, b.bucket.SetLimits(b.limits...))
		b.oracle.SetLimits(b.limits...)
	}
}

// told is a wait from the latest instant, as it is told from a reading before it.
func (b *booking) told(wait time.Duration) time.Duration {
	if wait > 0 {
		return wait + b.back
	}
	return 0
}

func (b *booking) check() {
	require.Equal(b, b.oracle.Waiting(), b.bucket.Waiting(), b.where)
	require.InDelta(b, b.oracle.Tokens(), b.bucket.Tokens(), 1e-9, b.where)
	for i, r := range b.booked {
		want := Never // cancelled, or its cost is above the capacity now
		if r.place.Served {
			want = 0
		} else if b.oracle.Queued(r.place) {
			want = b.told(b.oracle.Due(r.place, 0) - b.now)
		}
		require.Equal(b, want, r.Delay(), "%s: reservation %d", b.where, i)
		if want == Never || want == 0 {
			require.False(b, r.Cancel(), "%s: reservation %d", b.where, i)
		}
	}
}

func TestReservationIsDueThoughNobodyCalls(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{10, 1})
	bucket.TryAcquire(10)
	reservation, err := bucket.Reserve(10)
	require.NoError(t, err)
	mock.Set(15 * sec) // 5 more since it was due
	require.Equal(t, 5.0, bucket.Tokens())
	require.Zero(t, reservation.Delay())
	require.False(t, reservation.Cancel())
	mock.Set(time.Hour)
	require.Equal(t, 10.0, bucket.Tokens())
}

func TestReservationAheadKeepsNobodyAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithTokens(0))
		_, err := bucket.Reserve(2)
		require.NoError(t, err)
		left := make(chan time.Duration, 1)
		go func() {
			assert.NoError(t, bucket.Wait(context.Background(), 3)) // due at 5 s
			left <- time.Since(start)
		}()
		synctest.Wait()
		require.NoError(t, bucket.Refund(1))
		require.Equal(t, 4*sec, <-left)
	})
}

// Limits that change.

func TestSetLimitsMovesEveryTurnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1}, Limit{20, 2})
		require.NoError(t, bucket.Charge(20)) // -10 and 0
		var group sync.WaitGroup
		for i, want := range []time.Duration{5500 * ms, 6500 * ms, 7500 * ms} {
			group.Go(func() {
				assert.NoError(t, bucket.Wait(context.Background(), float64(min(i+1, 2))))
				assert.Equal(t, want, time.Since(start), i)
			})
			synctest.Wait()
		}
		time.Sleep(4 * sec) // -6 and 8: due at 11 s, 13 s and 15 s
		require.Equal(t, -11.0, bucket.Tokens())
		require.ErrorIs(t, bucket.SetLimits(Limit{10, 5}), tokenbucket.ErrInvalidLimit, "one for each")
		require.NoError(t, bucket.SetLimits(Limit{10, 1000}, Limit{4, 2})) // -6 and 4
		require.NoError(t, bucket.SetLimits(Limit{10, 1000}, Limit{2, 2})) // -6 and 2
		require.NoError(t, bucket.Charge(4))                               // -10 and -2
		group.Wait()
		require.Equal(t, []Limit{{10, 1000}, {2, 2}}, bucket.Limits())
		require.Equal(t, 0.0, bucket.Tokens())
	})
}

// Bounded queues.

func TestMaxWaitersAreCountedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{5, 1}, tokenbucket.WithMaxWaiters(1), tokenbucket.WithTokens(0))
		first, err := bucket.Reserve(1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		require.ErrorIs(t, bucket.Wait(ctx, 6), tokenbucket.ErrCostExceedsCapacity)
		require.ErrorIs(t, bucket.Wait(ctx, 1), context.DeadlineExceeded, "the deadline before the waiters")
		require.ErrorIs(t, bucket.Wait(context.Background(), 1), tokenbucket.ErrTooManyWaiters)
		_, err = bucket.Reserve(-1)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
		free, err := bucket.Reserve(0)
		require.NoError(t, err, "0 waits for nobody")
		require.Zero(t, free.Delay())
		time.Sleep(sec)
		second, err := bucket.Reserve(2)
		require.NoError(t, err, "one that is due is not counted, though nobody has called")
		require.Zero(t, first.Delay())
		require.Equal(t, 2*sec, second.Delay())
		require.Equal(t, 1, bucket.Waiting())
	})
}

// Clocks, and the moments between two steps.

// heldClock lets a test hold up a goroutine that reads the clock or sets a timer, as
// the scheduler may.
type heldClock struct {
	waittest.Clock
	hold  atomic.Pointer[heldReading]
	after atomic.Pointer[func()] // runs before the next timer is set
}

// heldReading is a goroutine that has read the clock and goes on with resume.
type heldReading struct{ read, resume chan struct{} }

// holdNext holds up the next goroutine that reads the clock, after it has read.
func (c *heldClock) holdNext() *heldReading {
	h := &heldReading{make(chan struct{}), make(chan struct{})}
	c.hold.Store(h)
	return h
}

func (c *heldClock) Since(t time.Time) time.Duration {
	now := c.Clock.Since(t)
	if h := c.hold.Swap(nil); h != nil {
		close(h.read)
		<-h.resume
	}
	return now
}

func (c *heldClock) After(d time.Duration) <-chan time.Time {
	if run := c.after.Swap(nil); run != nil {
		(*run)()
	}
	return c.Clock.After(d)
}

func TestReadInOneOrderLockedInAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{3, 1})
		mock.Set(10 * sec)
		var group sync.WaitGroup
		late := func(call func()) *heldReading {
			h := mock.holdNext()
			group.Go(call)
			<-h.read
			return h
		}
		acquired := late(func() {
			_, ok := bucket.TryAcquire(1)
			assert.True(t, ok, "no part of a burst is refused")
		})
		waited := late(func() { assert.NoError(t, bucket.Wait(context.Background(), 1)) })
		refused := late(func() {
			wait, ok := bucket.TryAcquire(2)
			assert.False(t, ok)
			assert.Equal(t, 7*sec, wait, "2 are there at 17 s")
		})
		mock.Set(15 * sec)
		_, ok := bucket.TryAcquire(1)
		require.True(t, ok)
		for _, h := range []*heldReading{acquired, waited, refused} {
			close(h.resume)
			synctest.Wait()
		}
		group.Wait()
		require.Equal(t, 0.0, bucket.Tokens(), "nothing is minted")
	})
}

func TestDeadlineIsHeldAgainstTheTurnNotAnOldReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := &heldClock{Clock: *waittest.NewClock(time.Now())}
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		ctx, cancel := context.WithTimeout(context.Background(), 5500*ms)
		defer cancel()
		h := mock.holdNext()
		result := make(chan error, 1)
		go func() { result <- bucket.Wait(ctx, 1) }() // due at 1 s
		<-h.read
		time.Sleep(5 * sec)
		mock.Set(5 * sec)
		close(h.resume)
		synctest.Wait()
		mock.Set(5*sec + 1)
		require.NoError(t, <-result)
	})
}

// golang/go#56924 on a mock: A gives up at 0.5 s, so B is due at 1 s and not at 2 s.
// A test that sees Waiting() == 1 may advance. If B were counted before its new
// timer is set, it would sleep on and the test would hang.
func TestWaitingCountsOnlyWhoseTimerIsSet(t *testing.T) {
	mock := new(heldClock)
	bucket := newBucket(t, mock, Limit{1, 1})
	bucket.TryAcquire(1)
	ctx, cancel := context.WithCancel(context.Background())
	a, b := make(chan error, 1), make(chan error, 1)
	go func() { a <- bucket.Wait(ctx, 1) }()
	pollWaiting(bucket, 1)
	go func() { b <- bucket.Wait(context.Background(), 1) }()
	pollWaiting(bucket, 2)
	mock.Set(500 * ms)

	aWakes := mock.holdNext()
	cancel()
	<-aWakes.read
	bWakes := mock.holdNext()
	close(aWakes.resume)
	require.ErrorIs(t, <-a, context.Canceled)
	<-bWakes.read
	require.Zero(t, bucket.Waiting(), "B has woken and is about to set another timer")
	close(bWakes.resume)
	pollWaiting(bucket, 1)
	mock.Set(sec)
	require.NoError(t, <-b)
}

// A charge makes the timer ring too early: until the waiter has set another, it is
// not counted.
func TestWaitingDoesNotCountWhoWokeInVain(t *testing.T) {
	mock := new(heldClock)
	bucket := newBucket(t, mock, Limit{1, 1})
	bucket.TryAcquire(1)
	left := make(chan error, 1)
	go func() { left <- bucket.Wait(context.Background(), 1) }()
	pollWaiting(bucket, 1)
	require.NoError(t, bucket.Charge(1))
	wakes := mock.holdNext()
	mock.Set(sec)
	<-wakes.read
	setsTimer := mock.holdNext()
	close(wakes.resume)
	<-setsTimer.read
	require.Zero(t, bucket.Waiting())
	close(setsTimer.resume)
	pollWaiting(bucket, 1)
	mock.Set(2 * sec)
	require.NoError(t, <-left)
}

// A mock may move while a waiter is about to set its timer: between its reading of
// the clock and the timer lie 9 s here, and the timer would ring at 11 s.
func TestMockThatMovesWhileATimerIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		var group sync.WaitGroup
		queue := func(ctx context.Context) {
			group.Go(func() { _ = bucket.Wait(ctx, 1) })
			synctest.Wait()
		}
		queue(context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		queue(ctx)
		queue(context.Background())
		cancel() // the last is due at 2 s, its timer would ring at 3 s
		synctest.Wait()
		require.Equal(t, 2, bucket.Waiting())

		firstWakes := mock.holdNext()
		mock.Set(sec)
		<-firstWakes.read
		lastWakes := mock.holdNext()
		close(firstWakes.resume)
		<-lastWakes.read
		setsTimer := mock.holdNext()
		close(lastWakes.resume)
		<-setsTimer.read
		mock.Set(10 * sec)
		close(setsTimer.resume)
		group.Wait()
	})
}

// pollWaiting is what a test with a mock clock does before it advances it.
func pollWaiting(bucket *tokenbucket.Bucket, n int) {
	for bucket.Waiting() != n {
		runtime.Gosched()
	}
}

// Everything at once, for the race detector: nobody is left behind, and no more
// is taken than there was.
func TestEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refill = 50
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{20, refill}, tokenbucket.WithLimit(Limit{40, refill}), tokenbucket.WithMaxWaiters(100))
		var taken, refunded atomic.Int64
		var group sync.WaitGroup
		for worker := range uint64(40) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(worker, 5))
				for range 60 {
					refunded.Add(meddle(t, bucket, random))
					taken.Add(takeSome(bucket, random))
					time.Sleep(time.Duration(random.IntN(20)) * 10 * ms)
				}
			})
		}
		group.Wait()
		require.LessOrEqual(t, float64(taken.Load()), 20+refill*time.Since(start).Seconds()+float64(refunded.Load()))
		time.Sleep(time.Hour)
		require.Zero(t, bucket.Waiting())
		require.Equal(t, 20.0, bucket.Tokens(), "the first of the limits is full")
	})
}

func meddle(t *testing.T, bucket *tokenbucket.Bucket, random *rand.Rand) (refunded int64) {
	switch random.IntN(30) {
	case 0:
		bucket.Pause(time.Duration(random.IntN(20)) * 10 * ms)
	case 1:
		assert.NoError(t, bucket.SetLimits(Limit{20, 50}, Limit{float64(20 + random.IntN(40)), 50}))
	case 2:
		assert.NoError(t, bucket.Refund(3))
		return 3
	case 3:
		assert.NoError(t, bucket.Charge(2))
	}
	return 0
}

// takeSome asks in one of the ways there are, and returns what it got.
func takeSome(bucket *tokenbucket.Bucket, random *rand.Rand) int64 {
	cost := int64(1 + random.IntN(20))
	ok := false
	switch random.IntN(4) {
	case 0:
		_, ok = bucket.TryAcquire(float64(cost))
	case 1:
		ok = bucket.Take(float64(cost)).OK
	case 2:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(300))*10*ms)
		defer cancel()
		ok = bucket.Wait(ctx, float64(cost)) == nil
	case 3:
		ok = sleepOff(bucket, float64(cost), time.Duration(random.IntN(300))*10*ms)
	}
	if ok {
		return cost
	}
	return 0
}

// sleepOff sleeps until a reservation is due, or cancels it if that takes too long.
func sleepOff(bucket *tokenbucket.Bucket, cost float64, patience time.Duration) bool {
	reservation, err := bucket.Reserve(cost)
	if err != nil {
		return false
	}
	for delay := reservation.Delay(); delay > 0; delay = reservation.Delay() {
		if delay > patience && reservation.Cancel() {
			return false
		}
		time.Sleep(min(delay, time.Minute))
	}
	return true
}

// Reservations.

func TestReservationOfWhatIsNotToBeHad(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1})
	for cost, want := range map[float64]error{
		10.5: tokenbucket.ErrCostExceedsCapacity, math.Inf(1): tokenbucket.ErrCostExceedsCapacity,
		-1: tokenbucket.ErrInvalidCost, math.Inf(-1): tokenbucket.ErrInvalidCost, math.NaN(): tokenbucket.ErrInvalidCost,
	} {
		r, err := bucket.Reserve(cost)
		require.ErrorIs(t, err, want)
		require.Nil(t, r)
	}
	require.Equal(t, 10.0, bucket.Tokens())
}

// 292 years after the origin time stands still. What is due then never is, and nothing
// is given away.
func TestNothingIsGrantedAtTheEndOfTime(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{2, 1})
	bucket.TryAcquire(2)
	early, err := bucket.Reserve(1)
	require.NoError(t, err)
	mock.Set(Never)
	require.Zero(t, early.Delay())
	_, ok := bucket.TryAcquire(2)
	require.True(t, ok, "full")
	late, err := bucket.Reserve(1)
	require.NoError(t, err)
	require.Equal(t, Never, late.Delay())
	require.Equal(t, 1, bucket.Waiting())
	require.False(t, bucket.Take(1).OK)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	require.ErrorIs(t, bucket.Wait(ctx, 1), context.DeadlineExceeded)
	require.True(t, late.Cancel())
	bucket.Pause(Never)
	require.NoError(t, bucket.Refund(2))
	require.Equal(t, Never, bucket.Take(1).Wait)
}

func TestReservationDueForNever(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{1, 1e-12})
	bucket.TryAcquire(1)
	r, err := bucket.Reserve(1)
	require.NoError(t, err)
	require.Equal(t, Never, r.Delay())
	mock.Set(100 * 365 * 24 * time.Hour)
	require.Equal(t, Never, r.Delay())
	require.Equal(t, 1, bucket.Waiting())
	require.True(t, r.Cancel())
	require.Zero(t, bucket.Waiting())
}

// What falls due while nobody calls is paid then, and not when somebody asks: the
// cap does not swallow what is refilled in between.
func TestReservationIsPaidWhenItFallsDue(t *testing.T) {
	for _, ask := range []func(b *tokenbucket.Bucket, r *tokenbucket.Reservation){
		func(_ *tokenbucket.Bucket, r *tokenbucket.Reservation) { r.Delay() },
		func(_ *tokenbucket.Bucket, r *tokenbucket.Reservation) { r.Cancel() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Waiting() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Tokens() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Take(0) },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.State() },
		func(b *tokenbucket.Bucket, _ *tokenbucket.Reservation) { b.Latest() },
	} {
		mock := new(waittest.Clock)
		bucket := newBucket(t, mock, Limit{2, 1})
		bucket.TryAcquire(2)
		first, err := bucket.Reserve(2)
		require.NoError(t, err)
		second, err := bucket.Reserve(2)
		require.NoError(t, err)
		mock.Set(5500 * ms) // due at 2 s and at 4 s
		ask(bucket, second)
		require.Zero(t, bucket.Waiting())
		require.Zero(t, first.Delay())
		require.Zero(t, second.Delay())
		require.False(t, first.Cancel())
		require.Equal(t, 1.5, bucket.Tokens())
	}
}

func TestZeroReservation(t *testing.T) {
	var r tokenbucket.Reservation
	require.Zero(t, r.Delay())
	require.False(t, r.Cancel())
	var bucket tokenbucket.Bucket
	free, err := bucket.Reserve(0)
	require.NoError(t, err)
	require.Zero(t, free.Delay())
	_, err = bucket.Reserve(1)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
}

func TestReservationIsCancelledOnceByMany(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1})
	bucket.TryAcquire(10)
	r, err := bucket.Reserve(5)
	require.NoError(t, err)
	var cancelled atomic.Int32
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if r.Cancel() {
				cancelled.Add(1)
			}
			r.Delay()
		})
	}
	group.Wait()
	require.Equal(t, int32(1), cancelled.Load())
	require.Zero(t, bucket.Tokens())
}

func TestFillServesTheQueueAndEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1}, Limit{20, 1})
		require.NoError(t, bucket.Charge(50))
		bucket.Pause(Never)
		first := takePlace(t, bucket, start, 6, false)
		second := takePlace(t, bucket, start, 3, true)
		third := takePlace(t, bucket, start, 4, false)
		time.Sleep(sec)
		require.Equal(t, Never, second.reserved.Delay())
		bucket.Fill()
		first.due, second.due, third.due = sec, sec, 4*sec
		for _, p := range []*place{first, second, third} {
			requireLeftAt(t, start, p)
		}
		require.Zero(t, bucket.Tokens())
		require.Zero(t, bucket.Waiting())
	})
}

// Places in the queue, of both kinds.

// place is a waiter or a reservation, and when it is to leave.
type place struct {
	cost     float64
	due      time.Duration
	reserved *tokenbucket.Reservation // nil: a waiter
	cancel   context.CancelFunc
	left     chan time.Duration // when a waiter got its tokens
}

func takePlace(t *testing.T, bucket *tokenbucket.Bucket, start time.Time, cost float64, reserve bool) *place {
	p := &place{cost: cost}
	if reserve {
		var err error
		p.reserved, err = bucket.Reserve(cost)
		require.NoError(t, err)
		p.cancel = func() { require.True(t, p.reserved.Cancel()) }
		return p
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel, p.left = cancel, make(chan time.Duration, 1)
	go func() {
		defer cancel()
		if bucket.Wait(ctx, cost) == nil {
			p.left <- time.Since(start)
		}
	}()
	synctest.Wait()
	return p
}

// A single limit's turns in closed form: the tokens of everyone up to it, less the
// level, over the refill, rounded up. All in billionths of a token, so whole.
func turns(now time.Duration, level, refill int64, places []*place) {
	for _, p := range places {
		level -= int64(p.cost * 1e9)
		p.due = now + time.Duration(max(0, (-level+refill-1)/refill))
	}
}

// Whatever happens to a queue, and whoever is in it: everyone leaves at the instant
// that is right from then on.
func TestTurnsOfWaitersAndReservationsAfterAnyChange(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) { changeTurns(t, rand.New(rand.NewPCG(seed, 3))) })
	}
}

func changeTurns(t *testing.T, random *rand.Rand) {
	start := time.Now()
	refill := []int64{1, 2, 3, 7}[random.IntN(4)]
	bucket := newBucket(t, nil, Limit{16, float64(refill)})
	bucket.TryAcquire(16)
	var places []*place
	for range 1 + random.IntN(8) {
		places = append(places, takePlace(t, bucket, start, float64(1+random.IntN(32))/4, random.IntN(2) == 0))
	}
	turns(0, 0, refill, places)
	now := time.Duration(1)
	if last := places[len(places)-1].due; last > 1 {
		now = 1 + time.Duration(random.Int64N(int64(last)-1)) // before the last has left
	}
	level := refill * int64(now)
	time.Sleep(now)
	synctest.Wait()
	for places[0].due <= now {
		level -= int64(places[0].cost * 1e9)
		requireLeftAt(t, start, places[0])
		places = places[1:]
	}
	amount := random.Int64N(80)
	switch random.IntN(4) {
	case 0:
		require.NoError(t, bucket.Refund(float64(amount)/4))
		level = min(16e9, level+amount*25e7)
	case 1:
		require.NoError(t, bucket.Charge(float64(amount)/4))
		level -= amount * 25e7
	case 2:
		bucket.Pause(time.Duration(amount))
		if amount > 0 {
			level = min(0, level) - refill*amount
		}
	case 3:
		gone := random.IntN(len(places))
		places[gone].cancel()
		synctest.Wait()
		places = append(places[:gone:gone], places[gone+1:]...)
	}
	turns(now, level, refill, places)
	for _, p := range places {
		requireLeftAt(t, start, p)
	}
	synctest.Wait()
	require.Zero(t, bucket.Waiting())
}

func requireLeftAt(t *testing.T, start time.Time, p *place) {
	t.Helper()
	if p.reserved == nil {
		require.Equal(t, p.due, <-p.left)
		return
	}
	if wait := p.due - time.Since(start); wait > 0 {
		require.Equal(t, wait, p.reserved.Delay())
		time.Sleep(wait - 1)
		require.Equal(t, time.Duration(1), p.reserved.Delay())
		time.Sleep(time.Nanosecond)
	}
	require.Zero(t, p.reserved.Delay())
	require.False(t, p.reserved.Cancel())
}

// SetLimits.

func TestSetLimitsMovesTurnsBothWays(t *testing.T) {
	for _, now := range []struct {
		limit Limit
		first time.Duration // due, changed at 1 s
	}{
		{Limit{10, 2}, 2 * sec}, {Limit{10, 0.5}, 5 * sec}, {Limit{1 << 10, 1}, 3 * sec},
		{Limit{10, 1e9}, sec + 2}, {Limit{10, 4}, 1500 * ms}, {Limit{3, 1}, 3 * sec},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			bucket := newBucket(t, nil, Limit{10, 1})
			bucket.TryAcquire(10)
			first := takePlace(t, bucket, start, 3, false)
			second := takePlace(t, bucket, start, 3, true)
			third := takePlace(t, bucket, start, 3, false)
			time.Sleep(sec) // one token is there, two are missing
			require.NoError(t, bucket.SetLimits(now.limit))
			first.due = now.first
			second.due = now.first + time.Duration(3e9/now.limit.RefillPerSec)
			third.due = now.first + time.Duration(6e9/now.limit.RefillPerSec)
			for _, p := range []*place{first, second, third} {
				requireLeftAt(t, start, p)
			}
			require.Equal(t, []Limit{now.limit}, bucket.Limits())
			require.Zero(t, bucket.Tokens())
		})
	}
}

// The first in the queue is turned away, and the next is paid for already.
func TestSetLimitsTurnsAwayAndServesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1}, Limit{20, 2})
		bucket.TryAcquire(10)
		large := make(chan error, 1)
		go func() { large <- bucket.Wait(context.Background(), 9) }()
		synctest.Wait()
		also, err := bucket.Reserve(8)
		require.NoError(t, err)
		small := takePlace(t, bucket, start, 5, false)
		time.Sleep(5500 * ms)
		require.ErrorIs(t, bucket.SetLimits(), tokenbucket.ErrInvalidLimit)
		require.ErrorIs(t, bucket.SetLimits(Limit{5, 1}), tokenbucket.ErrInvalidLimit)
		require.ErrorIs(t, bucket.SetLimits(Limit{5, 1}, Limit{20, 2}, Limit{20, 2}), tokenbucket.ErrInvalidLimit)
		require.ErrorIs(t, bucket.SetLimits(Limit{10, 1}, Limit{20, math.NaN()}), tokenbucket.ErrInvalidLimit)
		require.Equal(t, 3, bucket.Waiting(), "nothing changed")
		require.Equal(t, []Limit{{10, 1}, {20, 2}}, bucket.Limits())

		require.NoError(t, bucket.SetLimits(Limit{10, 1}, Limit{7, 2}))
		require.ErrorIs(t, <-large, tokenbucket.ErrCostExceedsCapacity)
		require.Equal(t, Never, also.Delay())
		require.False(t, also.Cancel())
		small.due = 5500 * ms
		requireLeftAt(t, start, small)
		require.Equal(t, 0.5, bucket.Tokens())
	})
}

func TestSetLimitsKeepsTokensUpToTheNewCapacity(t *testing.T) { // contracts-sui#350, with somebody waiting
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{100, 1})
		bucket.TryAcquire(100)
		time.Sleep(10 * sec)
		require.NoError(t, bucket.SetLimits(Limit{100, 100}))
		require.Equal(t, 10.0, bucket.Tokens())
		require.NoError(t, bucket.SetLimits(Limit{5, 100}))
		require.Equal(t, 5.0, bucket.Tokens())
		bucket.TryAcquire(5)
		two := takePlace(t, bucket, start, 2, false)
		require.NoError(t, bucket.SetLimits(Limit{2, 1}))
		two.due = 12 * sec
		requireLeftAt(t, start, two)
		require.NoError(t, bucket.Charge(7))
		require.NoError(t, bucket.SetLimits(Limit{50, 1}))
		require.Equal(t, -7.0, bucket.Tokens(), "debt stays")
	})
}

// A level is rounded when the limits change. Were it rounded whenever they are set, the
// quarter of a microtoken that each of these intervals brings would be lost in a billion.
func TestSettingTheSameLimitsLosesNothing(t *testing.T) {
	mock := new(waittest.Clock)
	limit := Limit{1 << 40, 1}
	bucket := newBucket(t, mock, limit)
	bucket.TryAcquire(1 << 39)
	for i := range 4096 {
		mock.Set(time.Duration(i+1) * 250)
		require.NoError(t, bucket.SetLimits(limit))
	}
	mock.Set(sec)
	require.Equal(t, float64(1<<39+1), bucket.Tokens())
}

func TestSetLimitsDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1})
		bucket.Pause(4 * sec)
		p := takePlace(t, bucket, start, 2, false)
		time.Sleep(sec)
		require.NoError(t, bucket.SetLimits(Limit{10, 4}))
		wait, ok := bucket.TryAcquire(1)
		require.False(t, ok)
		require.Equal(t, 3750*ms, wait)
		p.due = 4500 * ms
		requireLeftAt(t, start, p)
	})
}

// WithMaxWaiters.

func TestMaxWaitersCountsWhoIsStillQueued(t *testing.T) {
	mock := new(waittest.Clock)
	bucket, err := tokenbucket.New(Limit{1, 1}, tokenbucket.WithClock(mock), tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(2))
	require.NoError(t, err)
	reserve := func(want error) (r *tokenbucket.Reservation) {
		t.Helper()
		r, err := bucket.Reserve(1)
		require.ErrorIs(t, err, want)
		return r
	}
	reserve(nil)
	second := reserve(nil)
	reserve(tokenbucket.ErrTooManyWaiters)
	require.ErrorIs(t, bucket.Wait(context.Background(), 1), tokenbucket.ErrTooManyWaiters)
	require.Equal(t, -2.0, bucket.Tokens(), "nothing was taken")
	mock.Set(sec) // the first is due, though nobody asks for it
	third := reserve(nil)
	require.Equal(t, 2*sec, third.Delay())
	reserve(tokenbucket.ErrTooManyWaiters)
	require.True(t, second.Cancel())
	require.Equal(t, sec, third.Delay())
	require.Equal(t, 2*sec, reserve(nil).Delay())
	require.NoError(t, bucket.SetLimits(Limit{0.5, 1})) // turns both away
	require.NoError(t, bucket.Wait(context.Background(), 0))
	_, err = bucket.Reserve(0.25)
	require.NoError(t, err)
}

func TestMaxWaitersLetsExactlySoManyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(7))
		var granted, turnedAway atomic.Int32
		for range 50 {
			go func() {
				switch err := bucket.Wait(context.Background(), 1); {
				case err == nil:
					granted.Add(1)
				default:
					assert.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
					turnedAway.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, 7, bucket.Waiting())
		require.Equal(t, int32(43), turnedAway.Load())
		time.Sleep(7 * sec)
		synctest.Wait()
		require.Equal(t, int32(7), granted.Load())
	})
}

// Waiting, polled by a test on a mock clock before it advances the clock.

// advanceWhenCounted does what a test does that polls Waiting: once it counts one
// waiter it sets the clock to the instant at which that one is due, here at the
// worst of all moments for the waiter, which is held up at s.
func advanceWhenCounted(t *testing.T, mock *heldClock, bucket *tokenbucket.Bucket, s *heldReading, due time.Duration) {
	t.Helper()
	<-s.read
	counted := bucket.Waiting() > 0
	set := func() { mock.Set(due) }
	if counted {
		mock.after.Store(&set) // between its reading of the clock and its timer
	}
	close(s.resume)
	synctest.Wait()
	if !counted {
		require.Equal(t, 1, bucket.Waiting())
		set()
		synctest.Wait()
	}
}

func requireDone(t *testing.T, mock *heldClock, left chan error) {
	t.Helper()
	select {
	case err := <-left:
		require.NoError(t, err)
	default:
		mock.Set(time.Hour)
		<-left
		t.Fatal("it was due and slept on: Waiting counted it before its timer was set")
	}
}

func TestWaitingDoesNotCountWhoHasYetToSetItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		left := make(chan error, 1)
		queueing := mock.holdNext()
		go func() { left <- bucket.Wait(context.Background(), 1) }()
		advanceWhenCounted(t, mock, bucket, queueing, sec)
		requireDone(t, mock, left)
	})
}

func TestWaitingDoesNotCountWhoseTimerRangInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(heldClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		bucket.TryAcquire(1)
		left := make(chan error, 1)
		go func() { left <- bucket.Wait(context.Background(), 1) }()
		synctest.Wait()
		require.NoError(t, bucket.Charge(1)) // due at 2 s now
		woken := mock.holdNext()
		mock.Set(sec)
		advanceWhenCounted(t, mock, bucket, woken, 2*sec)
		requireDone(t, mock, left)
	})
}

// Storms.

// tempest is what may happen to a bucket at once. Its sums are in quarters of a token.
type tempest struct {
	bucket *tokenbucket.Bucket
	spent  atomic.Int64
}

func (s *tempest) pay(quarters int) { s.spent.Add(int64(quarters)) }

func (s *tempest) strike(t *testing.T, random *rand.Rand) {
	quarters := random.IntN(40)
	tokens := float64(quarters) / 4
	switch random.IntN(8) {
	case 0, 1, 2:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(30*sec))))
		defer cancel()
		if s.bucket.Wait(ctx, tokens) == nil {
			s.pay(quarters)
		}
	case 3:
		s.reserve(t, random, quarters)
	case 4:
		if _, ok := s.bucket.TryAcquire(tokens); ok {
			s.pay(quarters)
		}
	case 5:
		if s.bucket.Take(tokens).OK {
			s.pay(quarters)
		}
	case 6:
		assert.NoError(t, s.bucket.Refund(tokens))
		s.pay(-quarters)
	case 7:
		assert.NoError(t, s.bucket.Charge(tokens))
		s.pay(quarters)
	}
}

func (s *tempest) reserve(t *testing.T, random *rand.Rand, quarters int) {
	r, err := s.bucket.Reserve(float64(quarters) / 4)
	if !assert.NoError(t, err) {
		return
	}
	patience := random.IntN(4)
	for delay := r.Delay(); delay > 0; delay = r.Delay() {
		if patience--; patience < 0 && r.Cancel() {
			return
		}
		time.Sleep(max(1, delay/2))
	}
	s.pay(quarters)
}

// rage lets many goroutines loose on a bucket, all in virtual time.
func (s *tempest) rage(t *testing.T, seed uint64, disturb func(random *rand.Rand)) {
	var group sync.WaitGroup
	for i := range uint64(40) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, i))
			for range 30 {
				time.Sleep(time.Duration(random.Int64N(int64(2 * sec))))
				s.strike(t, random)
				disturb(random)
			}
		})
	}
	group.Wait()
	require.Zero(t, s.bucket.Waiting())
}

func TestStormOfAllMethodsLosesAndMintsNothing(t *testing.T) {
	for seed := range uint64(4) {
		for _, limits := range [][]Limit{{{1 << 20, 64}}, {{1 << 20, 64}, {1 << 20, 128}}} {
			t.Run(fmt.Sprint(seed, limits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					s := &tempest{bucket: newBucket(t, nil, limits...)}
					s.bucket.TryAcquire(1 << 20)
					s.rage(t, seed, func(*rand.Rand) {})
					seconds := int64(time.Since(start)/sec) + 1
					time.Sleep(time.Duration(seconds)*sec - time.Since(start)) // so that all levels are exact
					require.Equal(t, float64(64*4*seconds-s.spent.Load())/4, s.bucket.Tokens())
				})
			})
		}
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

// Decisions without the lock. They begin when enough have been made with it.

// steadily is the state of a bucket and the one that it is to have.
type steadily struct {
	bucket *tokenbucket.Bucket
	start  time.Time
	limits Limits
	states []State
}

// pass lets part of the time pass that it takes to fill, at most a day or so.
func (s *steadily) pass(part float64) {
	fill := s.limits[0].Capacity / s.limits[0].RefillPerSec
	time.Sleep(time.Duration(min(30*float64(time.Hour), part*fill*1e9)))
}

// decide asks both about a cost, in one of the ways there are.
func (s *steadily) decide(t *testing.T, random *rand.Rand, cost float64) {
	now := time.Since(s.start)
	want := s.limits.Take(s.states, now, cost)
	switch wait, ok := time.Duration(0), true; {
	case random.IntN(2) == 0:
		wait, ok = s.bucket.TryAcquire(cost)
		require.Equal(t, want.OK, ok, "%+v at %v", s.limits, now)
		require.Equal(t, want.Wait, wait, "%+v at %v", s.limits, now)
	case want.OK && random.IntN(2) == 0:
		require.NoError(t, s.bucket.Wait(t.Context(), cost))
	default:
		require.Equal(t, want, s.bucket.Take(cost), "%+v at %v", s.limits, now)
	}
}

// disturb does what makes the lock decide again.
func (s *steadily) disturb(t *testing.T, random *rand.Rand) {
	now := time.Since(s.start)
	switch random.IntN(6) {
	case 0:
		tokens := float64(random.IntN(40)) / 4
		require.NoError(t, s.bucket.Refund(tokens))
		require.NoError(t, s.limits.Refund(s.states, now, tokens))
	case 1:
		debt := math.Ceil(random.Float64() * 2 * s.limits[0].Capacity)
		require.NoError(t, s.bucket.Charge(debt))
		require.NoError(t, s.limits.Charge(s.states, now, debt))
		return // the debt is what comes next
	case 2:
		reservation, err := s.bucket.Reserve(s.limits[0].Capacity)
		require.NoError(t, err)
		if reservation.Delay() > 0 {
			require.True(t, reservation.Cancel())
			return
		}
		s.limits.Take(s.states, now, s.limits[0].Capacity)
	case 3:
		require.NoError(t, s.bucket.SetLimits(s.limits...))
	}
	_, states := s.bucket.State()
	require.Equal(t, s.states, states)
	require.Equal(t, s.limits.Tokens(s.states, now), s.bucket.Tokens())
}

func TestDecisionsWithoutTheLockAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(31, 32))
		for range 400 {
			limit := Limit{float64(1+random.Int64N(1<<random.IntN(40))) / 2, float64(1+random.Int64N(1<<random.IntN(30))) / 8}
			limits := Limits{limit, {limit.Capacity * 2, limit.RefillPerSec / 2}}[:1+random.IntN(2)]
			s := steadily{newBucket(t, nil, limits...), time.Now(), limits, make([]State, len(limits))}
			limits.Fill(s.states, 0)
			for range 12 {
				few := 1 / float64(1+random.IntN(1000))
				for range random.IntN(80) {
					s.pass(random.Float64() * few)
					s.decide(t, random, math.Ceil(random.Float64()*limit.Capacity/float64(1+random.IntN(8))))
				}
				s.pass(random.Float64() * 2) // it may be full now, or far from its anchor
				s.decide(t, random, []float64{0, -1, 0.5, 2.25, 1, math.Ceil(limit.Capacity) + 1}[random.IntN(6)])
				s.disturb(t, random)
			}
		}
	})
}

func TestDecisionsWithoutTheLockAnchorFarLedgersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random, limit := rand.New(rand.NewPCG(35, 36)), Limit{4, 1}
		s := steadily{newBucket(t, nil, limit), time.Now(), Limits{limit}, []State{limit.Full(0)}}
		for range 3000 { // the ledger is 6000 deep in the end
			s.decide(t, random, 2)
			time.Sleep(2 * sec)
		}
		s.decide(t, random, 1)
		_, states := s.bucket.State()
		require.Equal(t, s.states, states)
		require.Greater(t, states[0].Balance, -1025*limit.Capacity)
	})
}

// Nor does it matter to what rounds when somebody looks, which takes the lock.
func TestDecisionsWithoutTheLockRoundOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(37, 38))
		for range 500 {
			limit := Limit{1 + math.Exp2(40*random.Float64()), math.Exp2(30 * random.Float64())}
			limits := Limits{limit, {1.5 * limit.Capacity, limit.RefillPerSec}}[:1+random.IntN(2)]
			s := steadily{newBucket(t, nil, limits...), time.Now(), limits, make([]State, len(limits))}
			limits.Fill(s.states, 0)
			for range 200 {
				s.pass(random.Float64() / 3)
				s.decide(t, random, math.Ceil(random.Float64()*limit.Capacity/2))
			}
			_, states := s.bucket.State()
			require.Equal(t, s.states, states)
		}
	})
}

func TestRefusalsNeedNoLockWhateverIsToBeAnchoredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := func(bucket *tokenbucket.Bucket) func() {
			return func() {
				for range 100 {
					_, ok := bucket.TryAcquire(1)
					require.False(t, ok)
				}
			}
		}
		deep := newBucket(t, nil, Limit{1, 1e-3})
		require.NoError(t, deep.Charge(5000))
		require.Equal(t, 0.0, testing.AllocsPerRun(20, refusals(deep)))

		oneIsFull := newBucket(t, nil, Limit{1, 1e-3}, Limit{10, 10})
		require.True(t, oneIsFull.Take(1).OK)
		time.Sleep(sec)
		require.Equal(t, 0.0, testing.AllocsPerRun(20, refusals(oneIsFull)))
	})
}

// Else the readings of the clock by which they were made would be forgotten.
func TestWrongNumberOfLimitsLeavesDecisionsWithoutTheLock(t *testing.T) {
	bucket := newBucket(t, nil, Limit{1 << 40, 1})
	allocs := func(decisions int) float64 {
		return testing.AllocsPerRun(5, func() {
			for range 100 {
				require.ErrorIs(t, bucket.SetLimits(), tokenbucket.ErrInvalidLimit)
				for range decisions {
					bucket.TryAcquire(1)
				}
			}
		})
	}
	require.InDelta(t, allocs(0), allocs(20), 50, "less than one each time")
}

func TestDecisionsWithoutTheLockNeedAClockThatNeverStepsBack(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{100, 1})
	for range 50 {
		bucket.TryAcquire(1)
	}
	mock.Set(20 * sec)
	bucket.TryAcquire(1)
	mock.Set(10 * sec)
	require.Equal(t, 69.0, bucket.Tokens(), "as of the latest reading")
}

func TestDecisionsWithoutTheLockHeedALaterReadingThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit{100, 1}
		bucket := tokenbucket.MustNew(limit, tokenbucket.WithState(time.Now(), []State{{0, 0}}), tokenbucket.WithLatest(50*sec))
		for range 50 {
			_, ok := bucket.TryAcquire(1)
			require.True(t, ok, "there are 50 as of the latest reading")
		}
	})
}

func TestStoredOriginGoesOnInMonotonicTime(t *testing.T) {
	limit := Limit{10, 1}
	stored := time.Now().Add(-time.Hour).Round(0)
	origin, _ := tokenbucket.MustNew(limit, tokenbucket.WithState(stored, []State{limit.Full(0)})).State()
	require.True(t, origin.Equal(stored))
	require.NotEqual(t, origin.Round(0), origin, "a monotonic reading")
}

func TestDecisionsWithoutTheLockBeginAfterSixteenOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := newBucket(t, nil, Limit{1 << 40, 1 << 40})
		openings := func(cost float64, decisions int, after func()) float64 { // of ten times so many
			return testing.AllocsPerRun(20, func() {
				for range 10 {
					for range decisions {
						bucket.TryAcquire(cost)
					}
					after()
				}
			})
		}
		look, sleep := func() { bucket.Tokens() }, func() { time.Sleep(sec) }
		look()
		require.Equal(t, 10.0, openings(1, 16, look))
		require.Equal(t, 10.0, openings(1, 1000, look))
		require.Equal(t, 5.0, openings(1, 8, look))
		require.Equal(t, 0.0, openings(1, 15, sleep), "it is full each time")
		require.Equal(t, 0.0, openings(0.5, 1000, look), "which no epoch counts")
	})
}

// Whoever got the cost from a copy of the bucket first has to get it from the bucket,
// too, although others spend and look meanwhile. A fault shows in some of the rounds.
func TestDecisionsWithoutTheLockRefuseNoneWithoutCause(t *testing.T) {
	for round := range uint64(30) {
		limit := Limit{1 << 40, 4e6}
		bucket := tokenbucket.MustNew(limit, tokenbucket.WithTokens(0))
		origin, states := bucket.State()
		var copied sync.Mutex
		var group sync.WaitGroup
		for worker := range uint64(4) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(round, worker))
				for range 30_000 {
					now := time.Since(origin)
					copied.Lock()
					_, paid := Limits{limit}.TryAcquire(states, now, 1)
					copied.Unlock()
					if !paid {
						continue
					}
					if random.IntN(30) == 0 {
						bucket.Tokens() // and the lock decides for a while
					}
					_, ok := bucket.TryAcquire(1)
					assert.True(t, ok)
				}
			})
		}
		group.Wait()
	}
}

// Nothing is refilled meanwhile, so that every token is accounted for.
func TestDecisionsWithoutTheLockLoseAndMintNothing(t *testing.T) {
	const capacity = 1 << 16
	limit := Limit{capacity, 1e-9}
	for seed := range uint64(20) {
		bucket := newBucket(t, nil, limit)
		var taken atomic.Int64
		var group sync.WaitGroup
		for worker := range uint64(8) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, worker))
				for range 2000 {
					taken.Add(takeOrInterfere(t, bucket, random))
				}
				for ok := true; ok; {
					if _, ok = bucket.TryAcquire(1); ok {
						taken.Add(1)
					}
				}
			})
		}
		group.Wait()
		require.Equal(t, int64(capacity), taken.Load())
		require.Equal(t, 0.0, math.Floor(bucket.Tokens()))
	}
}

func takeOrInterfere(t *testing.T, bucket *tokenbucket.Bucket, random *rand.Rand) (taken int64) {
	cost := 1 + random.Int64N(4)
	switch ok := bucket.Take(float64(cost)).OK; {
	case !ok:
		return 0
	case random.IntN(100) > 0:
	case random.IntN(2) == 0:
		assert.NoError(t, bucket.Refund(float64(cost)))
		return 0
	default:
		assert.NoError(t, bucket.SetLimits(bucket.Limits()...))
	}
	return cost
}
