package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// contender is a handler that does nothing, with or without something before it.
type contender struct {
	name    string
	handler http.Handler
}

// contenders returns the bare handler first. Nothing is refused, the client is known,
// and all fields are on. What httplimit costs over the fields is its own; what those
// cost over the bare handler is the writer's, whoever sets them.
func contenders(t testing.TB) []contender {
	t.Helper()
	limit, cost := tokenbucket.Limit{Capacity: 1000, RefillPerSec: 0.1}, 1e-6
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	clients, err := keyed.New[string](limit)
	require.NoError(t, err)
	return []contender{
		{"bare", bare},
		{"idiom", idiom(tokenbucket.MustNew(limit), cost, bare)},
		{"fields", fiveFields(bare)},
		{"httplimit", newMiddleware(t, httplimit.PerKey(clients), costing(cost))(bare)},
	}
}

// idiom is what one writes by hand: no fields but Retry-After, no keys.
func idiom(bucket *tokenbucket.Bucket, cost float64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait, ok := bucket.TryAcquire(cost); !ok {
			seconds, _ := tokenbucket.RetryAfter(wait)
			w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fiveFields sets as many fields as the middleware, from constants: no limiter.
func fiveFields(next http.Handler) http.Handler {
	values := [...]string{"1000", "999", "1", `"default";r=999;t=9990`, `"default";q=1000;w=10000`}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Ratelimit-Limit"] = values[0:1:1]
		h["X-Ratelimit-Remaining"] = values[1:2:2]
		h["X-Ratelimit-Reset"] = values[2:3:3]
		h["Ratelimit"] = values[3:4:4]
		h["Ratelimit-Policy"] = values[4:5:5]
		next.ServeHTTP(w, r)
	})
}

// reusedWriter is a recorder of the barest kind, whose header keeps its memory.
type reusedWriter struct{ header http.Header }

func (w *reusedWriter) Header() http.Header         { return w.header }
func (w *reusedWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *reusedWriter) WriteHeader(int)             {}

// BenchmarkMiddleware is what a request costs with a writer that costs nothing itself.
func BenchmarkMiddleware(b *testing.B) {
	for _, c := range contenders(b) {
		b.Run(c.name, func(b *testing.B) {
			w, r := &reusedWriter{http.Header{}}, httptest.NewRequest("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				c.handler.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkMiddlewareRecorded is the same with a new httptest.ResponseRecorder each
// time: it makes room for the fields, and copies them when the status is written. That
// takes three of the five allocations over the bare handler, and most of the time.
func BenchmarkMiddlewareRecorded(b *testing.B) {
	for _, c := range contenders(b) {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				c.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}

func TestAllocations(t *testing.T) {
	allocations := func(handler http.Handler) float64 {
		r := httptest.NewRequest("GET", "/", nil)
		return testing.AllocsPerRun(1000, func() { handler.ServeHTTP(httptest.NewRecorder(), r) })
	}
	all := contenders(t)
	require.LessOrEqual(t, allocations(all[3].handler)-allocations(all[0].handler), 5.0)
}
