package tokenbucket_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestShortfallUpToTheToleranceCountsAsNone(t *testing.T) {
	limit := Limit{1, 1}
	state, d := limit.Take(State{Balance: 1 - 0x1p-50}, 0, 1)
	require.True(t, d.OK)
	require.Equal(t, -0x1p-50, state.Balance, "what was borrowed stays on the ledger")
	_, d = limit.Take(State{Balance: 1 - 0x1p-50 - 0x1p-53}, 0, 1)
	require.Equal(t, time.Duration(1), d.Wait)
}

// At a gigabyte per second, a byte takes a nanosecond. So whole numbers show whether a byte
// was lost or minted in three million chunks.
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

// With the small capacity the balance becomes deep, with the large one the anchor becomes
// old.
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

// The refill is 1024 tokens a nanosecond. If the balance became so low that neighbouring
// float64s are many tokens apart, an odd cost would be lost in it.
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

// A running level would be rounded at each grant, and after some thousand grants a wait
// would be wrong by a nanosecond. The test computes the level in integers: in parts of a
// token of which both a quarter of a token and the refill of a nanosecond are multiples.
func TestRoundingAtEachGrantDoesNotAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	for _, c := range []struct{ quarters, tokens, seconds int64 }{ // quarters: the capacity; the refill is tokens per seconds
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

// traffic returns the grants of a client in six windows. The client takes tokens at each
// instant at which it can. If random is not nil, it pauses now and then. Costs are 1, or
// any number of quarters in style 1; in style 2 the client returns with bursts.
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

// mostInWindow slides a window over the grants, and returns the most in one window.
// Grants at both ends count.
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

// An invalid limit may return any answers, but must return them at once.
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
		require.Equal(t, Decision{Wait: Never, LimitIndex: -1}, d)
		require.Equal(t, state, after)
		_, d = limit.Take(state, sec, 0)
		require.Equal(t, Decision{OK: true, LimitIndex: -1}, d)
		require.Zero(t, limit.Tokens(state, sec))

		one := Limits{limit}
		require.Equal(t, Decision{Wait: Never, LimitIndex: -1}, one.Take([]State{state}, sec, 1))
		two := Limits{{1, 1}, limit}
		require.Equal(t, -1, two.TakeEach([]State{{}, state}, 2*sec, 1, 1).LimitIndex)
	}
}
