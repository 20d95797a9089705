package main

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter/httplimit"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/fieldtest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// middleware is a peer in front of a handler. It limits by the client's address if it
// can.
type middleware struct {
	name string
	wrap func(testing.TB, tokenbucket.Limit, http.Handler) http.Handler
}

var middlewares = []middleware{
	{"(bare)", wrapBare},
	{"(fields)", wrapFields},
	{"x-time-rate", wrapRate},
	{ours, wrapBuckets},
	{"go-limiter", wrapGoLimiter},
	{"throttled", wrapThrottled},
	{"ulule", wrapUlule},
	{"httprate", wrapHTTPRate},
	{"tollbooth", wrapTollbooth},
}

// wrapBare limits nothing: where others refuse, the handler itself does.
func wrapBare(_ testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	if l == refused.limit {
		return http.HandlerFunc(tooMany)
	}
	return next
}

// wrapFields limits nothing either. It sends the answers of tokenbucket as constants:
// what that costs in addition to the bare handler is the cost of header and writer.
func wrapFields(_ testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	values := &fieldtest.Values{"1", "0", "3600", `"default";r=0;t=3600`, `"default";q=1;w=3600`, "3600", "application/problem+json", "no-store"}
	if l == refused.limit {
		return values.Refuse("Tokens needed: 1, left: 0. Retry in 3600 s.")
	}
	return values.Admit(next)
}

func tooMany(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
}

// wrapRate is middleware as people write it by hand: one limiter for all, and no field.
func wrapRate(_ testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	limiter := rate.NewLimiter(rate.Limit(l.RefillPerSec), int(l.Capacity))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !limiter.Allow() {
			tooMany(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func wrapBuckets(tb testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	buckets := must[*keyed.Buckets[string]](tb)(keyed.New[string](l))
	return must[func(http.Handler) http.Handler](tb)(httplimit.New(httplimit.PerKey(buckets)))(next)
}

func wrapGoLimiter(tb testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	return must[*golimiter.Middleware](tb)(golimiter.NewMiddleware(goLimiterStore(tb, l), golimiter.IPKeyFunc())).Handle(next)
}

func wrapThrottled(tb testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	store := must[throttled.GCRAStoreCtx](tb)(memstore.NewCtx(0))
	limiter := throttled.HTTPRateLimiterCtx{
		RateLimiter: throttledLimiter(tb, l, store),
		VaryBy:      &throttled.VaryBy{RemoteAddr: true},
	}
	return limiter.RateLimit(next)
}

func wrapUlule(_ testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	return stdlib.NewMiddleware(ululeLimiter(l)).Handler(next)
}

func wrapHTTPRate(_ testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	return httprate.LimitBy(int(l.Capacity), window(l), byAddress)(next)
}

func byAddress(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

func wrapTollbooth(_ testing.TB, l tokenbucket.Limit, next http.Handler) http.Handler {
	return tollbooth.LimitHandler(tollbooth.NewLimiter(l.RefillPerSec, nil).SetBurst(int(l.Capacity)), next)
}

// serve returns a function that sends one request after another through a peer, each with
// a new recorder. serve has sent the first request.
func (m middleware) serve(tb testing.TB, l load) (admit func() bool, answer func() *httptest.ResponseRecorder) {
	handler := m.wrap(tb, l.limit, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	var w *httptest.ResponseRecorder
	admit = func() bool {
		w = httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code == http.StatusOK
	}
	admit()
	return admit, func() *httptest.ResponseRecorder { return w }
}

// BenchmarkHTTP is a request through each middleware to a handler that does nothing.
func BenchmarkHTTP(b *testing.B) {
	for _, l := range []load{draining, refused} {
		for _, m := range middlewares {
			b.Run(m.name+"/"+l.name, func(b *testing.B) {
				admit, _ := m.serve(b, l)
				b.ReportAllocs()
				serial(b, m.name, l.admitted, admit)
			})
		}
	}
}

// TestHTTPFields reports which fields each peer sets, and which of them say when a refused
// client may retry.
func TestHTTPFields(t *testing.T) {
	for _, m := range middlewares[1:] {
		t.Run(m.name, func(t *testing.T) {
			for _, l := range []load{draining, refused} {
				admit, answer := m.serve(t, l)
				require.Equal(t, l.admitted, admit())
				t.Attr(l.name, fieldsOf(answer().Header()))
				if m.name == ours && !l.admitted {
					require.Contains(t, answer().Header(), "Retry-After")
				}
			}
		})
	}
}

// TestHTTPConstants compares the row of constants with the answers of tokenbucket.
func TestHTTPConstants(t *testing.T) {
	answers := func(wrap func(testing.TB, tokenbucket.Limit, http.Handler) http.Handler, l load) *httptest.ResponseRecorder {
		admit, answer := middleware{wrap: wrap}.serve(t, l)
		require.Equal(t, l.admitted, admit())
		return answer()
	}
	for _, l := range []load{draining, refused} {
		constant, own := answers(wrapFields, l), answers(wrapBuckets, l)
		require.Equal(t, slices.Sorted(maps.Keys(own.Header())), slices.Sorted(maps.Keys(constant.Header())))
		require.Equal(t, own.Body.Len(), constant.Body.Len())
	}
}

// fieldsOf returns the names of the fields that are about limits.
func fieldsOf(h http.Header) string {
	var names []string
	for name := range h {
		if strings.Contains(strings.ToLower(name), "rate") || name == "Retry-After" {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
