package tokenbucket_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/model"
	"github.com/aa014e13/tokenbucket/internal/vectors"
	"github.com/aa014e13/tokenbucket/internal/waittest"
)

type (
	Limit  = tokenbucket.Limit
	Limits = tokenbucket.Limits
	State  = tokenbucket.State
)

const (
	Never = tokenbucket.Never
	ms    = time.Millisecond
	sec   = time.Second
	year  = 365 * 24 * time.Hour
)

// tolerance is what a decision may be off, relative to capacity and balance.
const tolerance = 1.0 / (1 << 50)

// The exact vectors.

func TestVectorsThroughLimits(t *testing.T) {
	for _, v := range vectors.All() {
		t.Run(v.Name, func(t *testing.T) {
			limits, states := Limits(v.Limits), make([]State, len(v.Limits))
			limits.Fill(states, 0)
			for i, step := range v.Steps {
				d := limits.Take(states, step.At, step.Cost)
				requireStep(t, step, d, "step %d", i)
				assert.InDelta(t, step.Tokens, limits.Tokens(states, step.At), slack(limits, states), "step %d", i)
			}
		})
	}
}

func TestVectorsThroughLimit(t *testing.T) {
	for _, v := range vectors.Single() {
		state := v.Limits[0].Full(0)
		for i, step := range v.Steps {
			var d tokenbucket.Decision
			state, d = v.Limits[0].Take(state, step.At, step.Cost)
			requireStep(t, step, d, "%s, step %d", v.Name, i)
			assert.InDelta(t, step.Tokens, d.Tokens, slack(v.Limits, []State{state}), "%s, step %d", v.Name, i)
		}
	}
}

func TestVectorsThroughBucket(t *testing.T) {
	for _, v := range vectors.All() {
		t.Run(v.Name, func(t *testing.T) {
			mock := new(waittest.Clock)
			taking, trying := newBucket(t, mock, v.Limits...), newBucket(t, mock, v.Limits...)
			for i, step := range v.Steps {
				mock.Set(step.At)
				requireStep(t, step, taking.Take(step.Cost), "step %d", i)
				wait, ok := trying.TryAcquire(step.Cost)
				require.Equal(t, step.OK, ok, "step %d", i)
				require.Equal(t, step.Wait, wait, "step %d", i)
				require.Equal(t, taking.Tokens(), trying.Tokens(), "step %d", i)
			}
		})
	}
}

func requireStep(t *testing.T, step vectors.Step, d tokenbucket.Decision, where ...any) {
	t.Helper()
	require.Equal(t, step.OK, d.OK, where...)
	require.Equal(t, step.Wait, d.Wait, where...)
}

// slack is what a level may be off, in tokens.
func slack(limits Limits, states []State) (most float64) {
	for i, l := range limits {
		most = max(most, tolerance*max(l.Capacity, math.Abs(states[i].Balance)))
	}
	return most
}

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

// The arithmetic against the exact model.

// script is a sequence of requests: pairs of a time step and a cost.
type script struct {
	limits []Limit
	steps  []request
}

type request struct {
	after time.Duration
	cost  float64
}

// hold runs a script through the limits and the model, and holds one to the other.
func hold(t *testing.T, s script) {
	t.Helper()
	limits, states := Limits(s.limits), make([]State, len(s.limits))
	limits.Fill(states, 0)
	exact := model.New(s.limits...)
	spent := new(big.Rat)
	var now time.Duration
	for _, step := range s.steps {
		if now+step.after < now {
			break // the end of time
		}
		now += step.after
		exact.Advance(now)
		before := append([]State(nil), states...)
		off := new(big.Rat).SetFloat64(slack(limits, states))
		d := limits.Take(states, now, step.cost)
		where := fmt.Sprintf("%+v at %v, cost %v: %+v", s.limits, now, step.cost, d)
		holdAnswer(t, where, limits, before, now, step.cost, d)
		if !(step.cost >= 0) || math.IsInf(step.cost, 1) {
			require.False(t, d.OK, where)
			continue
		}
		cost := model.Exact(step.cost)
		switch wait := exact.Wait(cost); {
		case wait == 0 && step.cost > 0:
			if !d.OK { // exact has it, but by less than rounding can tell
				least := new(big.Rat).Sub(exact.Least(), cost)
				require.LessOrEqual(t, least.Cmp(off), 0, where)
			}
		case d.OK && step.cost > 0:
			short := new(big.Rat).Sub(cost, exact.Least())
			require.LessOrEqual(t, short.Cmp(new(big.Rat).Mul(off, big.NewRat(2, 1))), 0, where)
		}
		if d.OK {
			exact.Spend(cost)
			spent.Add(spent, cost)
		}
		holdBound(t, where, limits, states, now, spent)
	}
}

// holdAnswer checks what a decision says of itself by the same limits.
func holdAnswer(t *testing.T, where string, limits Limits, before []State, now time.Duration, cost float64, d tokenbucket.Decision) {
	t.Helper()
	if d.OK {
		require.Zero(t, d.Wait, where)
		return
	}
	require.Positive(t, d.Wait, where)
	ask := func(at time.Duration) bool {
		_, ok := limits.TryAcquire(append([]State(nil), before...), at, cost)
		return ok
	}
	if d.Wait == Never {
		require.False(t, ask(math.MaxInt64), where)
		return
	}
	if due := now + d.Wait; due > now {
		require.True(t, ask(due), where)
		require.False(t, ask(due-1), where)
	}
}

// holdBound checks that no more than capacity + refill * time has been spent.
func holdBound(t *testing.T, where string, limits Limits, states []State, now time.Duration, spent *big.Rat) {
	t.Helper()
	for i, l := range limits {
		bound := new(big.Rat).SetFrac(big.NewInt(int64(now)), big.NewInt(1e9))
		bound.Mul(bound, model.Exact(l.RefillPerSec)).Add(bound, model.Exact(l.Capacity))
		bound.Add(bound, model.Exact(2*slack(limits[i:i+1], states[i:i+1])))
		require.LessOrEqual(t, spent.Cmp(bound), 0, where)
	}
}

var extremes = []script{
	{[]Limit{{1e-300, 5e-324}}, []request{{0, 1e-300}, {year, 1e-300}, {100 * year, 1e-301}}},
	{[]Limit{{1 << 42, 1e300}}, []request{{0, 1 << 42}, {1, 1 << 42}, {1, 1}}},
	{[]Limit{{1e-300, 1e300}}, []request{{0, 1e-300}, {0, 1e-300}, {1, 1e-300}}},
	{[]Limit{{1 << 42, 5e-324}}, []request{{0, 1 << 42}, {290 * year, 1}}},
	{[]Limit{{1, 1e-11}}, []request{{0, 1}, {0, 1}, {100 * year, 1}}},
	{[]Limit{{1, 1e-10}}, []request{{0, 1}, {200 * year, 1}, {90 * year, 1}}},
	{[]Limit{{0.3, 0.1}}, []request{{0, 0.1}, {0, 0.1}, {0, 0.1}, {0, 0.1}, {sec, 0.1}}},
	{[]Limit{{1, 1}}, []request{{0, math.NaN()}, {0, -1}, {0, math.Inf(1)}, {0, math.Inf(-1)}, {0, 0}, {0, 1}}},
	{[]Limit{{3, 1. / 3}, {2, 10. / 13}}, []request{{0, 2}, {sec, 1}, {sec, 2}, {3 * sec, 2}}},
	{[]Limit{{1 << 42, 1e9}}, []request{{0, 1 << 42}, {1, 1}, {1, 1}, {1 << 47, 1 << 42}, {1, 3}}},
	{[]Limit{{1, 3}, {100, 1. / 60}, {30, 0.5}}, []request{{0, 1}, {0, 1}, {333333333, 1}, {1, 1}}},
}

func TestExtremes(t *testing.T) {
	for _, s := range extremes {
		hold(t, s)
	}
}

func FuzzTake(f *testing.F) {
	for _, s := range extremes {
		for _, step := range s.steps {
			f.Add(s.limits[0].Capacity, s.limits[0].RefillPerSec, 7.0, 0.5, step.cost, int64(step.after), uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, capacity, refill, capacity2, refill2, cost float64, after int64, seed uint64) {
		limits := []Limit{{capacity, refill}, {capacity2, refill2}}
		limits = limits[:1+seed%2]
		if Limits(limits).Validate() != nil || capacity < 1e-300 || capacity2 < 1e-300 {
			t.Skip()
		}
		random := rand.New(rand.NewPCG(seed, 0))
		s := script{limits: limits, steps: []request{{0, cost}}}
		for range 20 {
			s.steps = append(s.steps, randomRequest(random, cost, capacity, time.Duration(after)&math.MaxInt64))
		}
		hold(t, s)
	})
}

func randomRequest(random *rand.Rand, cost, capacity float64, after time.Duration) request {
	costs := []float64{cost, capacity, capacity / 3, capacity * random.Float64(), 1, 0}
	afters := []time.Duration{0, 1, after, after >> random.IntN(63), time.Duration(random.Int64N(int64(sec)))}
	return request{afters[random.IntN(len(afters))], costs[random.IntN(len(costs))]}
}

func TestRandomSequencesMatchTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		limits := make([]Limit, 1+random.IntN(3))
		for i := range limits {
			limits[i] = Limit{math.Exp(random.Float64()*12 - 2), math.Exp(random.Float64()*16 - 8)}
		}
		s := script{limits: limits}
		for range 40 {
			s.steps = append(s.steps, randomRequest(random, 1, limits[0].Capacity, time.Duration(random.Int64N(int64(time.Hour)))))
		}
		hold(t, s)
	}
}

// In the random states of a busy ledger, deep balances among them.
func TestDecisionFigures(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		limit := Limit{math.Exp(random.Float64() * 8), math.Exp(random.Float64()*16 - 8)}
		state := State{Balance: limit.Capacity - math.Exp(random.Float64()*8)*limit.Capacity}
		toLevel := (random.Float64()*limit.Capacity - state.Balance) / limit.RefillPerSec * 1e9
		now := time.Duration(min(toLevel, 1e18))
		state, d := limit.Take(state, now, limit.Capacity*random.Float64())
		where := fmt.Sprintf("%+v %+v", state, d)

		admits := func(at time.Duration, cost float64) bool {
			_, d := limit.Take(state, at, cost)
			return d.OK
		}
		require.True(t, admits(now, float64(d.Remaining())), where)
		require.False(t, admits(now, float64(d.Remaining()+1)), where)
		require.Equal(t, limit.Tokens(state, now), d.Tokens, where)
		if d.Reset() == Never {
			continue
		}
		full := limit.Capacity * (1 - 1e-9)
		require.GreaterOrEqual(t, limit.Tokens(state, now+d.Reset()), full, where)
		if d.Reset() > 1000 {
			require.Less(t, limit.Tokens(state, now+d.Reset()-1000), limit.Capacity, where)
		}
	}
}

func TestRemainingCountsWhatRoundingTook(t *testing.T) {
	limit := Limit{Capacity: 1, RefillPerSec: 0.1}
	state := limit.Full(0)
	for range 10 {
		state, _ = limit.Take(state, 0, 0.1) // 1.4e-16 are left
	}
	_, d := limit.Take(state, 10*sec, 0)
	require.Equal(t, int64(1), d.Remaining())
	require.Equal(t, int64(0), tokenbucket.Decision{Tokens: -3, Limit: limit}.Remaining())
	require.Equal(t, int64(math.MaxInt64), tokenbucket.Decision{Tokens: 1e300, Limit: limit}.Remaining())
	require.Zero(t, tokenbucket.Decision{Tokens: math.NaN()}.Remaining())
}

func TestBusyYearLosesNoByte(t *testing.T) {
	const cost = 1<<34 - 1<<20
	limit := Limit{Capacity: 1 << 34, RefillPerSec: 1e9}
	state := limit.Full(0)
	var now time.Duration
	var admitted float64
	for now < year {
		var d tokenbucket.Decision
		if state, d = limit.Take(state, now, cost); d.OK {
			admitted += cost
		}
		now += d.Wait
	}
	passed := limit.Capacity + 1e9*now.Seconds() - limit.Tokens(state, now)
	require.InDelta(t, passed, admitted, 1)
}

func TestYearBelowTheCapKeepsNanoseconds(t *testing.T) {
	limit := Limit{Capacity: 20, RefillPerSec: 1}
	state, _ := limit.Take(limit.Full(0), 0, 20)
	for at := 10 * sec; at < year; at += 10 * sec {
		early := 1 + at/sec%997
		var d tokenbucket.Decision
		if state, d = limit.Take(state, at-early, 10); d.Wait != early {
			require.Equal(t, early, d.Wait, at)
		}
		if state, d = limit.Take(state, at, 10); !d.OK {
			require.True(t, d.OK, at)
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
	_, d := limit.Take(states[0], 1e6*sec, 1)
	require.Equal(t, Never, d.Wait)
	require.False(t, math.IsInf(d.Tokens, 0) || math.IsNaN(d.Tokens))
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
	require.Equal(t, tokenbucket.Decision{Wait: 2 * sec, Limit: limits[1]}, d)
	require.Equal(t, 8.0, limits[0].Tokens(states[0], 0), "a refusal by one takes nothing from another")
	d = limits.Take(states, 0, 3)
	require.Equal(t, Never, d.Wait)
	require.Equal(t, limits[1], d.Limit, "the one that can never be met")
	require.Equal(t, tokenbucket.Decision{OK: true}, Limits{}.Take(nil, 0, 0))
	require.Equal(t, Never, Limits{}.Take(nil, 0, 1).Wait)
}

// Limits as they are written.

func TestLimitsAsTheyAreWritten(t *testing.T) {
	require.Equal(t, Limit{7, 7}, tokenbucket.PerSecond(7))
	require.Equal(t, Limit{30, 0.5}, tokenbucket.PerMinute(30))
	require.Equal(t, Limit{36, 0.01}, tokenbucket.PerHour(36))
	require.Equal(t, Limit{1, 1. / 49}, tokenbucket.Per(1, 49*sec))
	require.Equal(t, Limit{20, 1. / 6}, tokenbucket.Within(30, time.Minute, 20))

	for _, l := range []Limit{
		tokenbucket.PerSecond(0), tokenbucket.PerMinute(-1), tokenbucket.PerHour(math.NaN()), tokenbucket.Per(math.Inf(1), sec),
		tokenbucket.Per(1, 0), tokenbucket.Per(1, -sec), tokenbucket.Per(0, 0), tokenbucket.Per(-1, -sec),
		tokenbucket.Within(5, sec, 5), tokenbucket.Within(5, sec, 6), tokenbucket.Within(5, sec, 0), tokenbucket.Within(5, sec, -1),
		tokenbucket.Within(5, 0, 1), tokenbucket.Within(5, -sec, 1), tokenbucket.Within(5, -sec, 6), tokenbucket.Within(math.NaN(), sec, 1),
		tokenbucket.Within(5, sec, math.NaN()), tokenbucket.Within(math.Inf(1), sec, 1),
	} {
		require.ErrorIs(t, l.Validate(), tokenbucket.ErrInvalidLimit, "%+v", l)
	}
}

func TestWithinPassesNoMoreInAnyWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		n := float64(2 + random.IntN(60))
		d := time.Duration(1 + random.Int64N(int64(time.Minute)))
		limit := tokenbucket.Within(n, d, max(1, math.Floor(n*random.Float64())))
		if limit.Validate() != nil {
			continue
		}
		require.LessOrEqual(t, mostInWindow(grants(limit, d, random), d), int(n), "%+v in %v", limit, d)
	}
}

func TestPerPassesTwiceInOneWindow(t *testing.T) {
	limit := tokenbucket.PerMinute(30)
	most := mostInWindow(grants(limit, time.Minute, nil), time.Minute)
	require.Equal(t, 60, most)
}

// grants returns the instants at which cost-1 requests are admitted over six
// windows: greedy, and where there is a source of chance with pauses in between.
func grants(limit Limit, window time.Duration, random *rand.Rand) (instants []time.Duration) {
	state := limit.Full(0)
	for now := time.Duration(0); now < 6*window; {
		var d tokenbucket.Decision
		if state, d = limit.Take(state, now, 1); d.OK {
			instants = append(instants, now)
		}
		now += d.Wait
		if random != nil && random.IntN(10) == 0 {
			now += time.Duration(random.Int64N(int64(window)))
		}
	}
	return instants
}

// mostInWindow slides a window over the instants, both of its ends counting.
func mostInWindow(instants []time.Duration, window time.Duration) (most int) {
	first := 0
	for last, at := range instants {
		for at-instants[first] > window {
			first++
		}
		most = max(most, last-first+1)
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

func TestMistakeRefusalRefillsAgain(t *testing.T) {
	run(t, Limit{1, 1}, row{0, 1, 0}, row{600 * ms, 1, 400 * ms}, row{600 * ms, 1, 400 * ms}, row{700 * ms, 1, 300 * ms})
}

func TestMistakeStartsEmpty(t *testing.T) { run(t, Limit{3, 1}, row{0, 3, 0}) }

func TestMistakeRefilledSinceTimeZero(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Unix(1e9, 0))
	bucket, err := tokenbucket.New(Limit{3, 1}, tokenbucket.WithClock(mock), tokenbucket.WithTokens(0))
	require.NoError(t, err)
	require.Zero(t, bucket.Tokens())
}

func TestMistakeOneCostForEverything(t *testing.T) {
	run(t, Limit{10, 1}, row{0, 5, 0}, row{0, 1, 0}, row{0, 5, sec}, row{0, 4, 0})
}

func TestMistakeQuotingTheWaitForOne(t *testing.T) {
	run(t, Limit{10, 0.5}, row{0, 10, 0}, row{0, 1, 2 * sec}, row{0, 5, 10 * sec})
}

// Public bug reports of other limiters.

func TestReportedCases(t *testing.T) {
	for name, c := range map[string]struct {
		limit Limit
		rows  []row
	}{
		"RateLimiters#3":     {Limit{1, 1}, []row{{0, 1, 0}, {900 * ms, 1, 100 * ms}, {sec, 1, 0}}},
		"golang/go#34861":    {Limit{1, 10. / 13}, []row{{0, 1, 0}, {0, 1, 1300 * ms}, {1300*ms - 1, 1, 1}, {1300 * ms, 1, 0}}},
		"betty#1266":         {Limit{1, 3}, []row{{0, 1, 0}, {0, 1, 333333334}, {333333334, 1, 0}}},
		"golang/go#71154":    {Limit{1, 1e-11}, []row{{0, 1, 0}, {0, 1, Never}}},
		"limits#362":         {Limit{1, 1}, []row{{0, 1, 0}, {0, -5, Never}, {0, math.NaN(), Never}, {0, 1, sec}, {0, 0, 0}}},
		"bucket4j#220":       {Limit{3, 1.5}, []row{{0, 4, Never}, {0, 3, 0}}},
		"golang/go#56287":    {Limit{10, 1}, []row{{10 * sec, 10, 0}, {9 * sec, 1, 2 * sec}, {10 * sec, 1, sec}, {11 * sec, 1, 0}}},
		"aiolimiter#217":     {Limit{3, 1}, []row{{0, 2, 0}, {0, 2, sec}}},
		"ratelimit#122":      {Limit{3, 1}, []row{{0, 3, 0}, {4 * sec, 3, 0}, {4 * sec, 1, sec}}},
		"bucket4j#51":        {Limit{1000, 1000}, []row{{0, 1000, 0}, {12 * time.Hour, 1000, 0}, {12 * time.Hour, 1, ms}, {290 * year, 1000, 0}, {290 * year, 1, ms}}},
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

func TestReportedRefusalsChangeNothing(t *testing.T) { // golang/go#52584
	rows := []row{{0, 2, 0}}
	for range 100 {
		rows = append(rows, row{0, 2, 2 * sec})
	}
	run(t, Limit{2, 1}, append(rows, row{0, 1, sec})...)
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
}

// Retry-After, both ways.

func TestRetryAfterRoundsUp(t *testing.T) {
	for wait, want := range map[time.Duration]int64{-sec: 0, 0: 0, 1: 1, ms: 1, sec - 1: 1, sec: 1, sec + 1: 2, 5500 * ms: 6, Never - 1: 9223372037} {
		got, ok := tokenbucket.RetryAfter(wait)
		require.True(t, ok)
		require.Equal(t, want, got, wait)
	}
	_, ok := tokenbucket.RetryAfter(Never)
	require.False(t, ok)
	_, ok = tokenbucket.Decision{Wait: Never}.RetryAfter()
	require.False(t, ok)
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, time.November, 6, 8, 49, 37, 5e8, time.FixedZone("", 3600)) // 07:49:37.5 UTC
	for value, want := range map[string]time.Duration{
		"0": 0, "120": 2 * time.Minute, " 7\t": 7 * sec, "007": 7 * sec,
		"9223372036":                      9223372036 * sec,
		"9223372037":                      Never,
		"18446744073709551617":            Never,
		strings.Repeat("9", 400):          Never,
		"Fri, 06 Nov 2026 07:49:38 GMT":   500 * ms,
		" Fri, 06 Nov 2026 07:50:37 GMT ": 59500 * ms,
		"Friday, 06-Nov-26 07:49:38 GMT":  500 * ms,
		"Fri Nov  6 07:49:38 2026":        500 * ms,
		"Sun, 06 Nov 1994 08:49:37 GMT":   0,
		"Sunday, 06-Nov-94 08:49:37 GMT":  0, // 2094 would be 68 years ahead
		"Mon, 31 Dec 9999 23:59:59 GMT":   Never,
		"Mon, 06 Nov 2026 07:49:38 GMT":   500 * ms, // it is a Friday, and the date is plain all the same
	} {
		got, err := tokenbucket.ParseRetryAfter(value, now)
		require.NoError(t, err, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{
		"", " ", "-1", "+5", "1.5", "99x", "1 2", "1e3", "0x10", "١٢", "5s", "soon", "Fri, 06 Nov 2026", "NaN",
		"Fri, 06 Nov 2026 07:49:38 CET", "Fri, 06 Nov 2026 07:49:38.5 GMT", "Fri, 06 Nov 2026 7:49:38 GMT",
		"Fri, 6 Nov 2026 07:49:38 GMT", "Fri, 31 Feb 2026 07:49:38 GMT", "2026-11-06T07:49:38Z", "Fri, 06 Nov 2026 07:49:38 GMT x",
		"Fri Nov 06 07:49:38 2026",
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
		{"2026-01-01", "Monday, 01-Jan-76 00:00:00 GMT", false}, // 50 years ahead, not more
		{"2026-01-01", "Friday, 02-Jan-76 00:00:00 GMT", true},
		{"2099-12-31", "Friday, 01-Jan-00 00:00:00 GMT", false}, // tomorrow, in 2100
		{"2026-01-01", "Thursday, 01-Jan-26 00:00:01 GMT", false},
	} {
		now, err := time.Parse(time.DateOnly, c.now)
		require.NoError(t, err)
		wait, err := tokenbucket.ParseRetryAfter(c.value, now)
		require.NoError(t, err)
		require.Equal(t, c.past, wait == 0, c.value)
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, value := range []string{"0", "120", "9223372037", "Fri, 06 Nov 2026 07:49:38 GMT", "Friday, 06-Nov-26 07:49:38 GMT", "Fri Nov  6 07:49:38 2026", "-1", "1.5"} {
		f.Add(value, int64(1793951377))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		wait, err := tokenbucket.ParseRetryAfter(value, time.Unix(unix%1e11, 0))
		require.GreaterOrEqual(t, wait, time.Duration(0))
		digits := strings.TrimSpace(value)
		if digits == "" || strings.Trim(digits, "0123456789") != "" {
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
		_, d := l.Take(State{}, 5, 1) // it need not make sense, but it ends
		require.NotZero(t, d.OK || d.Wait > 0)
		_ = d.Reset()
	}
	require.ErrorIs(t, bucket.SetLimits(), tokenbucket.ErrInvalidLimit)
	require.ErrorIs(t, bucket.SetLimits(Limit{1, 1}, Limit{1, 1}), tokenbucket.ErrInvalidLimit)
	require.Equal(t, []Limit{{1, 1}}, bucket.Limits())
	require.NoError(t, Limit{1 << 42, math.MaxFloat64}.Validate())
	require.NoError(t, Limit{5e-324, 5e-324}.Validate())
	require.Panics(t, func() { tokenbucket.MustNew(Limit{}) })
}

func TestInvalidOptions(t *testing.T) {
	for _, opt := range []tokenbucket.Option{
		tokenbucket.WithTokens(-1), tokenbucket.WithTokens(11), tokenbucket.WithTokens(math.NaN()), tokenbucket.WithTokens(math.Inf(1)),
		tokenbucket.WithMaxWaiters(-1),
		tokenbucket.WithState(time.Now(), nil), tokenbucket.WithState(time.Now(), make([]State, 2)),
		tokenbucket.WithState(time.Now(), []State{{Balance: math.NaN()}}), tokenbucket.WithState(time.Now(), []State{{Balance: math.Inf(-1)}}),
	} {
		_, err := tokenbucket.New(Limit{10, 1}, opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	}
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
	require.NoError(t, bucket.Charge(100))
	require.Equal(t, -95.0, bucket.Tokens())
	require.NoError(t, bucket.Wait(ctx, 0), "0 is admitted even in debt")
	require.NoError(t, bucket.Wait(ctx, math.Copysign(0, -1)))
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
	require.NoError(t, bucket.SetLimits())
	require.ErrorIs(t, bucket.SetLimits(Limit{1, 1}), tokenbucket.ErrInvalidLimit)
	require.Empty(t, bucket.Limits())
	require.Zero(t, bucket.Tokens())
	require.Zero(t, bucket.Waiting())
	var decision tokenbucket.Decision
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
	require.Contains(t, err.Error(), "1s")
	require.NotContains(t, (&tokenbucket.DeadlineError{Wait: Never}).Error(), "292")
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
			tokenbucket.WithClock(mock), tokenbucket.WithState(origin, states))
		require.NoError(t, err)
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

// Clocks and costs of a call.

var _ tokenbucket.Clock = (*clock.Mock)(nil)

func TestOneClockReadACall(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{2, 1})
	for name, call := range map[string]func(){
		"TryAcquire": func() { bucket.TryAcquire(1) },
		"Take":       func() { bucket.Take(1) },
		"Wait":       func() { assert.NoError(t, bucket.Wait(context.Background(), 0)) },
	} {
		before := mock.Reads()
		call()
		require.Equal(t, before+1, mock.Reads(), name)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	ctx := context.Background()
	bucket := tokenbucket.MustNew(Limit{1 << 40, 1}, tokenbucket.WithLimit(Limit{1 << 40, 2}))
	empty := tokenbucket.MustNew(Limit{1, 1e-6}, tokenbucket.WithTokens(0))
	for name, call := range map[string]func(){
		"TryAcquire": func() { bucket.TryAcquire(1) },
		"refused":    func() { empty.TryAcquire(1) },
		"Take":       func() { bucket.Take(1) },
		"Wait":       func() { _ = bucket.Wait(ctx, 1) },
		"Limit.Take": func() { Limit{1, 1}.Take(State{}, 0, 1) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, call), name)
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

// Benchmarks. BenchmarkClock is the limit of the machine, to compare with.

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
	roomy = Limit{Capacity: 1 << 42, RefillPerSec: 1}
	tight = Limit{Capacity: 1, RefillPerSec: 1e-6}
)

func BenchmarkTryAcquire(b *testing.B) {
	for name, opts := range map[string][]tokenbucket.Option{
		"limits=1": nil, "limits=2": {tokenbucket.WithLimit(Limit{1 << 41, 2})},
	} {
		b.Run("admitted/"+name, func(b *testing.B) {
			bucket := tokenbucket.MustNew(roomy, opts...)
			b.ReportAllocs()
			for b.Loop() {
				bucket.TryAcquire(1)
			}
		})
	}
	for name, opts := range map[string][]tokenbucket.Option{
		"limits=1": nil, "limits=2": {tokenbucket.WithLimit(Limit{1, 2e-6})},
	} {
		b.Run("refused/"+name, func(b *testing.B) {
			bucket := tokenbucket.MustNew(tight, append(opts, tokenbucket.WithTokens(0))...)
			b.ReportAllocs()
			for b.Loop() {
				bucket.TryAcquire(1)
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		bucket := tokenbucket.MustNew(roomy)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				bucket.TryAcquire(1)
			}
		})
	})
}

func BenchmarkTake(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy)
	b.ReportAllocs()
	for b.Loop() {
		bucket.Take(1)
	}
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
