package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// nested returns one middleware in another, each with a bucket of its own.
func nested(t *testing.T, outer, inner tokenbucket.Limit, innerOpts ...httplimit.Option) (handler http.Handler, buckets [2]*tokenbucket.Bucket) {
	t.Helper()
	for i, limit := range []tokenbucket.Limit{outer, inner} {
		var err error
		buckets[i], err = tokenbucket.New(limit, tokenbucket.WithClock(new(waittest.Clock)))
		require.NoError(t, err)
	}
	narrow := newMiddleware(t, httplimit.Shared(buckets[0]), httplimit.WithPolicyNames("user"), httplimit.WithAdmission())
	global := newMiddleware(t, httplimit.Shared(buckets[1]), append(innerOpts, httplimit.WithPolicyNames("tenant"))...)
	return narrow(global(http.NotFoundHandler())), buckets
}

func serve(handler http.Handler) *http.Response {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w.Result()
}

func TestNestedMiddlewaresShowBothLimits(t *testing.T) {
	const policies = `"user";q=3;w=3, "tenant";q=100;w=100`
	handler, _ := nested(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 100, RefillPerSec: 1})
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "1",
		"RateLimit": `"user";r=2;t=2, "tenant";r=99;t=99`, "RateLimit-Policy": policies,
	}, serve(handler))

	handler, _ = nested(t, tokenbucket.Limit{Capacity: 100, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1})
	for range 3 {
		require.Equal(t, 404, serve(handler).StatusCode)
	}
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3", "RateLimit": `"user";r=96;t=96, "tenant";r=0;t=1`,
		"RateLimit-Policy": `"user";q=100;w=100, "tenant";q=3;w=3`, "Retry-After": "1", "Cache-Control": "no-store",
	}, serve(handler))
}

// On a tie the fields of the limit that refuses count.
func TestNestedMiddlewaresOnATie(t *testing.T) {
	three, slower := tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.5}
	handler, buckets := nested(t, three, slower)
	require.Equal(t, "1", serve(handler).Header.Get("X-RateLimit-Reset"), "the outer one's")
	require.NoError(t, buckets[1].Charge(2))
	require.NoError(t, buckets[0].Charge(1))
	refused := serve(handler)
	require.Equal(t, 429, refused.StatusCode)
	require.Equal(t, "6", refused.Header.Get("X-RateLimit-Reset"), "the inner one's: both have 0 left")
}

func TestNestedMiddlewaresWithoutAFamily(t *testing.T) {
	for _, c := range []struct {
		opt  httplimit.Option
		want map[string]string
	}{
		{httplimit.WithoutXRateLimit(), map[string]string{
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "1", "RateLimit": `"user";r=2;t=2, "tenant";r=0;t=1`, "RateLimit-Policy": `"user";q=3;w=3, "tenant";q=1;w=1`,
		}},
		{httplimit.WithoutRateLimit(), map[string]string{
			"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1", "RateLimit": `"user";r=2;t=2`, "RateLimit-Policy": `"user";q=3;w=3`,
		}},
	} {
		handler, _ := nested(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, c.opt)
		requireFields(t, c.want, serve(handler))
	}
}

// Figures that other layers have set are not numbers, or are lists.
func TestFieldsOfOuterLayersOfAnotherKind(t *testing.T) {
	handler := newMiddleware(t, fixed{OK: true, Tokens: 3, Limit: tenHalf[0]})(http.NotFoundHandler())
	for outer, want := range map[string]string{"2": "2", "3": "3", "4": "3", "many": "3", "": "3", "-1": "-1"} {
		w := httptest.NewRecorder()
		w.Header().Set("X-RateLimit-Remaining", outer)
		w.Header()["Ratelimit"] = []string{`"a";r=1`, `"b";r=2`}
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, []string{want}, w.Header().Values("X-RateLimit-Remaining"), outer)
		require.Equal(t, []string{`"a";r=1, "b";r=2, "default";r=3;t=6`}, w.Header().Values("RateLimit"))
		require.Equal(t, []string{`"default";q=10;w=20`}, w.Header().Values("RateLimit-Policy"))
	}
}

// What the outer limit took stays taken when the inner one refuses, unless its Admission
// gives it back.
func TestNestedMiddlewaresCanGiveBack(t *testing.T) {
	giveBack := httplimit.WithObserver(func(e httplimit.Event) {
		if outer := httplimit.AdmissionFromContext(e.Request.Context()); e.Refused && !e.ReportOnly {
			_ = outer.Refund(context.WithoutCancel(e.Request.Context()), outer.Cost)
		}
	})
	for want, opts := range map[float64][]httplimit.Option{7: nil, 9: {giveBack}} {
		handler, buckets := nested(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, opts...)
		for range 3 {
			serve(handler)
		}
		require.Equal(t, want, buckets[0].Tokens())
	}
}

func TestExposedFields(t *testing.T) { // modrinth/labrinth#874
	const name = "Access-Control-Expose-Headers"
	const all = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy"
	one := []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}}
	exposing := httplimit.WithExposedFields()
	g := newGateway(t, one, exposing)
	require.Equal(t, []string{all}, g.get("/").Header.Values(name))
	require.Equal(t, []string{all + ", Retry-After"}, g.get("/").Header.Values(name))
	require.Empty(t, newGateway(t, one).get("/").Header.Values(name))

	for want, g := range map[string]*gateway{
		"RateLimit, RateLimit-Policy":                                 newGateway(t, one, exposing, httplimit.WithoutXRateLimit()),
		"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset": newGateway(t, one, exposing, httplimit.WithoutRateLimit()),
		"Retry-After": newGatewayOf(t, broken{}, exposing, httplimit.WithFailClosed(sec)),
		"":            newGatewayOf(t, broken{}, exposing),
	} {
		require.Equal(t, want, g.get("/").Header.Get(name))
	}
	never := newGateway(t, one, exposing, costing(2)).get("/")
	require.Equal(t, all, never.Header.Get(name), "a Retry-After that is not set is not exposed")
}

func TestExposedFieldsJoinThoseOfOuterLayers(t *testing.T) {
	handler := newMiddleware(t, fixed{OK: true, Limit: tenHalf[0]}, httplimit.WithExposedFields(), httplimit.WithoutXRateLimit())(http.NotFoundHandler())
	twice := newMiddleware(t, fixed{OK: true, Limit: tenHalf[0]}, httplimit.WithExposedFields(), httplimit.WithoutXRateLimit())(handler)
	for _, h := range []http.Handler{handler, twice} {
		w := httptest.NewRecorder()
		w.Header()["Access-Control-Expose-Headers"] = []string{"ETag", "ratelimit , X-Total"}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, []string{"ETag, ratelimit , X-Total, RateLimit-Policy"}, w.Header().Values("Access-Control-Expose-Headers"))
	}
}

// cors answers preflights itself, and sets its fields on all other answers.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example.com")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// With the layer for CORS outside, preflights cost nothing and a page can read refusals.
func TestCORSOutsideTheLimiter(t *testing.T) { // modrinth/labrinth#874
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}}, httplimit.WithExposedFields())
	g.handler = cors(g.handler)
	preflight := func(r *http.Request) {
		r.Method = http.MethodOptions
		r.Header.Set("Access-Control-Request-Method", "PUT")
	}
	for range 5 {
		require.Equal(t, 204, g.get("/", preflight).StatusCode)
	}
	require.Equal(t, 200, g.get("/").StatusCode)
	refused := g.get("/")
	require.Equal(t, 429, refused.StatusCode)
	require.Equal(t, "https://app.example.com", refused.Header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, refused.Header.Get("Access-Control-Expose-Headers"), "Retry-After")
}

// If that layer must be inside, a price makes preflights free.
func TestCORSInsideTheLimiter(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1e-6}}, httplimit.WithCosts(tokenbucket.Costs{"OPTIONS /": 0, "GET /export": 1}))
	for range 5 {
		require.Equal(t, 200, g.get("/export", func(r *http.Request) { r.Method = http.MethodOptions }).StatusCode)
	}
	require.Equal(t, 200, g.get("/export").StatusCode)
	require.Equal(t, 429, g.get("/export").StatusCode)
}
