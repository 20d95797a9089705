package integrations_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestCORS(t *testing.T) {
	const origin = "https://app.example.com"
	handler, err := integrations.CORS(origin, http.NotFoundHandler(), perKey(t, 1))
	require.NoError(t, err)
	preflight := func(r *http.Request) {
		r.Method = http.MethodOptions
		r.Header.Set("Access-Control-Request-Method", "GET")
	}
	for range 5 {
		require.Equal(t, http.StatusNoContent, get(handler, "/", header("Origin", origin), preflight).Code, "preflights cost nothing")
	}
	for _, status := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
		answer := get(handler, "/", header("Origin", origin))
		require.Equal(t, status, answer.Code)
		require.Equal(t, origin, answer.Header().Get("Access-Control-Allow-Origin"))
		require.Contains(t, answer.Header().Get("Access-Control-Expose-Headers"), "RateLimit-Policy")
	}
	require.Contains(t, get(handler, "/", header("Origin", origin)).Header().Get("Access-Control-Expose-Headers"), "Retry-After")
}
