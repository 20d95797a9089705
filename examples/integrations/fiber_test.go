package integrations_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestFiber(t *testing.T) {
	served := 0
	app := fiber.New()
	app.Get("/export/:id", integrations.Fiber(newLimit(t, byPattern()...)), func(c fiber.Ctx) error {
		served++
		if httplimit.AdmissionFromContext(c.Context()) == nil {
			return fiber.NewError(http.StatusInternalServerError, "no admission")
		}
		if c.Params("id") == "gone" {
			return fiber.ErrGone
		}
		return c.SendString(c.Params("id"))
	})
	serve := func(path string) *http.Response {
		answer, err := app.Test(httptest.NewRequest("GET", path, nil), fiber.TestConfig{Timeout: 0})
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	requireLimits(t, serve, &served)
	for _, path := range []string{"/EXPORT/7", "/export/7/"} { // fiber serves these spellings
		require.Equal(t, http.StatusTooManyRequests, serve(path).StatusCode, "priced as all others")
	}
	app.Get("/other/:id", integrations.Fiber(newLimit(t)), func(fiber.Ctx) error { return fiber.ErrGone })
	require.Equal(t, http.StatusGone, serve("/other/1").StatusCode, "errors of handlers pass")
}

// For the next request of a connection, fasthttp uses the memory of the one before.
func TestFiberLimiterKeepsKeys(t *testing.T) {
	for name, key := range map[string]func(*http.Request) string{
		"of the header": func(r *http.Request) string { return r.Header.Get("X-User") },
		"of the query":  func(r *http.Request) string { return r.URL.Query().Get("user") },
		"of the path":   func(r *http.Request) string { return r.URL.Path },
		"of the host":   func(r *http.Request) string { return r.Host },
	} {
		limit, err := httplimit.New(perKey(t, 1), httplimit.WithKey(key))
		require.NoError(t, err)
		app := fiber.New()
		app.Get("/:user", integrations.Fiber(limit), func(fiber.Ctx) error { return nil })
		var one, other fasthttp.RequestCtx
		status := func(ctx *fasthttp.RequestCtx, user string) int {
			ctx.Request.SetRequestURI("http://" + user + ".example.com/" + user + "?user=" + user)
			ctx.Request.Header.Set("X-User", user)
			ctx.Response.Reset()
			app.Handler()(ctx)
			return ctx.Response.StatusCode()
		}
		require.Equal(t, http.StatusOK, status(&one, "alice"), name)
		require.Equal(t, http.StatusOK, status(&one, "bobby"), name)
		require.Equal(t, http.StatusTooManyRequests, status(&other, "alice"), name)
		require.Equal(t, http.StatusTooManyRequests, status(&other, "bobby"), name)
	}
}

func TestFiberLimiterSeesAllLinesOfAField(t *testing.T) {
	var keys []string
	limit := newLimit(t, httplimit.WithTrustedHeader("X-Real-IP", netip.MustParsePrefix("0.0.0.0/0")),
		httplimit.WithObserver(func(e httplimit.Event) { keys = append(keys, e.Key) }))
	app := fiber.New()
	app.Get("/", integrations.Fiber(limit), func(fiber.Ctx) error { return nil })
	var ctx fasthttp.RequestCtx
	for _, address := range []string{"203.0.113.7", "198.51.100.66"} {
		ctx.Request.Header.Add("X-Real-IP", address)
		app.Handler()(&ctx)
	}
	require.Equal(t, []string{"203.0.113.7", "0.0.0.0"}, keys, "with two lines, the peer counts")
}

// Fiber serves HEAD by the handlers of GET.
func TestFiberHeadCostsWhatGetCosts(t *testing.T) {
	app := fiber.New()
	app.Get("/export/:id", integrations.Fiber(newLimit(t, byPattern()...)), func(c fiber.Ctx) error { return c.SendString("text") })
	answer, err := app.Test(httptest.NewRequest("HEAD", "/export/7", nil), fiber.TestConfig{Timeout: 0})
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "5", answer.Header.Get("X-RateLimit-Remaining"))
}
