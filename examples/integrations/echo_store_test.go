package integrations_test

import (
	"net/http"
	"testing"

	echo4 "github.com/labstack/echo/v4"
	middleware4 "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/keyed"
)

// oneEach has 1 token for each client, and one more in an hour.
func oneEach(t *testing.T) *keyed.Buckets[string] {
	t.Helper()
	buckets, err := keyed.New[string](tokenbucket.PerHour(1))
	require.NoError(t, err)
	return buckets
}

func TestEcho4Store(t *testing.T) {
	e := echo4.New()
	e.Use(middleware4.RateLimiter(integrations.EchoStore{Buckets: oneEach(t)}))
	requireOneEach(t, e)
}

func TestEcho5Store(t *testing.T) {
	e := echo.New()
	e.Use(middleware.RateLimiter(integrations.EchoStore{Buckets: oneEach(t)}))
	require.Equal(t, "3600", requireOneEach(t, e).Get("Retry-After"))
}

// requireOneEach returns the header of a refusal.
func requireOneEach(t *testing.T, handler http.Handler) http.Header {
	t.Helper()
	other := func(r *http.Request) { r.RemoteAddr = "192.0.2.9:1" }
	require.Equal(t, http.StatusNotFound, get(handler, "/").Code)
	refused := get(handler, "/")
	require.Equal(t, http.StatusTooManyRequests, refused.Code)
	require.Equal(t, http.StatusNotFound, get(handler, "/", other).Code)
	return refused.Header()
}
