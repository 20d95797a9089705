package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/fieldtest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// contender is a handler that does nothing, with or without a limiter in front of it.
type contender struct {
	name    string
	handler http.Handler
}

// contenders returns handlers that answer in the same way, the bare handler first. The
// client has a bucket already, and all fields are on. The difference between the constant
// fields and the bare handler is the cost of setting any fields; the difference between
// httplimit and the constant fields is the cost of httplimit.
func contenders(t testing.TB, admitted bool) []contender {
	t.Helper()
	limit, cost := tokenbucket.Limit{Capacity: 1000, RefillPerSec: 0.1}, 1e-6
	if !admitted {
		cost = 1000
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	clients, err := keyed.New[string](limit)
	require.NoError(t, err)
	all := []contender{
		{"bare", bare},
		{"idiom", idiom(tokenbucket.MustNew(limit), cost, bare)},
		{"fields", constantFields(bare, admitted)},
		{"httplimit", newMiddleware(t, httplimit.PerKey(clients), costing(cost))(bare)},
	}
	if !admitted {
		all[0].handler = http.HandlerFunc(tooMany)
		for _, c := range all { // available cases
			c.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
	}
	return all
}

func tooMany(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "too many requests", http.StatusTooManyRequests)
}

// idiom is a limiter as written by hand: no fields but Retry-After, no keys.
func idiom(bucket *tokenbucket.Bucket, cost float64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait, ok := bucket.TryAcquire(cost); !ok {
			seconds, _ := tokenbucket.RetryAfter(wait)
			w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
			tooMany(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// constantFields sets as many fields as the middleware and sends as long a body, from
// constants: no limiter.
func constantFields(next http.Handler, admitted bool) http.Handler {
	values := &fieldtest.Values{"1000", "999", "1", `"default";r=999;t=9990`, `"default";q=1000;w=10000`, "9990", "application/problem+json", "no-store"}
	if admitted {
		return values.Admit(next)
	}
	return values.Refuse("Tokens needed: 1000, left: 0. Retry in 10000 s.")
}

// reusedWriter is a minimal recorder. It reuses its header.
type reusedWriter struct{ header http.Header }

func (w *reusedWriter) Header() http.Header         { return w.header }
func (w *reusedWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *reusedWriter) WriteHeader(int)             {}

// BenchmarkMiddleware measures a request with a writer that takes almost no time.
func BenchmarkMiddleware(b *testing.B) {
	w := &reusedWriter{http.Header{}}
	benchmark(b, func() http.ResponseWriter {
		clear(w.header)
		return w
	})
}

// BenchmarkMiddlewareRecorded is like BenchmarkMiddleware, with a new
// httptest.ResponseRecorder each time. The recorder makes room for the fields, and copies
// them when the status is written. As the constant fields show, that takes longer than
// all the rest.
func BenchmarkMiddlewareRecorded(b *testing.B) {
	benchmark(b, func() http.ResponseWriter { return httptest.NewRecorder() })
}

func benchmark(b *testing.B, writer func() http.ResponseWriter) {
	for _, admitted := range []bool{true, false} {
		for _, c := range contenders(b, admitted) {
			b.Run(fmt.Sprintf("%s/admitted=%v", c.name, admitted), func(b *testing.B) {
				r := httptest.NewRequest("GET", "/", nil)
				b.ReportAllocs()
				for b.Loop() {
					c.handler.ServeHTTP(writer(), r)
				}
			})
		}
	}
}

// TestAllocations counts the allocations of the middleware beyond those of a handler that
// sets constant fields and sends a constant body.
func TestAllocations(t *testing.T) {
	for _, admitted := range []bool{true, false} {
		allocations := map[string]float64{}
		for _, c := range contenders(t, admitted) {
			r := httptest.NewRequest("GET", "/", nil)
			allocations[c.name] = testing.AllocsPerRun(1000, func() { c.handler.ServeHTTP(httptest.NewRecorder(), r) })
		}
		require.LessOrEqual(t, allocations["httplimit"]-allocations["fields"], 1.0, "admitted: %v", admitted)
	}
}

func TestWhatTellsNothingAllocatesNothing(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	w, r := &reusedWriter{http.Header{}}, httptest.NewRequest("GET", "/", nil)
	for name, handler := range map[string]http.Handler{
		"fields turned off": newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])), costing(1e-6), httplimit.WithoutXRateLimit(), httplimit.WithoutRateLimit())(next),
		"an untold limit":   newMiddleware(t, &telling{fixed: fixed{OK: true}})(next),
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { handler.ServeHTTP(w, r) }), name)
		require.Empty(t, w.header, name)
	}
}

func TestBothAllocatesNothing(t *testing.T) {
	plenty := tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1}
	shared := func() httplimit.Refunder { return httplimit.Shared(tokenbucket.MustNew(plenty)) }
	both := settler(httplimit.Both(httplimit.Both(shared(), shared()).(httplimit.Refunder), shared()))
	ctx, costs := context.Background(), []float64{1, 1, 1}
	for name, call := range map[string]func(){
		"Take":       func() { _, _ = both.Take(ctx, "", 1) },
		"Refund":     func() { _ = both.Refund(ctx, "", 1) },
		"TakeEach":   func() { _, _ = both.TakeEach(ctx, "", costs...) },
		"RefundEach": func() { _ = both.RefundEach(ctx, "", costs...) },
		"ChargeEach": func() { _ = both.ChargeEach(ctx, "", costs...) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, call), name)
	}
}
