package integrations_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// prices are the prices of the routes, in the syntax of each router.
var prices = tokenbucket.Costs{"GET /export/:id": 5, "GET /export/{id}": 5}

// perClient has 10 tokens for every client, and no more during a test.
func perClient(t *testing.T) httplimit.Limiter {
	t.Helper()
	buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-6})
	require.NoError(t, err)
	return httplimit.PerKey(buckets)
}

func newLimit(t *testing.T, opts ...httplimit.Option) func(http.Handler) http.Handler {
	t.Helper()
	limit, err := httplimit.New(perClient(t), opts...)
	require.NoError(t, err)
	return limit
}

func get(handler http.Handler, path string, with ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for _, change := range with {
		change(r)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// byPattern returns the options of the routers' limits: prices, and an Admission to
// settle the cost.
func byPattern() []httplimit.Option {
	return []httplimit.Option{httplimit.WithCost(integrations.PriceByPattern(prices)), httplimit.WithAdmission()}
}

// requireLimits sends requests to a router with the route /export/{id} at 5 tokens, which
// has answered with the request's id and counted it in served.
func requireLimits(t *testing.T, serve func(path string) *http.Response, served *int) {
	t.Helper()
	first := serve("/export/7")
	require.Equal(t, http.StatusOK, first.StatusCode)
	require.Equal(t, "5", first.Header.Get("X-RateLimit-Remaining"), "the price of the router's own pattern")
	require.Equal(t, http.StatusOK, serve("/export/8").StatusCode)
	refused := serve("/export/9")
	require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.Equal(t, "application/problem+json", refused.Header.Get("Content-Type"))
	require.Equal(t, 2, *served, "the handler of a refused request is not called")
}
