package httplimit_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// house has a bucket for each client and one for all clients, on one clock.
type house struct {
	clock    *waittest.Clock
	own      *keyed.Buckets[string]
	everyone *tokenbucket.Bucket
	both     httplimit.Limiter
}

func newHouse(t *testing.T, own, everyone tokenbucket.Limit) *house {
	t.Helper()
	h := &house{clock: new(waittest.Clock)}
	var err error
	h.own, err = keyed.New[string](own, keyed.WithClock(h.clock))
	require.NoError(t, err)
	h.everyone, err = tokenbucket.New(everyone, tokenbucket.WithClock(h.clock))
	require.NoError(t, err)
	h.both = httplimit.Both(httplimit.PerKey(h.own), httplimit.Shared(h.everyone))
	return h
}

func TestBothGivesBackWhatTheSecondRefused(t *testing.T) {
	h := newHouse(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 4, RefillPerSec: 0.5})
	g := newGatewayOf(t, h.both, httplimit.WithPolicyNames("client", "everyone"))
	policy := `"client";q=3;w=3, "everyone";q=4;w=8`
	alice, bob := from("192.0.2.1:1"), from("192.0.2.2:1")
	for range 3 {
		require.Equal(t, 200, g.get("/", alice).StatusCode)
	}
	refused := g.get("/", alice)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3",
		"RateLimit": `"client";r=0;t=1`, "RateLimit-Policy": policy, "Retry-After": "1", "Cache-Control": "no-store",
	}, refused)
	require.Equal(t, []any{"client"}, body(t, refused)["violated-policies"])
	require.Equal(t, 1.0, h.everyone.Tokens(), "a refusal by its own bucket takes nothing from everyone's")

	require.Equal(t, 200, g.get("/", bob).StatusCode)
	refused = g.get("/", bob)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "4", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "8",
		"RateLimit": `"everyone";r=0;t=2`, "RateLimit-Policy": policy, "Retry-After": "2", "Cache-Control": "no-store",
	}, refused)
	require.Equal(t, []any{"everyone"}, body(t, refused)["violated-policies"])
	require.Equal(t, 2.0, h.own.Tokens("192.0.2.2"), "given back")

	h.clock.Set(2 * sec)
	require.Equal(t, 200, g.get("/", bob).StatusCode, "a client that waits is admitted")
}

func TestBothRefusesAThousandTimesForNothing(t *testing.T) {
	h := newHouse(t, tokenbucket.Limit{Capacity: 5, RefillPerSec: 1e-9}, tokenbucket.Limit{Capacity: 5, RefillPerSec: 1e-9})
	require.NoError(t, h.everyone.Charge(5))
	for range 1000 {
		d, err := h.both.Take(context.Background(), "alice", 0.3)
		require.NoError(t, err)
		require.False(t, d.OK)
	}
	require.Equal(t, 5.0, h.own.Tokens("alice"))
	require.NoError(t, h.everyone.Refund(5))
	d, err := h.both.Take(context.Background(), "alice", 5)
	require.NoError(t, err)
	require.True(t, d.OK)
}

func TestBothTellsWhatBinds(t *testing.T) {
	for _, c := range []struct {
		name          string
		own, everyone tokenbucket.Limit
		cost          float64
		everyoneBinds bool
	}{
		{"everyone's waits longer next", tokenbucket.Limit{Capacity: 5, RefillPerSec: 10}, tokenbucket.Limit{Capacity: 6, RefillPerSec: 0.1}, 5, true},
		{"its own waits longer next", tokenbucket.Limit{Capacity: 6, RefillPerSec: 0.1}, tokenbucket.Limit{Capacity: 5, RefillPerSec: 10}, 5, false},
		{"none waits, everyone's has less", tokenbucket.Limit{Capacity: 100, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, 1, true},
		{"none waits, everyone's has a fraction less", tokenbucket.Limit{Capacity: 10.5, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 10.2, RefillPerSec: 1}, 1, true},
		{"none waits, its own has less", tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 100, RefillPerSec: 1}, 1, false},
	} {
		h := newHouse(t, c.own, c.everyone)
		d, err := h.both.Take(context.Background(), "alice", c.cost)
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Equal(t, c.everyoneBinds, d.Limit == c.everyone, c.name)
	}
}

func TestBothNamesWhichOfTwoEqualLimits(t *testing.T) {
	limit := tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}
	h := newHouse(t, limit, limit)
	alone := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 100, RefillPerSec: 1}))
	nested := httplimit.Both(alone, h.both)
	names := func(limiter httplimit.Limiter, peer string) any {
		return body(t, newGatewayOf(t, limiter).get("/", from(peer)))["violated-policies"]
	}
	require.Contains(t, newGatewayOf(t, h.both, costing(0)).get("/").Header.Get("RateLimit"), `"default";`, "on a tie, the first")
	_, err := h.both.Take(context.Background(), "192.0.2.1", 2)
	require.NoError(t, err)
	require.Equal(t, []any{"default"}, names(h.both, "192.0.2.1:1"))
	require.Equal(t, []any{"default-2"}, names(h.both, "192.0.2.2:1"))
	require.Equal(t, []any{"default-2"}, names(nested, "192.0.2.1:1"))
	require.Equal(t, []any{"default-3"}, names(nested, "192.0.2.2:1"))
}

// calledOff cancels the request while it decides.
type calledOff struct{ cancel context.CancelFunc }

func (c calledOff) Take(ctx context.Context, _ string, _ float64) (tokenbucket.Decision, error) {
	c.cancel()
	return tokenbucket.Decision{}, ctx.Err()
}

// careful is a Refunder that does nothing after its context has ended.
type careful struct{ httplimit.Refunder }

func (c careful) Refund(ctx context.Context, key string, cost float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Refunder.Refund(ctx, key, cost)
}

func TestBothGivesBackWhenTheSecondFails(t *testing.T) {
	h := newHouse(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, tenHalf[0])
	first := httplimit.PerKey(h.own)
	_, err := httplimit.Both(first, broken{}).Take(context.Background(), "alice", 2)
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, 3.0, h.own.Tokens("alice"))

	ctx, cancel := context.WithCancel(context.Background())
	_, err = httplimit.Both(careful{first}, calledOff{cancel}).Take(ctx, "alice", 2)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3.0, h.own.Tokens("alice"), "given back although the request was called off")
}

// stingy is a Refunder whose Refund fails.
type stingy struct{ httplimit.Refunder }

var errStingy = errors.New("not given back")

func (stingy) Refund(context.Context, string, float64) error { return errStingy }

func TestBothReportsWhatCouldNotBeGivenBack(t *testing.T) {
	h := newHouse(t, tenHalf[0], tenHalf[0])
	require.NoError(t, h.everyone.Charge(10))
	first := stingy{httplimit.PerKey(h.own)}
	g := newGatewayOf(t, httplimit.Both(first, httplimit.Shared(h.everyone)), httplimit.WithFailClosed(sec))
	require.Equal(t, 503, g.get("/").StatusCode)
	require.ErrorIs(t, g.lastEvent().Err, errStingy)
	_, err := httplimit.Both(first, broken{}).Take(context.Background(), "alice", 2)
	require.ErrorIs(t, err, errStingy)
	require.ErrorIs(t, err, errBroken)
}

func TestBothOfLimitersThatTellLittle(t *testing.T) {
	h := newHouse(t, tenHalf[0], tenHalf[0])
	silent := newGatewayOf(t, httplimit.Both(httplimit.PerKey(h.own), fixed{OK: true})).get("/")
	require.Equal(t, `"default";r=9;t=18`, silent.Header.Get("RateLimit"))
	require.Equal(t, `"default";q=10;w=20`, silent.Header.Get("RateLimit-Policy"))
	first := newGatewayOf(t, httplimit.Both(mute{fixed{OK: true}}, httplimit.Shared(h.everyone))).get("/")
	require.Equal(t, `"default";r=9;t=18`, first.Header.Get("RateLimit"))
}

// mute is a Refunder that does not report its limits.
type mute struct{ fixed }

func (mute) Refund(context.Context, string, float64) error { return nil }

func TestPricesAreCheckedAgainstBoth(t *testing.T) {
	h := newHouse(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, tenHalf[0])
	_, err := httplimit.New(h.both, httplimit.WithCosts(tokenbucket.Costs{"/": 4}))
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
}

func TestSharedIgnoresKeys(t *testing.T) {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, tokenbucket.WithClock(new(waittest.Clock)))
	g := newGatewayOf(t, httplimit.Shared(bucket))
	for _, c := range []struct {
		peer   string
		status int
	}{{"192.0.2.1:1", 200}, {"192.0.2.2:1", 200}, {"192.0.2.3:1", 429}} {
		require.Equal(t, c.status, g.get("/", from(c.peer)).StatusCode)
	}
	require.NoError(t, httplimit.Shared(bucket).Refund(context.Background(), "anyone", 1))
	require.Equal(t, http.StatusOK, g.get("/").StatusCode)
}

func TestZeroBucketRefusesAndTellsNothing(t *testing.T) {
	g := newGatewayOf(t, httplimit.Shared(new(tokenbucket.Bucket)), prices)
	refused := g.get("/read")
	require.Equal(t, 429, refused.StatusCode)
	requireFields(t, map[string]string{"Cache-Control": "no-store"}, refused)
	require.Equal(t, 200, g.get("/free").StatusCode)
}

// admits reports whether a limiter would admit a cost now. It gives the tokens back.
func admits(t *testing.T, l httplimit.Refunder, key string, cost float64) bool {
	t.Helper()
	d, err := l.Take(context.Background(), key, cost)
	require.NoError(t, err)
	if d.OK {
		require.NoError(t, l.Refund(context.Background(), key, cost))
	}
	return d.OK
}

func TestBothTellsWhatBothWouldAdmit(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	limit := func() tokenbucket.Limit {
		return tokenbucket.Limit{Capacity: float64(5 + random.IntN(20)), RefillPerSec: math.Exp(random.Float64()*8 - 4)}
	}
	const peer = "192.0.2.1"
	for range 2000 {
		h := newHouse(t, limit(), limit())
		own, everyone := httplimit.PerKey(h.own), httplimit.Shared(h.everyone)
		require.NoError(t, h.own.Charge(peer, float64(random.IntN(10))))
		require.NoError(t, h.everyone.Charge(float64(random.IntN(10))))
		g := newGatewayOf(t, h.both, costing(float64(random.IntN(6))))
		answer := g.get("/", from(peer+":1"))
		remaining, err := strconv.ParseFloat(answer.Header.Get("X-RateLimit-Remaining"), 64)
		require.NoError(t, err)
		if !g.lastEvent().Refused || g.lastEvent().Decision.Limit == h.everyone.Limits()[0] { // otherwise the second has not been asked
			require.True(t, admits(t, own, peer, remaining) && admits(t, everyone, peer, remaining), answer.Header)
			require.False(t, admits(t, own, peer, remaining+1) && admits(t, everyone, peer, remaining+1), answer.Header)
		}
	}
}

func TestBothHoldsAFreeRequestToThePause(t *testing.T) {
	h := newHouse(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, tokenbucket.Limit{Capacity: 5, RefillPerSec: 0.5})
	h.own.Pause("192.0.2.1", 7*sec)
	require.NoError(t, h.own.Refund("192.0.2.1", 10)) // kept for afterwards
	answer := newGatewayOf(t, h.both, costing(0)).get("/")
	require.Equal(t, `"default";r=0;t=7`, answer.Header.Get("RateLimit"))
}

func TestBothTakesNothingForBadCosts(t *testing.T) {
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 11, 3.5} {
		h := newHouse(t, tenHalf[0], tokenbucket.Limit{Capacity: 3, RefillPerSec: 1})
		answer := newGatewayOf(t, h.both, costing(cost)).get("/")
		require.Equal(t, 429, answer.StatusCode)
		require.Empty(t, answer.Header.Get("Retry-After"))
		require.NotContains(t, answer.Header.Get("RateLimit"), "t=")
		require.Equal(t, 10.0, h.own.Tokens("192.0.2.1"))
		require.Equal(t, 3.0, h.everyone.Tokens())
	}
}

func TestBothExplainsWhatBothWouldAdmit(t *testing.T) {
	h := newHouse(t, tokenbucket.Limit{Capacity: 6, RefillPerSec: 1}, tenHalf[0])
	require.NoError(t, h.own.Charge("192.0.2.1", 3))
	require.NoError(t, h.everyone.Charge(8))
	refused := newGatewayOf(t, h.both, costing(3)).get("/")
	require.Equal(t, "2", refused.Header.Get("X-RateLimit-Remaining"))
	require.Contains(t, body(t, refused)["detail"], ", left: 2.")

	two := newHouse(t, tokenbucket.Limit{Capacity: 6, RefillPerSec: 1}, tenHalf[0])
	require.NoError(t, two.own.Charge("192.0.2.1", 2))
	require.NoError(t, two.everyone.Charge(5)) // then all clients have 5, this one has 4
	refused = newGatewayOf(t, httplimit.Both(httplimit.PerKey(two.own), doubling{httplimit.Shared(two.everyone)}), costing(3)).get("/")
	require.Equal(t, "4", refused.Header.Get("X-RateLimit-Remaining"), "its own has less, and that is after the refund")
	require.Contains(t, body(t, refused)["detail"], ", left: 4.")
}

// doubling takes each cost twice.
type doubling struct{ httplimit.Refunder }

func (l doubling) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return l.Refunder.Take(ctx, key, 2*cost)
}

// reporting is a limiter that reports the given limits.
type reporting struct {
	fixed
	limits []tokenbucket.Limit
}

func (l reporting) Limits() []tokenbucket.Limit { return l.limits }

func (reporting) Refund(context.Context, string, float64) error { return nil }

func TestDecisionOfALimitThatIsNotAmongTheLimits(t *testing.T) {
	decision := fixed{OK: true, Tokens: 3, Limit: tenHalf[0]}
	other := []tokenbucket.Limit{{Capacity: 7, RefillPerSec: 1}, {Capacity: 8, RefillPerSec: 1}}
	for name, limiter := range map[string]httplimit.Limiter{
		"others are reported":                 reporting{decision, other},
		"others are reported, none is":        httplimit.Both(reporting{fixed{OK: true}, other}, decision),
		"others are reported, these are also": httplimit.Both(reporting{fixed{OK: true}, other}, reporting{decision, other}),
	} {
		for range 2 {
			answer := newGatewayOf(t, limiter).get("/")
			require.Equal(t, `"default";r=3;t=6`, answer.Header.Get("RateLimit"), name)
			require.Equal(t, `"default";q=10;w=20`, answer.Header.Get("RateLimit-Policy"), name)
		}
	}
}

// A limiter from outside this module may return its own slice of limits, with spare
// capacity.
func TestLimitsOfAnotherAreNotWrittenOver(t *testing.T) {
	kept := []tokenbucket.Limit{tenHalf[0], {Capacity: 77, RefillPerSec: 1}}
	everyone := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 9, RefillPerSec: 1}))
	g := newGatewayOf(t, httplimit.Both(reporting{fixed{OK: true, Tokens: 3, Limit: tenHalf[0]}, kept[:1]}, everyone))
	require.Equal(t, `"default";q=10;w=20, "default-2";q=9;w=9`, g.get("/").Header.Get("RateLimit-Policy"))
	require.Equal(t, 77.0, kept[1].Capacity)
}

// indulgent admits every cost.
type indulgent struct{ mute }

func TestBothBehindALimiterThatAdmitsEverything(t *testing.T) {
	h := newHouse(t, tenHalf[0], tenHalf[0])
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300} {
		first := indulgent{mute{fixed{OK: true, Tokens: 3, Limit: tenHalf[0]}}}
		answer := newGatewayOf(t, httplimit.Both(first, httplimit.Shared(h.everyone)), costing(cost)).get("/")
		require.Regexp(t, `^\d+$`, answer.Header.Get("X-RateLimit-Remaining"), cost)
	}
}
