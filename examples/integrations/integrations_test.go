package integrations_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
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

// requireFileIsRemoved uploads a large file in a form, and checks that the server removes its
// copy when the handler has returned. The handler answers with the name of the copy in X-Name.
func requireFileIsRemoved(t *testing.T, handler http.Handler) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "name")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, 11<<20)) // 10 MB may stay in memory
	require.NoError(t, err)
	require.NoError(t, form.Close())
	server := httptest.NewServer(handler)
	answer, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	server.Close() // waits until the requests have ended
	require.NotEmpty(t, answer.Header.Get("X-Name"))
	require.NoFileExists(t, answer.Header.Get("X-Name"))
}

// nameOf returns the name of the file in which the server keeps a form's file.
func nameOf(t *testing.T, file *multipart.FileHeader) string {
	t.Helper()
	opened, err := file.Open()
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	return opened.(*os.File).Name()
}
