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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// gateway is a middleware before a handler that says "ok", on a clock of its own.
type gateway struct {
	t       *testing.T
	clock   *waittest.Clock
	handler http.Handler
	served  int
}

func newGateway(t *testing.T, limits []tokenbucket.Limit, opts ...httplimit.Option) *gateway {
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

func newGatewayOf(t *testing.T, limiter httplimit.Limiter, opts ...httplimit.Option) *gateway {
	t.Helper()
	middleware, err := httplimit.New(limiter, opts...)
	require.NoError(t, err)
	g := &gateway{t: t}
	g.handler = middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.served++
		_, _ = io.WriteString(w, "ok")
	}))
	return g
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

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

// requireFields compares the fields that the middleware sets, all of them.
func requireFields(t *testing.T, want map[string]string, answer *http.Response) {
	t.Helper()
	got := map[string]string{}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control"} {
		if values := answer.Header.Values(name); len(values) > 0 {
			got[name] = strings.Join(values, " | ")
		}
	}
	require.Equal(t, want, got)
}

var (
	tenHalf = []tokenbucket.Limit{{Capacity: 10, RefillPerSec: 0.5}}
	prices  = httplimit.WithCosts(tokenbucket.Costs{"GET /export": 5, "GET /users/{id}": 2, "/free": 0})
)

func TestFields(t *testing.T) {
	g := newGateway(t, tenHalf, prices)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "2",
		"RateLimit": `"default";r=9;t=18`, "RateLimit-Policy": `"default";q=10;w=20`,
	}, g.get("/read"))
	require.Equal(t, 200, g.get("/export").StatusCode)
	refused := g.get("/export")
	require.Equal(t, 429, refused.StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "4", "X-RateLimit-Reset": "12",
		"RateLimit": `"default";r=4;t=2`, "RateLimit-Policy": `"default";q=10;w=20`,
		"Retry-After": "2", "Cache-Control": "no-store",
	}, refused)
	require.Equal(t, 2, g.served)
	for range 4 {
		require.Equal(t, 200, g.get("/read").StatusCode)
	}
	g.clock.Set(500 * time.Millisecond)
	free := g.get("/free")
	require.Equal(t, `"default";r=0;t=2`, free.Header.Get("RateLimit"), "until there is one token")
	require.Empty(t, free.Header.Get("Retry-After"))
}

func TestFieldsOfFractionsAndExtremes(t *testing.T) {
	for _, c := range []struct {
		limit       tokenbucket.Limit
		xLimit      string
		policy      string
		rate, reset string
	}{
		{tokenbucket.Limit{Capacity: 2.5, RefillPerSec: 100}, "2", `"default";q=2;w=1`, `"default";r=1;t=1`, "1"},
		{tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-300}, "1", `"default";q=1;w=999999999999999`, `"default";r=0`, "999999999999999"},
		{tokenbucket.Limit{Capacity: 1 << 42, RefillPerSec: 1}, "4398046511104", `"default";q=4398046511104;w=999999999999999`, `"default";r=4398046511103`, "1"},
		{tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.3}, "3", `"default";q=3;w=10`, `"default";r=2;t=7`, "4"},
	} {
		answer := newGateway(t, []tokenbucket.Limit{c.limit}).get("/")
		requireFields(t, map[string]string{
			"X-RateLimit-Limit": c.xLimit, "X-RateLimit-Remaining": strings.SplitN(strings.TrimPrefix(c.rate, `"default";r=`), ";", 2)[0],
			"X-RateLimit-Reset": c.reset, "RateLimit": c.rate, "RateLimit-Policy": c.policy,
		}, answer)
	}
}

func TestSeveralLimits(t *testing.T) {
	limits := []tokenbucket.Limit{{Capacity: 10, RefillPerSec: 10}, {Capacity: 2, RefillPerSec: 0.1}, {Capacity: 300, RefillPerSec: 1}}
	g := newGateway(t, limits, httplimit.WithPolicyNames("burst", "day"))
	g.get("/")
	answer := g.get("/")
	require.Equal(t, `"burst";q=10;w=1, "day";q=2;w=20, "day-2";q=300;w=300`, answer.Header.Get("RateLimit-Policy"))
	require.Equal(t, `"day";r=0;t=10`, answer.Header.Get("RateLimit"))
	require.Equal(t, "2", answer.Header.Get("X-RateLimit-Limit"))
	refused := g.get("/")
	require.Equal(t, "10", refused.Header.Get("Retry-After"))
	require.Equal(t, []any{"day"}, body(t, refused)["violated-policies"])
	require.Equal(t, `"default";q=10;w=1, "default-2";q=2;w=20, "default-3";q=300;w=300`, newGateway(t, limits).get("/").Header.Get("RateLimit-Policy"))
}

func body(t *testing.T, answer *http.Response) (problem map[string]any) {
	t.Helper()
	require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&problem))
	return problem
}

func TestRefusalIsAProblem(t *testing.T) {
	g := newGateway(t, tenHalf, prices)
	g.get("/export")
	g.get("/export")
	problem := body(t, g.get("/export"))
	require.Equal(t, map[string]any{
		"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "The quota is exceeded", "status": 429.0,
		"detail": "This request costs 5 and will be admitted in 10s.", "violated-policies": []any{"default"},
	}, problem)
}

func TestWhatCanNeverBeMet(t *testing.T) { // bucket4j#220
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 3, RefillPerSec: 1.5}}, httplimit.WithCost(func(*http.Request) float64 { return 4 }))
	answer := g.get("/")
	require.Equal(t, 429, answer.StatusCode)
	require.Empty(t, answer.Header.Get("Retry-After"))
	require.Equal(t, `"default";r=3`, answer.Header.Get("RateLimit"))
	require.Contains(t, body(t, answer)["detail"], "never")
}

func TestBoundary4094(t *testing.T) { // and redis-cell#56
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1. / 3}})
	for _, c := range []struct {
		at     time.Duration
		status int
		after  string
	}{{0, 200, ""}, {time.Second, 429, "2"}, {2500 * time.Millisecond, 429, "1"}, {3*time.Second - 1, 429, "1"}, {3 * time.Second, 200, ""}} {
		g.clock.Set(c.at)
		answer := g.get("/")
		require.Equal(t, c.status, answer.StatusCode, c.at)
		require.Equal(t, c.after, answer.Header.Get("Retry-After"), c.at)
	}
}

func TestWhoObeysIsAdmitted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		limit := tokenbucket.Limit{Capacity: 5 + 20*random.Float64(), RefillPerSec: math.Exp(random.Float64()*10 - 5)}
		cost := []float64{1, 5}[random.IntN(2)]
		clock := new(waittest.Clock)
		bucket, err := tokenbucket.New(limit, tokenbucket.WithClock(clock), tokenbucket.WithTokens(cost*random.Float64()))
		require.NoError(t, err)
		g := newGatewayOf(t, httplimit.Shared(bucket), httplimit.WithCost(func(*http.Request) float64 { return cost }))
		refused := g.get("/")
		require.Equal(t, 429, refused.StatusCode)
		seconds, err := strconv.Atoi(refused.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, seconds)
		clock.Set(time.Duration(seconds) * time.Second)
		require.Equal(t, 200, g.get("/").StatusCode, "%+v, cost %v", limit, cost)
	}
}

func TestRemainingIsWholeAndNeverNegative(t *testing.T) { // gofiber/limiter#1
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 2, RefillPerSec: 1}})
	for _, want := range []string{"1", "0", "0"} {
		require.Equal(t, want, g.get("/").Header.Get("X-RateLimit-Remaining"))
	}
}

func TestHandlersOwnFieldsWin(t *testing.T) { // flask-limiter#143
	bucket := tokenbucket.MustNew(tenHalf[0])
	middleware, err := httplimit.New(httplimit.Shared(bucket))
	require.NoError(t, err)
	handler := middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Set("RateLimit", "mine")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	w := httptest.NewRecorder()
	w.Header().Set("X-Outer", "stays")
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	answer := w.Result()
	require.Equal(t, 503, answer.StatusCode)
	require.Equal(t, []string{"120"}, answer.Header.Values("Retry-After"))
	require.Equal(t, []string{"7"}, answer.Header.Values("X-RateLimit-Limit"))
	require.Equal(t, []string{"mine"}, answer.Header.Values("RateLimit"))
	require.Equal(t, "stays", answer.Header.Get("X-Outer"))
}

func TestFamiliesCanBeTurnedOff(t *testing.T) {
	requireFields(t, map[string]string{"RateLimit": `"default";r=9;t=18`, "RateLimit-Policy": `"default";q=10;w=20`},
		newGateway(t, tenHalf, httplimit.WithoutXRateLimit()).get("/"))
	requireFields(t, map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "2"},
		newGateway(t, tenHalf, httplimit.WithoutRateLimit()).get("/"))
	requireFields(t, map[string]string{}, newGateway(t, tenHalf, httplimit.WithoutRateLimit(), httplimit.WithoutXRateLimit()).get("/"))
}

func TestUnixReset(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1_700_000_000, 1))
	g := newGateway(t, tenHalf, httplimit.WithUnixReset(clock))
	require.Equal(t, "1700000003", g.get("/").Header.Get("X-RateLimit-Reset"), "rounded up")
	require.NotEmpty(t, newGateway(t, tenHalf, httplimit.WithUnixReset(nil)).get("/").Header.Get("X-RateLimit-Reset"))
}

func TestPolicyNames(t *testing.T) {
	g := newGateway(t, tenHalf, httplimit.WithPolicyNames(`a "b" \c`))
	require.Equal(t, `"a \"b\" \\c";q=10;w=20`, g.get("/").Header.Get("RateLimit-Policy"))
	for _, name := range []string{"é", "a\n", "\x7f"} {
		_, err := httplimit.New(httplimit.Shared(new(tokenbucket.Bucket)), httplimit.WithPolicyNames(name))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
	}
}

func TestLimitsThatChange(t *testing.T) {
	bucket := tokenbucket.MustNew(tenHalf[0])
	g := newGatewayOf(t, httplimit.Shared(bucket))
	g.get("/")
	require.NoError(t, bucket.SetLimits(tokenbucket.Limit{Capacity: 20, RefillPerSec: 1}))
	require.Equal(t, `"default";q=20;w=20`, g.get("/").Header.Get("RateLimit-Policy"))
}

// Costs.

func TestCostsByPattern(t *testing.T) {
	g := newGateway(t, tenHalf, prices)
	left := 10
	for _, c := range []struct {
		path string
		cost int
	}{{"/other", 1}, {"/users/7", 2}, {"/free", 0}, {"/export", 5}, {"/", 1}} {
		left -= c.cost
		require.Equal(t, strconv.Itoa(left), g.get(c.path).Header.Get("X-RateLimit-Remaining"), c.path)
	}
	r := httptest.NewRequest("POST", "/export", nil)
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"), "another method: 1")
}

func TestBadPricesAreStartUpErrors(t *testing.T) {
	limiter := httplimit.Shared(tokenbucket.MustNew(tenHalf[0], tokenbucket.WithLimit(tokenbucket.Limit{Capacity: 4, RefillPerSec: 1})))
	for _, c := range []struct {
		costs tokenbucket.Costs
		want  error
	}{
		{tokenbucket.Costs{"GET /export": 5}, tokenbucket.ErrCostExceedsCapacity},
		{tokenbucket.Costs{"GET /export": -1}, tokenbucket.ErrInvalidCost},
		{tokenbucket.Costs{"GET /export": math.NaN()}, tokenbucket.ErrInvalidCost},
		{tokenbucket.Costs{"export": 1}, tokenbucket.ErrInvalidOption},
		{tokenbucket.Costs{"/{a}/{a}": 1}, tokenbucket.ErrInvalidOption},
		{tokenbucket.Costs{"/a/{x}": 1, "/{y}/b": 1}, tokenbucket.ErrInvalidOption},
	} {
		_, err := httplimit.New(limiter, httplimit.WithCosts(c.costs))
		require.ErrorIs(t, err, c.want, "%v", c.costs)
	}
	for _, opt := range []httplimit.Option{httplimit.WithIPv6Prefix(0), httplimit.WithIPv6Prefix(129), httplimit.WithPolicyNames()} {
		_, err := httplimit.New(limiter, opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	}
	_, err := httplimit.New(nil)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
}

// Keys.

// keyOf returns the key that the observer is told.
func keyOf(t *testing.T, with []func(*http.Request), opts ...httplimit.Option) (key string) {
	t.Helper()
	opts = append(opts, httplimit.WithObserver(func(e httplimit.Event) { key = e.Key }))
	newGateway(t, tenHalf, opts...).get("/", with...)
	return key
}

func TestKeysByAddress(t *testing.T) { // floe#469, ezauth#147
	for addr, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "192.0.2.1:65535": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8:1:2::1]:5": "2001:db8:1:2::/64", "[2001:db8:1:2:ffff::9]:6": "2001:db8:1:2::/64", "[2001:db8:1:3::1]:5": "2001:db8:1:3::/64",
		"[fe80::1%eth0]:7": "fe80::/64", "fe80::1%eth0": "fe80::/64", "[::1]": "::/64", "@": "@", "": "", "nonsense:80": "nonsense:80", "[::1": "[::1",
	} {
		require.Equal(t, want, keyOf(t, []func(*http.Request){from(addr)}), addr)
	}
	require.Equal(t, "2001:db8::/32", keyOf(t, []func(*http.Request){from("[2001:db8:1::1]:1")}, httplimit.WithIPv6Prefix(32)))
}

func TestTrustedProxies(t *testing.T) { // tollbooth#2
	trusted := httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	for _, c := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"10.0.0.5:1", []string{"198.51.100.66", "203.0.113.7"}, "203.0.113.7"},
		{"192.0.2.9:1", []string{"198.51.100.66"}, "192.0.2.9"},
		{"10.0.0.5:1", nil, "10.0.0.5"},
		{"10.0.0.5:1", []string{"198.51.100.66, 203.0.113.7:8080 , 10.9.9.9"}, "203.0.113.7"},
		{"10.0.0.5:1", []string{"198.51.100.66", "10.1.1.1,10.2.2.2"}, "198.51.100.66"},
		{"10.0.0.5:1", []string{"10.1.1.1"}, "10.1.1.1"},
		{"[::ffff:10.0.0.5]:1", []string{"[2001:db8::1]:443"}, "2001:db8::/64"},
		{"[fd00::1]:1", []string{"[2001:db8::1]"}, "2001:db8::/64"},
		{"10.0.0.5:1", []string{"198.51.100.66, nonsense"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"198.51.100.66, nonsense, 10.7.7.7"}, "10.7.7.7"},
		{"10.0.0.5:1", []string{""}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
	} {
		require.Equal(t, c.want, keyOf(t, []func(*http.Request){from(c.peer), header("X-Forwarded-For", c.lines...)}, trusted), "%+v", c)
	}
	require.Equal(t, "10.0.0.5", keyOf(t, []func(*http.Request){from("10.0.0.5:1"), header("X-Forwarded-For", "203.0.113.7")}), "nobody is trusted by default")
}

func TestKeysByHeader(t *testing.T) {
	opt := httplimit.WithKeyHeader("x-api-key", "Authorization")
	peer := from("192.0.2.1:5")
	require.Equal(t, "X-Api-Key:abc", keyOf(t, []func(*http.Request){peer, header("X-API-Key", "abc")}, opt))
	require.Equal(t, "Authorization:Bearer x", keyOf(t, []func(*http.Request){peer, header("Authorization", "Bearer x")}, opt))
	require.Equal(t, "192.0.2.1", keyOf(t, []func(*http.Request){peer}, opt))
	require.Equal(t, "192.0.2.1", keyOf(t, []func(*http.Request){peer, header("X-API-Key", "")}, opt))
	long := keyOf(t, []func(*http.Request){peer, header("X-API-Key", strings.Repeat("a", 10_000))}, opt)
	require.Less(t, len(long), 64)
}

func TestNoKeyIsNotFree(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 2, RefillPerSec: 1}}, httplimit.WithKey(func(*http.Request) string { return "" }))
	require.Equal(t, []int{200, 200, 429}, []int{g.get("/a").StatusCode, g.get("/b", from("9.9.9.9:1")).StatusCode, g.get("/c").StatusCode})
}

func FuzzForwardedFor(f *testing.F) {
	f.Add("10.0.0.5:1", "198.51.100.66, 203.0.113.7", "10.1.1.1")
	f.Add("[fe80::1%eth0]:1", "[::1", "]")
	f.Add("@", ",,,", "::ffff:1.2.3.4")
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		var key string
		observe := httplimit.WithObserver(func(e httplimit.Event) { key = e.Key })
		with := []func(*http.Request){from(peer), header("X-Forwarded-For", first, second)}
		newGateway(t, tenHalf, observe).get("/", with...)
		untrusting := key
		newGateway(t, tenHalf, observe).get("/", from(peer))
		require.Equal(t, key, untrusting, "nobody is trusted, so the header counts for nothing")
		newGateway(t, tenHalf, observe, httplimit.TrustedProxies(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))).get("/", with...)
		if key == peer {
			return
		}
		_, err := netip.ParsePrefix(key)
		_, addrErr := netip.ParseAddr(key)
		require.True(t, err == nil || addrErr == nil, key)
	})
}

// Failures, reports and observers.

type broken struct{}

var errBroken = errors.New("the store is down")

func (broken) Take(context.Context, string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{}, errBroken
}

func TestWhenTheLimiterFails(t *testing.T) { // traefik#12091
	var events []httplimit.Event
	observe := httplimit.WithObserver(func(e httplimit.Event) { events = append(events, e) })
	open := newGatewayOf(t, broken{}, observe).get("/")
	require.Equal(t, 200, open.StatusCode)
	requireFields(t, map[string]string{}, open)

	closed := newGatewayOf(t, broken{}, observe, httplimit.FailClosed(1500*time.Millisecond)).get("/")
	require.Equal(t, 503, closed.StatusCode)
	requireFields(t, map[string]string{"Retry-After": "2", "Cache-Control": "no-store"}, closed)

	local := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.001}))
	fallback := newGatewayOf(t, broken{}, observe, httplimit.WithFallback(local))
	require.Equal(t, 200, fallback.get("/").StatusCode)
	refused := fallback.get("/")
	require.Equal(t, 429, refused.StatusCode)
	require.Equal(t, `"default";q=1;w=1000`, refused.Header.Get("RateLimit-Policy"))

	neither := newGatewayOf(t, broken{}, observe, httplimit.WithFallback(broken{}), httplimit.FailClosed(time.Second))
	require.Equal(t, 503, neither.get("/").StatusCode)
	require.Len(t, events, 5)
	for _, e := range events {
		require.ErrorIs(t, e.Err, errBroken)
	}
	require.True(t, events[2].Decision.OK)
}

func TestReportOnly(t *testing.T) {
	var refusals int
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 0.5}}, httplimit.ReportOnly(), httplimit.WithObserver(func(e httplimit.Event) {
		if !e.Decision.OK {
			refusals++
			assert.Equal(t, 2*time.Second, e.Decision.Wait)
		}
	}))
	g.get("/")
	answer := g.get("/")
	require.Equal(t, 200, answer.StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2",
		"RateLimit": `"default";r=0;t=2`, "RateLimit-Policy": `"default";q=1;w=2`,
	}, answer)
	require.Equal(t, 1, refusals)
	require.Equal(t, 2, g.served)
}

func TestRefusalHandler(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 0.5}}, httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request, d tokenbucket.Decision) {
		http.Error(w, fmt.Sprint("come back in ", d.Wait), http.StatusTooManyRequests)
	}))
	g.get("/")
	answer := g.get("/")
	require.Equal(t, "2", answer.Header.Get("Retry-After"))
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "come back in 2s\n", string(text))
}

// A global bucket beside the clients' own.

func TestBothGivesBackWhatTheSecondRefused(t *testing.T) {
	clock := new(waittest.Clock)
	own, err := keyed.New[string](tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, keyed.WithClock(clock))
	require.NoError(t, err)
	everybody := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 4, RefillPerSec: 0.5}, tokenbucket.WithClock(clock))
	g := newGatewayOf(t, httplimit.Both(httplimit.PerKey(own), httplimit.Shared(everybody)), httplimit.WithPolicyNames("client", "all"))
	for range 3 {
		require.Equal(t, 200, g.get("/", from("1.1.1.1:1")).StatusCode)
	}
	refused := g.get("/", from("1.1.1.1:1"))
	require.Equal(t, "1", refused.Header.Get("Retry-After"), "by its own")
	require.Equal(t, []any{"client"}, body(t, refused)["violated-policies"])
	require.Equal(t, 1.0, everybody.Tokens(), "nothing was taken from all")

	require.Equal(t, 200, g.get("/", from("2.2.2.2:1")).StatusCode)
	refused = g.get("/", from("2.2.2.2:1"))
	require.Equal(t, "2", refused.Header.Get("Retry-After"), "by everybody's")
	require.Equal(t, `"client";q=3;w=3, "all";q=4;w=8`, refused.Header.Get("RateLimit-Policy"))
	require.Equal(t, []any{"all"}, body(t, refused)["violated-policies"])
	require.Equal(t, 2.0, own.Tokens("2.2.2.2"), "given back")

	_, err = httplimit.Both(httplimit.PerKey(own), broken{}).Take(context.Background(), "2.2.2.2", 1)
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, 2.0, own.Tokens("2.2.2.2"), "given back")
}

// Real servers.

func TestControllerWorksBehind(t *testing.T) { // keel#286, chi#544
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", http2), func(t *testing.T) {
			middleware, err := httplimit.New(httplimit.Shared(tokenbucket.MustNew(tenHalf[0])))
			require.NoError(t, err)
			server := httptest.NewUnstartedServer(middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				controller := http.NewResponseController(w)
				assert.NoError(t, controller.SetWriteDeadline(time.Now().Add(time.Minute)))
				if r.URL.Path == "/hijack" && !http2 {
					conn, buffer, err := controller.Hijack()
					if assert.NoError(t, err) {
						_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
						_ = buffer.Flush()
						_ = conn.Close()
					}
					return
				}
				_, isReaderFrom := w.(io.ReaderFrom)
				assert.Equal(t, !http2, isReaderFrom, "as the server has it")
				_, _ = io.WriteString(w, "first ")
				assert.NoError(t, controller.Flush())
				_, _ = io.WriteString(w, "second")
			})))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			for _, path := range []string{"/", "/hijack"} {
				answer, err := server.Client().Get(server.URL + path)
				require.NoError(t, err)
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				answer.Body.Close()
				require.Equal(t, 200, answer.StatusCode)
				require.NotEmpty(t, text)
				if path == "/" {
					require.Equal(t, "9", answer.Header.Get("X-RateLimit-Remaining"))
					require.Equal(t, http2, answer.ProtoMajor == 2)
				}
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	g := newGatewayOf(t, httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 50, RefillPerSec: 1e-6})))
	middleware, err := httplimit.New(httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 50, RefillPerSec: 1e-6})))
	require.NoError(t, err)
	g.handler = middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var mu sync.Mutex
	statuses := map[int]int{}
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			status := g.get("/").StatusCode
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	group.Wait()
	require.Equal(t, map[int]int{200: 50, 429: 50}, statuses)
}

// Benchmarks: the bare handler, the idiom without fields, and ours with all.

type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkMiddleware(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1})
	if err != nil {
		b.Fatal(err)
	}
	middleware, err := httplimit.New(httplimit.PerKey(buckets))
	if err != nil {
		b.Fatal(err)
	}
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1})
	idiom := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := bucket.TryAcquire(1); !ok {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		bare(w, r)
	})
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare", bare}, {"idiom", idiom}, {"httplimit", middleware(bare)}} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				c.handler.ServeHTTP(&discard{http.Header{}}, r)
			}
		})
	}
}
