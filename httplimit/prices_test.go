package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func pricing(costs tokenbucket.Costs) error {
	_, err := httplimit.New(fixed{OK: true}, httplimit.WithCosts(costs))
	return err
}

func TestPricesThatNeverApplyAreStartUpErrors(t *testing.T) { // outline#13504, ovumcy-web#354
	for pattern, advice := range map[string]string{
		"GET /export/:id":           "{name}",
		"/:tenant/export":           "{name}",
		"GET /files/*path":          "{name...}",
		"/files/*":                  "{name...}",
		"/*/export":                 "{name...}",
		"api.example.com/:id":       "{name}",
		"get /export":               "upper case",
		"Post\t/export":             "upper case",
		"api.example.com:8080/":     "without a port",
		"GET [::1]:80/":             "without a port",
		"https://api.example.com/x": "without a port",
		"GET API.example.com/x":     "host in lower case",
		"*.example.com/x":           "each host",
		"bücher.example/x":          "xn--",
		"GET /search?q=1":           "query",
		"/page#top":                 "query",
		"/a//b":                     "//",
		"//":                        "//",
		"/a/../b":                   "..",
		"/a/./b":                    ".",
	} {
		err := pricing(tokenbucket.Costs{pattern: 2})
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, pattern)
		require.ErrorContains(t, err, advice, pattern)
	}
}

func TestPricesThatOnlyLookLikeThat(t *testing.T) {
	for _, pattern := range []string{
		"/v1/things:export", "POST /v1/{name}/undelete", "/a*b", "/files/{path...}", "/", "/{$}", "GET  /export", "/export/", "/a/b/{$}",
		"/%3Aid", "/%2A", "/c%23", "/why%3F", "[::1]/x", "CONNECT /a//b", "PROPFIND /x", "/...", "/a..b/",
	} {
		require.NoError(t, pricing(tokenbucket.Costs{pattern: 2}), pattern)
	}
	g := newGateway(t, tenHalf, httplimit.WithCosts(tokenbucket.Costs{"/v1/things:export": 5, "/%3Aid": 4, "/%2A": 3}))
	for path, want := range map[string]float64{"/v1/things:export": 5, "/:id": 4, "/*": 3, "/v1/things": 1} {
		g.get(path)
		require.Equal(t, want, g.lastEvent().Cost, path)
	}
}

func TestErrorOfOverlappingPricesNamesNoFile(t *testing.T) {
	err := pricing(tokenbucket.Costs{"/a/{x}": 1, "/{y}/b": 1})
	require.ErrorContains(t, err, `"/{y}/b" conflicts with pattern "/a/{x}"`)
	require.ErrorContains(t, err, `like "/a/b"`)
	require.NotContains(t, err.Error(), ".go")
	require.NotContains(t, err.Error(), "registered")
}

// A router that accepts more than a ServeMux serves these spellings. With such a router,
// a price for "/" is the safe default.
func TestDefaultPriceCoversEverySpelling(t *testing.T) { // ovumcy-web#354
	spellings := []string{"/EXPORT/7", "/export/7/", "//export/7", "/app/export/7"}
	listed := newGateway(t, tenHalf, httplimit.WithCosts(tokenbucket.Costs{"/export/{id}": 5}))
	safe := newGateway(t, []tokenbucket.Limit{{Capacity: 100, RefillPerSec: 1}}, httplimit.WithCosts(tokenbucket.Costs{"/": 5, "GET /read": 1}))
	for _, path := range spellings {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path = path
		listed.handler.ServeHTTP(httptest.NewRecorder(), r)
		if path != "//export/7" { // a ServeMux cleans it
			require.Equal(t, 1.0, listed.lastEvent().Cost, path)
		}
		safe.handler.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, 5.0, safe.lastEvent().Cost, path)
	}
	safe.get("/read")
	require.Equal(t, 1.0, safe.lastEvent().Cost)
}

// A ServeMux redirects these to a path with a slash at its end. Other routers may serve them.
func TestPriceOfAPathWithoutItsSlash(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1000, RefillPerSec: 1}}, httplimit.WithCosts(tokenbucket.Costs{
		"/": 9, "/users/{id}/": 5, "POST /export/": 50, "GET /export/": 20, "CONNECT /export/": 30,
	}))
	for _, row := range []struct {
		method, path string
		cost         float64
	}{
		{"GET", "/users/7", 5},
		{"CONNECT", "/users/7", 5},
		{"CONNECT", "/users/a%2Fb", 5},
		{"GET", "/export", 20},
		{"POST", "/export", 50},
		{"CONNECT", "/export", 30},
		{"PUT", "/export", 9},
		{"CONNECT", "/other", 9},
	} {
		r := httptest.NewRequest("GET", row.path, nil)
		r.Method = row.method
		g.handler.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, row.cost, g.lastEvent().Cost, row)
	}
}

// The pattern that a router has matched can be the name of a price, if the router reports
// it.
func TestPriceByTheRoutersPattern(t *testing.T) {
	costs := tokenbucket.Costs{"GET /export/{id}": 5}
	limit := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])),
		httplimit.WithCost(func(r *http.Request) float64 { return costs.Of(r.Pattern) }))
	mux := http.NewServeMux()
	mux.Handle("GET /export/{id}", limit(http.NotFoundHandler())) // inside, so the pattern is known
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/export/7", nil))
	require.Equal(t, "5", w.Header().Get("X-RateLimit-Remaining"))
}
