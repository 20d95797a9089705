package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

const sec = time.Second

// gateway is middleware in front of a handler that answers "ok". It has its own clock.
type gateway struct {
	clock   *waittest.Clock
	handler http.Handler
	served  int
	events  []httplimit.Event
}

// newGateway has a bucket for every client.
func newGateway(t testing.TB, limits []tokenbucket.Limit, opts ...httplimit.Option) *gateway {
	t.Helper()
	clock := new(waittest.Clock)
	bucketOpts := []keyed.Option{keyed.WithClock(clock)}
	for _, l := range limits[1:] {
		bucketOpts = append(bucketOpts, keyed.WithLimit(l))
	}
	buckets, err := keyed.New[string](limits[0], bucketOpts...)
	require.NoError(t, err)
	g := newGatewayOf(t, httplimit.PerKey(buckets), opts...)
	g.clock = clock
	return g
}

func newGatewayOf(t testing.TB, limiter httplimit.Limiter, opts ...httplimit.Option) *gateway {
	t.Helper()
	g := &gateway{}
	observe := httplimit.WithObserver(func(e httplimit.Event) { g.events = append(g.events, e) })
	g.handler = newMiddleware(t, limiter, append(opts, observe)...)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		g.served++
		_, _ = io.WriteString(w, "ok")
	}))
	return g
}

func newMiddleware(t testing.TB, limiter httplimit.Limiter, opts ...httplimit.Option) func(http.Handler) http.Handler {
	t.Helper()
	middleware, err := httplimit.New(limiter, opts...)
	require.NoError(t, err)
	return middleware
}

func (g *gateway) get(path string, with ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest("GET", path, nil)
	for _, change := range with {
		change(r)
	}
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	return w.Result()
}

func (g *gateway) lastEvent() httplimit.Event { return g.events[len(g.events)-1] }

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

// requireFields compares all fields that the middleware sets.
func requireFields(t *testing.T, want map[string]string, answer *http.Response) {
	t.Helper()
	got := map[string]string{}
	for _, name := range []string{
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control",
	} {
		if values := answer.Header.Values(name); len(values) > 0 {
			got[name] = strings.Join(values, " | ")
		}
	}
	require.Equal(t, want, got)
}

func body(t *testing.T, answer *http.Response) (problem map[string]any) {
	t.Helper()
	require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&problem))
	return problem
}

func costing(cost float64) httplimit.Option {
	return httplimit.WithCost(func(*http.Request) float64 { return cost })
}

var (
	tenHalf = []tokenbucket.Limit{{Capacity: 10, RefillPerSec: 0.5}}
	prices  = httplimit.WithCosts(tokenbucket.Costs{"GET /export": 5, "GET /users/{id}": 2, "/free": 0})
)

// fixed is a limiter that always returns the same decision.
type fixed tokenbucket.Decision

func (f fixed) Take(context.Context, string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision(f), nil
}

// broken is a limiter that never decides.
type broken struct{}

// brokenEach is broken also for costs of several limits.
type brokenEach struct{ broken }

func (brokenEach) TakeEach(context.Context, string, ...float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{}, errBroken
}

var errBroken = errors.New("the store is down")

func (broken) Take(context.Context, string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{}, errBroken
}

// Refusals.

func TestRefusalIsAProblem(t *testing.T) {
	g := newGateway(t, tenHalf, prices)
	g.get("/export")
	g.get("/read")
	refused := g.get("/export")
	require.Equal(t, 429, refused.StatusCode)
	require.Equal(t, map[string]any{
		"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota exceeded", "status": 429.0,
		"detail": "Tokens needed: 5, left: 4. Retry in 2 s.", "violated-policies": []any{"default"},
	}, body(t, refused))
	require.Equal(t, 2, g.served, "the handler is not called for what is refused")
}

func TestWhatCanNeverBeMet(t *testing.T) { // bucket4j#220
	limit := []tokenbucket.Limit{{Capacity: 3, RefillPerSec: 1.5}}
	for _, cost := range []float64{4, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		answer := newGateway(t, limit, costing(cost)).get("/")
		require.Equal(t, 429, answer.StatusCode, cost)
		requireFields(t, map[string]string{
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "0",
			"RateLimit": `"default";r=3`, "RateLimit-Policy": `"default";q=3;w=2`, "Cache-Control": "no-store",
		}, answer)
		require.Contains(t, body(t, answer)["detail"], "never")
	}
}

func TestRetryAfterIsNeverZero(t *testing.T) { // boundary#4094, redis-cell#56
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1. / 3}})
	for _, c := range []struct {
		at     time.Duration
		status int
		after  string
	}{
		{0, 200, ""}, {sec, 429, "2"}, {2500 * time.Millisecond, 429, "1"}, {3*sec - 1, 429, "1"}, {3 * sec, 200, ""},
	} {
		g.clock.Set(c.at)
		answer := g.get("/")
		require.Equal(t, c.status, answer.StatusCode, c.at)
		require.Equal(t, c.after, answer.Header.Get("Retry-After"), c.at)
	}
	sloppy := newGatewayOf(t, fixed{}).get("/") // it refuses, but without a wait
	require.Equal(t, 429, sloppy.StatusCode)
	require.Equal(t, "1", sloppy.Header.Get("Retry-After"))
}

// randomBucket returns a bucket after some random requests.
func randomBucket(t *testing.T, random *rand.Rand) (bucket *tokenbucket.Bucket, clock *waittest.Clock, now time.Duration) {
	t.Helper()
	limit := func() tokenbucket.Limit {
		return tokenbucket.Limit{Capacity: 5 + math.Floor(20*random.Float64()*8)/8, RefillPerSec: math.Exp(random.Float64()*10 - 5)}
	}
	clock = new(waittest.Clock)
	opts := []tokenbucket.Option{tokenbucket.WithClock(clock)}
	if random.IntN(3) == 0 {
		opts = append(opts, tokenbucket.WithLimit(limit()))
	}
	bucket, err := tokenbucket.New(limit(), opts...)
	require.NoError(t, err)
	for range random.IntN(6) {
		bucket.TryAcquire(4 * random.Float64())
		now += time.Duration(random.Int64N(int64(3 * sec)))
		clock.Set(now)
	}
	switch random.IntN(8) {
	case 0:
		require.NoError(t, bucket.Charge(10*random.Float64()))
	case 1:
		bucket.Pause(time.Duration(random.Int64N(int64(5 * sec))))
	}
	return bucket, clock, now
}

func TestWhoObeysRetryAfterIsAdmitted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, cost := range []float64{1, 5} {
		for range 10_000 {
			bucket, clock, now := randomBucket(t, random)
			g := newGatewayOf(t, httplimit.Shared(bucket), costing(cost))
			refused := g.get("/")
			for refused.StatusCode == 200 {
				refused = g.get("/")
			}
			require.Equal(t, 429, refused.StatusCode)
			seconds, err := strconv.Atoi(refused.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, seconds, 1)
			clock.Set(now + time.Duration(seconds-1)*sec)
			require.Equal(t, 429, g.get("/").StatusCode, "not a second more than it takes")
			clock.Set(now + time.Duration(seconds)*sec)
			require.Equal(t, 200, g.get("/").StatusCode, "cost %v, %+v", cost, g.lastEvent().Decision)
		}
	}
}

func TestRefusalHandler(t *testing.T) {
	limit := []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 0.5}}
	g := newGateway(t, limit, httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request, d tokenbucket.Decision) {
		http.Error(w, fmt.Sprint(r.URL.Path, " in ", d.Wait), http.StatusServiceUnavailable)
	}))
	g.get("/a")
	answer := g.get("/b")
	require.Equal(t, 503, answer.StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2",
		"RateLimit": `"default";r=0;t=2`, "RateLimit-Policy": `"default";q=1;w=2`, "Retry-After": "2", "Cache-Control": "no-store",
	}, answer)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "/b in 2s\n", string(text))

	g = newGateway(t, limit, httplimit.WithRefusal(func(w http.ResponseWriter, _ *http.Request, _ tokenbucket.Decision) {
		w.Header().Set("Cache-Control", "private")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	g.get("/")
	require.Equal(t, []string{"private"}, g.get("/").Header.Values("Cache-Control"), "the function may change the fields")

	g = newGateway(t, limit, httplimit.WithRefusal(nil))
	g.get("/")
	require.Equal(t, 429, g.get("/").StatusCode, "nil: the default")
}

func TestFieldsOfOuterLayersStay(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}})
	for _, status := range []int{200, 429} {
		w := httptest.NewRecorder()
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Add("Vary", "Origin")
		w.Header().Set("Cache-Control", "max-age=60")
		g.handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, status, w.Code)
		require.Equal(t, "*", w.Result().Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "Origin", w.Result().Header.Get("Vary"))
		require.Equal(t, map[int][]string{200: {"max-age=60"}, 429: {"no-store"}}[status], w.Result().Header.Values("Cache-Control"))
	}
}

// Costs.

func TestCostsByPattern(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 100, RefillPerSec: 1}}, httplimit.WithCosts(tokenbucket.Costs{
		"GET /export": 5, "/export": 7, "GET /users/{id}": 2, "GET /users/me": 3, "/free": 0, "/files/": 4, "api.example.com/export": 9,
	}))
	for _, c := range []struct {
		method, path string
		want         float64
	}{
		{"GET", "/export", 5}, {"GET", "/export?all=1", 5}, {"HEAD", "/export", 5}, {"POST", "/export", 7},
		{"GET", "/users/7", 2}, {"GET", "/users/me", 3}, {"DELETE", "/users/7", 1}, {"GET", "/users/7/posts", 1},
		{"GET", "/free", 0}, {"GET", "/files/a/b", 4}, {"GET", "/files", 4}, {"GET", "//files/../export", 5},
		{"GET", "http://api.example.com/export", 9}, {"GET", "http://api.example.com:8080/export", 9},
		{"GET", "/other", 1}, {"GET", "/", 1}, {"OPTIONS", "*", 1}, {"CONNECT", "example.com:443", 1},
	} {
		g.get("/", func(r *http.Request) { *r = *httptest.NewRequest(c.method, c.path, nil) })
		require.Equal(t, c.want, g.lastEvent().Cost, "%s %s", c.method, c.path)
	}
}

func TestLaterCostOptionOverridesEarlier(t *testing.T) {
	g := newGateway(t, tenHalf, prices, costing(3))
	g.get("/export")
	require.Equal(t, 3.0, g.lastEvent().Cost)
	g = newGateway(t, tenHalf, costing(3), prices)
	g.get("/export")
	require.Equal(t, 5.0, g.lastEvent().Cost)
}

func TestPricesAreCopied(t *testing.T) {
	costs := tokenbucket.Costs{"/": 2}
	g := newGateway(t, tenHalf, httplimit.WithCosts(costs))
	costs["/"] = 3
	g.get("/")
	require.Equal(t, 2.0, g.lastEvent().Cost)
}

// Start-up.

func TestBadPricesAreStartUpErrors(t *testing.T) {
	limiter := httplimit.Shared(tokenbucket.MustNew(tenHalf[0], tokenbucket.WithLimit(tokenbucket.Limit{Capacity: 4, RefillPerSec: 1})))
	for _, c := range []struct {
		costs tokenbucket.Costs
		want  error
	}{
		{tokenbucket.Costs{"GET /export": 5}, tokenbucket.ErrCostExceedsCapacity},
		{tokenbucket.Costs{"GET /export": math.Inf(1)}, tokenbucket.ErrCostExceedsCapacity},
		{tokenbucket.Costs{"GET /export": -1}, tokenbucket.ErrInvalidCost},
		{tokenbucket.Costs{"GET /export": math.NaN()}, tokenbucket.ErrInvalidCost},
		{tokenbucket.Costs{"export": 1}, tokenbucket.ErrInvalidOption},
		{tokenbucket.Costs{"": 1}, tokenbucket.ErrInvalidOption},
		{tokenbucket.Costs{"/{a}/{a}": 1}, tokenbucket.ErrInvalidOption},
		{tokenbucket.Costs{"/a/{x}": 1, "/{y}/b": 1}, tokenbucket.ErrInvalidOption},
	} {
		_, err := httplimit.New(limiter, httplimit.WithCosts(c.costs))
		require.ErrorIs(t, err, c.want, "%v", c.costs)
	}
	five := httplimit.WithCosts(tokenbucket.Costs{"/": 5})
	_, err := httplimit.New(httplimit.Shared(tokenbucket.MustNew(tenHalf[0])), five, httplimit.WithFallback(limiter))
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity, "the fallback's capacity")
	_, err = httplimit.New(fixed{OK: true}, five)
	require.NoError(t, err, "it does not report its limits")
}

func TestBadOptionsAreStartUpErrors(t *testing.T) {
	limiter := httplimit.Shared(tokenbucket.MustNew(tenHalf[0]))
	for name, opt := range map[string]httplimit.Option{
		"nil":                 nil,
		"a prefix of 0":       httplimit.WithIPv6Prefix(0),
		"a prefix of 129":     httplimit.WithIPv6Prefix(129),
		"no names":            httplimit.WithPolicyNames(),
		"an empty name":       httplimit.WithPolicyNames(""),
		"a name twice":        httplimit.WithPolicyNames("a", "b", "a"),
		"not ASCII":           httplimit.WithPolicyNames("ok", "é"),
		"not printable":       httplimit.WithPolicyNames("a\n"),
		"DEL":                 httplimit.WithPolicyNames("\x7f"),
		"no such proxy":       httplimit.WithTrustedProxies(netip.Prefix{}),
		"no cost function":    httplimit.WithCost(nil),
		"no fallback":         httplimit.WithFallback(nil),
		"a fallback of nil":   httplimit.WithFallback(httplimit.Shared(nil)),
		"retry after nothing": httplimit.WithFailClosed(0),
		"retry never":         httplimit.WithFailClosed(tokenbucket.Never),
	} {
		_, err := httplimit.New(limiter, opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
	}
	for _, nobody := range []httplimit.Limiter{
		nil, httplimit.Shared(nil), httplimit.PerKey(nil),
		httplimit.Both(nil, limiter), httplimit.Both(limiter, nil), httplimit.Both(httplimit.PerKey(nil), limiter),
	} {
		_, err := httplimit.New(nobody)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	}
}

// Failures, reports and observers.

func TestLimiterThatFailsAdmits(t *testing.T) { // traefik#12091
	g := newGatewayOf(t, broken{})
	answer := g.get("/")
	require.Equal(t, 200, answer.StatusCode)
	requireFields(t, map[string]string{}, answer)
	e := g.lastEvent()
	require.ErrorIs(t, e.Err, errBroken)
	require.Zero(t, e.Decision)
	require.False(t, e.Refused)
	require.Equal(t, 1, g.served)
}

func TestLimiterThatFailsCanRefuse(t *testing.T) {
	for wait, seconds := range map[time.Duration]string{1: "1", 1500 * time.Millisecond: "2", 2 * sec: "2"} {
		g := newGatewayOf(t, broken{}, httplimit.WithFailClosed(wait))
		answer := g.get("/")
		require.Equal(t, 503, answer.StatusCode)
		requireFields(t, map[string]string{"Retry-After": seconds, "Cache-Control": "no-store"}, answer)
		require.Equal(t, 503.0, body(t, answer)["status"])
		require.ErrorIs(t, g.lastEvent().Err, errBroken)
		require.True(t, g.lastEvent().Refused)
		require.Zero(t, g.served)
	}
}

func TestFreeRequestsGoOnWithoutALimiter(t *testing.T) {
	for _, c := range []struct {
		cost httplimit.Option
		want int
	}{
		{costing(0), 200}, {costing(1), 503}, {costing(math.NaN()), 503},
		{costingEach(0, 0), 200}, {costingEach(0, 1), 503}, {costingEach(), 503},
	} {
		g := newGatewayOf(t, brokenEach{}, httplimit.WithFailClosed(sec), c.cost)
		require.Equal(t, c.want, g.get("/").StatusCode)
		require.ErrorIs(t, g.lastEvent().Err, errBroken)
		require.Equal(t, c.want == 503, g.lastEvent().Refused)
	}
}

func TestLimiterThatFailsCanAskAnother(t *testing.T) {
	local := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.001}, tokenbucket.WithClock(new(waittest.Clock))))
	g := newGatewayOf(t, broken{}, httplimit.WithFallback(local), httplimit.WithFailClosed(sec))
	require.Equal(t, 200, g.get("/").StatusCode)
	require.True(t, g.lastEvent().Decision.OK)
	require.ErrorIs(t, g.lastEvent().Err, errBroken)
	refused := g.get("/")
	require.Equal(t, 429, refused.StatusCode)
	require.ErrorIs(t, g.lastEvent().Err, errBroken)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1000",
		"RateLimit": `"default";r=0;t=1000`, "RateLimit-Policy": `"default";q=1;w=1000`, "Retry-After": "1000", "Cache-Control": "no-store",
	}, refused)

	neither := newGatewayOf(t, broken{}, httplimit.WithFallback(broken{}), httplimit.WithFailClosed(sec))
	require.Equal(t, 503, neither.get("/").StatusCode)
	require.ErrorIs(t, neither.lastEvent().Err, errBroken)

	works := newGateway(t, tenHalf, httplimit.WithFallback(broken{}))
	require.Equal(t, 200, works.get("/").StatusCode)
	require.NoError(t, works.lastEvent().Err, "it is not asked")
}

func TestReportOnly(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 0.5}}, httplimit.WithReportOnly())
	g.get("/")
	require.False(t, g.lastEvent().Refused)
	answer := g.get("/")
	require.Equal(t, 200, answer.StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2",
		"RateLimit": `"default";r=0;t=2`, "RateLimit-Policy": `"default";q=1;w=2`,
	}, answer)
	require.True(t, g.lastEvent().Refused)
	require.Equal(t, 2*sec, g.lastEvent().Decision.Wait)
	require.Equal(t, 2, g.served)

	closed := newGatewayOf(t, broken{}, httplimit.WithReportOnly(), httplimit.WithFailClosed(sec))
	answer = closed.get("/")
	require.Equal(t, 200, answer.StatusCode)
	requireFields(t, map[string]string{}, answer)
	require.True(t, closed.lastEvent().Refused)
}

func TestObserverSeesEverything(t *testing.T) {
	g := newGateway(t, tenHalf, prices)
	var requests []*http.Request
	remember := func(r *http.Request) { requests = append(requests, r) }
	g.get("/export", remember, from("192.0.2.7:1"))
	g.get("/export", remember, from("192.0.2.7:2"))
	g.get("/users/1", remember, from("192.0.2.7:3"))
	require.Equal(t, []httplimit.Event{
		{Request: requests[0], Key: "192.0.2.7", Cost: 5, Policy: "default", Decision: tokenbucket.Decision{OK: true, Tokens: 5, Limit: tenHalf[0]}},
		{Request: requests[1], Key: "192.0.2.7", Cost: 5, Policy: "default", Decision: tokenbucket.Decision{OK: true, Limit: tenHalf[0]}},
		{Request: requests[2], Key: "192.0.2.7", Cost: 2, Policy: "default", Decision: tokenbucket.Decision{Wait: 4 * sec, Limit: tenHalf[0]}, Refused: true},
	}, g.events)
}

func TestObserverIsToldBeforeTheHandlerRuns(t *testing.T) {
	var order []string
	observe := httplimit.WithObserver(func(httplimit.Event) { order = append(order, "observer") })
	handler := newMiddleware(t, fixed{OK: true}, observe)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { order = append(order, "handler") }))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	require.Equal(t, []string{"observer", "handler"}, order)
}

// Limiters of users.

func TestDecisionsThatTellLittle(t *testing.T) {
	nothing := newGatewayOf(t, fixed{OK: true}).get("/")
	require.Equal(t, 200, nothing.StatusCode)
	requireFields(t, map[string]string{}, nothing)

	wait := newGatewayOf(t, fixed{Wait: 1500 * time.Millisecond}).get("/")
	requireFields(t, map[string]string{"Retry-After": "2", "Cache-Control": "no-store"}, wait)
	problem := body(t, wait)
	require.NotContains(t, problem, "violated-policies")
	require.Equal(t, "Tokens needed: 1. Retry in 2 s.", problem["detail"])

	limit := newGatewayOf(t, fixed{OK: true, Tokens: 3, Limit: tenHalf[0]}).get("/") // but it has no Limits
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "14",
		"RateLimit": `"default";r=3;t=6`, "RateLimit-Policy": `"default";q=10;w=20`,
	}, limit)
}

func TestDecisionsThatMakeNoSense(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1, 5, math.MaxFloat64}
	integer := regexp.MustCompile(`^(0|[1-9]\d{0,14})$`)
	requireIntegers := func(d tokenbucket.Decision) {
		answer := newGatewayOf(t, fixed(d)).get("/")
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
			if value := answer.Header.Get(name); value != "" {
				require.Regexp(t, integer, value, "%s of %+v", name, d)
			}
		}
	}
	for _, tokens := range odd {
		for _, capacity := range odd {
			for _, refill := range odd {
				limit := tokenbucket.Limit{Capacity: capacity, RefillPerSec: refill}
				for _, wait := range []time.Duration{-1, 0, 1, tokenbucket.Never} {
					requireIntegers(tokenbucket.Decision{OK: true, Wait: wait, Tokens: tokens, Limit: limit})
					requireIntegers(tokenbucket.Decision{OK: false, Wait: wait, Tokens: tokens, Limit: limit})
				}
			}
		}
	}
}

func TestLaterCostOptionOverridesEvenWithoutPrices(t *testing.T) {
	g := newGateway(t, tenHalf, costing(3), httplimit.WithCosts(nil))
	g.get("/")
	require.Equal(t, 1.0, g.lastEvent().Cost)
}

func TestLengthOfAnOuterLayerIsNotTheRefusals(t *testing.T) {
	handler := newMiddleware(t, fixed{})(http.NotFoundHandler())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 429.0, body(t, answer)["status"])
}

// Finding the price of a request does not change the request.
func TestRequestIsLeftAlone(t *testing.T) {
	g := newGateway(t, tenHalf, prices, httplimit.WithTrustedProxies(netip.MustParsePrefix("192.0.2.0/24")))
	request := httptest.NewRequest("GET", "/users/7", nil)
	request.Header.Set("X-Forwarded-For", "203.0.113.7")
	before := request.Clone(request.Context())
	g.handler.ServeHTTP(httptest.NewRecorder(), request)
	require.Same(t, request, g.lastEvent().Request)
	require.Empty(t, request.Pattern)
	require.Empty(t, request.PathValue("id"))
	require.Equal(t, before.Header, request.Header)
	require.Equal(t, before.URL, request.URL)
	require.Equal(t, before.RemoteAddr, request.RemoteAddr)
}

// A panic passes through the middleware. No lock stays locked, and other requests are served.
func TestPanicsPassThrough(t *testing.T) {
	for name, opt := range map[string]httplimit.Option{
		"key":      httplimit.WithKey(func(r *http.Request) string { return panicOnce(r, "key") }),
		"cost":     httplimit.WithCost(func(r *http.Request) float64 { return float64(len(panicOnce(r, "cost"))) }),
		"observer": httplimit.WithObserver(func(e httplimit.Event) { panicOnce(e.Request, "observer") }),
		"refusal": httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request, _ tokenbucket.Decision) {
			panicOnce(r, "refusal")
			w.WriteHeader(429)
		}),
		"handler": httplimit.WithKey(nil),
	} {
		buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-6})
		require.NoError(t, err)
		handler := newMiddleware(t, httplimit.PerKey(buckets), opt)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			panicOnce(r, "handler")
		}))
		serve := func(where string) int {
			r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			r.Header.Set("X-Panic", where)
			handler.ServeHTTP(w, r)
			return w.Code
		}
		if name == "refusal" {
			require.Equal(t, 200, serve(""))
		}
		require.PanicsWithValue(t, name, func() { serve(name) })
		require.Contains(t, []int{200, 429}, serve(""), name)
		require.Equal(t, 429, serve(""), name)
	}
}

// panicOnce panics at the place that the request names.
func panicOnce(r *http.Request, where string) string {
	if r.Header.Get("X-Panic") == where {
		panic(where)
	}
	return "1"
}

func TestSlowObserverHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(tenHalf[0])
		observe := func(e httplimit.Event) {
			if e.Request.URL.Path == "/slow" {
				time.Sleep(time.Hour)
			}
		}
		handler := newMiddleware(t, httplimit.Shared(bucket), httplimit.WithObserver(observe))(http.NotFoundHandler())
		var group sync.WaitGroup
		group.Go(func() { handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/slow", nil)) })
		synctest.Wait()
		start := time.Now()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, "8", w.Header().Get("X-RateLimit-Remaining"))
		require.Zero(t, time.Since(start))
		group.Wait()
	})
}
