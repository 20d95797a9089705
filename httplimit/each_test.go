package httplimit_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// levels is a Limiter with several limits and a clock that stands still. All of its
// methods take one cost for each limit.
type levels struct {
	mu     sync.Mutex
	limits []tokenbucket.Limit
	tokens []float64
}

func newLevels(capacities ...float64) *levels {
	l := &levels{tokens: capacities}
	for _, capacity := range capacities {
		l.limits = append(l.limits, tokenbucket.Limit{Capacity: capacity, RefillPerSec: capacity / 60})
	}
	return l
}

func (l *levels) Limits() []tokenbucket.Limit { return l.limits }

func (l *levels) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return l.TakeEach(ctx, key, l.each(cost)...)
}

func (l *levels) each(cost float64) (costs []float64) {
	for range l.limits {
		costs = append(costs, cost)
	}
	return costs
}

func (l *levels) TakeEach(_ context.Context, _ string, costs ...float64) (tokenbucket.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(costs) != len(l.limits) {
		return tokenbucket.Decision{Wait: tokenbucket.Never, LimitIndex: -1}, nil
	}
	longest := tokenbucket.Decision{OK: true, LimitIndex: -1}
	for i, cost := range costs {
		_, d := l.limits[i].Take(tokenbucket.State{Balance: l.tokens[i]}, 0, cost)
		if d.LimitIndex = i; longest.LimitIndex < 0 || d.Wait > longest.Wait {
			longest = d
		}
	}
	if longest.OK {
		longest = l.takeLocked(costs)
	}
	return longest, nil
}

// takeLocked reports the limit for which the same costs would wait longest next.
func (l *levels) takeLocked(costs []float64) tokenbucket.Decision {
	longest := tokenbucket.Decision{LimitIndex: -1}
	for i, cost := range costs {
		l.tokens[i] -= cost
		_, d := l.limits[i].Take(tokenbucket.State{Balance: l.tokens[i]}, 0, cost)
		if d.LimitIndex, d.Tokens = i, l.tokens[i]; longest.LimitIndex < 0 || d.Wait > longest.Wait {
			longest = d
		}
	}
	longest.OK, longest.Wait = true, 0
	return longest
}

func (l *levels) add(sign float64, costs []float64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, cost := range costs {
		l.tokens[i] = min(l.tokens[i]+sign*cost, l.limits[i].Capacity)
	}
	return nil
}

func (l *levels) Refund(_ context.Context, _ string, cost float64) error {
	return l.add(1, l.each(cost))
}
func (l *levels) Charge(_ context.Context, _ string, cost float64) error {
	return l.add(-1, l.each(cost))
}

func (l *levels) RefundEach(_ context.Context, _ string, costs ...float64) error {
	return l.add(1, costs)
}

func (l *levels) ChargeEach(_ context.Context, _ string, costs ...float64) error {
	return l.add(-1, costs)
}

func costingEach(costs ...float64) httplimit.Option {
	return httplimit.WithCostEach(func(*http.Request) []float64 { return costs })
}

// 3 requests and 1000 tokens a minute; a request costs 1 and 400.
func TestCostOfEachLimit(t *testing.T) {
	own := newLevels(3, 1000).limits
	clock := new(waittest.Clock)
	bucket := tokenbucket.MustNew(own[0], tokenbucket.WithLimit(own[1]), tokenbucket.WithClock(clock))
	buckets, err := keyed.New[string](own[0], keyed.WithLimit(own[1]), keyed.WithClock(clock))
	require.NoError(t, err)
	for name, limiter := range map[string]httplimit.Limiter{
		"another's": newLevels(3, 1000), "Shared": httplimit.Shared(bucket), "PerKey": httplimit.PerKey(buckets),
	} {
		t.Run(name, func(t *testing.T) { requireCostOfEachLimit(t, limiter) })
	}
}

func requireCostOfEachLimit(t *testing.T, limiter httplimit.Limiter) {
	g := newGatewayOf(t, limiter, costingEach(1, 400), httplimit.WithPolicyNames("requests", "tokens"), httplimit.WithAdmission())
	const policy = `"requests";q=3;w=60, "tokens";q=1000;w=60`
	require.Equal(t, 200, g.get("/").StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "1000", "X-RateLimit-Remaining": "200", "X-RateLimit-Reset": "48", "RateLimit": `"tokens";r=200;t=12`, "RateLimit-Policy": policy,
	}, g.get("/"))
	require.Equal(t, 400.0, g.lastEvent().Cost)
	require.Equal(t, []float64{1, 400}, g.lastEvent().Costs)
	refused := g.get("/")
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "1000", "X-RateLimit-Remaining": "200", "X-RateLimit-Reset": "48", "RateLimit": `"tokens";r=200;t=12`, "RateLimit-Policy": policy,
		"Retry-After": "12", "Cache-Control": "no-store",
	}, refused)
	require.Equal(t, "Tokens needed: 400, left: 200. Retry in 12 s.", body(t, refused)["detail"])
	require.Equal(t, "tokens", g.lastEvent().Policy)

	all := settler(limiter)
	require.NoError(t, all.RefundEach(context.Background(), g.lastEvent().Key, 0, 250))
	require.NoError(t, all.ChargeEach(context.Background(), g.lastEvent().Key, 0, 50))
	d, err := all.TakeEach(context.Background(), g.lastEvent().Key, 1, 400) // the refusal took nothing from either
	require.NoError(t, err)
	require.True(t, d.OK)
	require.Equal(t, 0.0, d.Tokens)
}

// Costs through Both are in the order of its Limits.
func TestCostOfEachLimitThroughBoth(t *testing.T) {
	ctx := context.Background()
	first, second := newLevels(3, 1000), newLevels(5)
	both := httplimit.Both(first, second)
	g := newGatewayOf(t, both, costingEach(1, 400, 2), httplimit.WithPolicyNames("requests", "tokens", "everybody"))
	for range 2 {
		require.Equal(t, 200, g.get("/").StatusCode)
	}
	require.Equal(t, []float64{1, 200}, first.tokens)
	require.Equal(t, []float64{1}, second.tokens)
	require.Equal(t, "tokens", g.lastEvent().Policy, "it waits 12 s, everybody 12 s too: the first on a tie")

	require.NoError(t, first.RefundEach(ctx, "", 0, 500))
	refused := g.get("/")
	require.Equal(t, "12", refused.Header.Get("Retry-After"))
	require.Equal(t, `"everybody";r=1;t=12`, refused.Header.Get("RateLimit"))
	require.Equal(t, 2.0, g.lastEvent().Cost)
	require.Equal(t, []int{1, 0}, []int{g.lastEvent().LimiterIndex, g.lastEvent().Decision.LimitIndex})
	require.Equal(t, []float64{1, 700}, first.tokens, "given back as it was taken")

	for _, c := range []struct {
		settle func(...float64) error
		want   [][]float64
	}{
		{func(costs ...float64) error { return settler(both).ChargeEach(ctx, "", costs...) }, [][]float64{{0, 600}, {-2}}},
		{func(costs ...float64) error { return settler(both).RefundEach(ctx, "", costs...) }, [][]float64{{1, 700}, {1}}},
	} {
		require.ErrorIs(t, c.settle(1, 100), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, c.settle(1, 100, -3), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, c.settle(1, 100, math.Inf(1)), tokenbucket.ErrInvalidCost)
		require.NoError(t, c.settle(1, 100, 3))
		require.Equal(t, c.want, [][]float64{first.tokens, second.tokens})
	}
}

// eachSettler has the optional methods of a Limiter.
type eachSettler interface {
	httplimit.Refunder
	TakeEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error)
	RefundEach(ctx context.Context, key string, costs ...float64) error
	Charge(ctx context.Context, key string, cost float64) error
	ChargeEach(ctx context.Context, key string, costs ...float64) error
}

func settler(l httplimit.Limiter) eachSettler { return l.(eachSettler) }

func TestCostsOfZeroAskNothing(t *testing.T) {
	first, second := newLevels(3), newLevels(1000)
	first.tokens[0] = -5
	g := newGatewayOf(t, httplimit.Both(first, second), costingEach(0, 400), httplimit.WithPolicyNames("requests", "tokens"))
	require.Equal(t, 200, g.get("/").StatusCode)
	require.Equal(t, "tokens", g.lastEvent().Policy)
}

func TestEqualCostsAreOneCost(t *testing.T) {
	var answers []*http.Response
	for _, opt := range []httplimit.Option{costing(2), costingEach(2, 2)} {
		g := newGatewayOf(t, httplimit.Both(newLevels(30), newLevels(5)), opt)
		for range 3 {
			answers = append(answers, g.get("/"))
		}
	}
	for i, answer := range answers[:3] {
		require.Equal(t, answer.StatusCode, answers[3+i].StatusCode)
		require.Equal(t, answer.Header, answers[3+i].Header)
	}
}

func TestCostsThatDoNotFitAreRefused(t *testing.T) {
	for _, limiter := range []func() httplimit.Limiter{
		func() httplimit.Limiter { return newLevels(3, 1000) },
		func() httplimit.Limiter { return httplimit.Both(newLevels(3), newLevels(1000)) },
	} {
		for _, costs := range [][]float64{nil, {}, {1}, {1, 2, 3}, {1, 2000}, {1, -1}, {math.NaN(), 1}} {
			g := newGatewayOf(t, limiter(), costingEach(costs...))
			answer := g.get("/")
			require.Equal(t, 429, answer.StatusCode, costs)
			require.Empty(t, answer.Header.Get("Retry-After"))
			require.Contains(t, body(t, answer)["detail"], "never be met")
		}
	}
}

func TestAdmissionSettlesEachLimit(t *testing.T) {
	ctx, l := context.Background(), newLevels(3, 1000)
	a := admissions(t, l, costingEach(1, 400))()
	require.Equal(t, 1.0, a.Cost, "neither would wait next: the first limit's")
	require.Equal(t, []float64{1, 400}, a.Costs)
	require.NoError(t, a.RefundEach(ctx, 0, 250))
	require.Equal(t, []float64{2, 850}, l.tokens)
	require.NoError(t, a.ChargeEach(ctx, 0, 50))
	require.Equal(t, []float64{2, 800}, l.tokens)
	require.NoError(t, a.Charge(ctx, 1))
	require.Equal(t, []float64{1, 799}, l.tokens)
}

// scalar has no method that ends in Each.
type scalar struct{ httplimit.Refunder }

func (scalar) Charge(context.Context, string, float64) error { return nil }

func (s scalar) Limits() []tokenbucket.Limit { return tenHalf }

func TestLimitersWithoutTakeEachAreStartUpErrors(t *testing.T) {
	ctx, good := context.Background(), newLevels(3)
	bad := scalar{mute{fixed{OK: true}}}
	for name, limiter := range map[string]httplimit.Limiter{
		"one": bad, "the first of two": httplimit.Both(bad, good), "the second of two": httplimit.Both(good, bad),
		"the first has no limits": httplimit.Both(silentLevels{good}, good),
	} {
		_, err := httplimit.New(limiter, costingEach(1))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
		_, err = httplimit.New(good, costingEach(1), httplimit.WithFallback(limiter))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
		_, err = httplimit.New(limiter, costingEach(1), costing(1))
		require.NoError(t, err, "the later option counts")
	}
	_, err := httplimit.New(good, httplimit.WithCostEach(nil))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)

	both := settler(httplimit.Both(good, bad))
	_, err = both.TakeEach(ctx, "", 1, 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, both.ChargeEach(ctx, "", 1, 1), errors.ErrUnsupported)
	require.EqualError(t, both.RefundEach(ctx, "", 1, 1), "httplimit: unsupported operation: the limiter has no RefundEach; in Both, the first needs Limits as well: add the method, or use a limiter of this module")
	require.Equal(t, []float64{3}, good.tokens, "nothing was changed")
	require.ErrorIs(t, admissions(t, bad)().RefundEach(ctx, 1), errors.ErrUnsupported)
}

// silentLevels does not report its limits.
type silentLevels struct{ eachSettler }
