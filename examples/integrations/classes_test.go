package integrations_test

import (
	"crypto/sha256"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func perKey(t *testing.T, capacity float64) httplimit.Limiter {
	t.Helper()
	buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: capacity, RefillPerSec: 1e-6})
	require.NoError(t, err)
	return httplimit.PerKey(buckets)
}

func TestClassesByAPIKey(t *testing.T) {
	customers := integrations.Customers{
		sha256.Sum256([]byte("key-a")): {Class: "gold", Name: "alice"},
		sha256.Sum256([]byte("key-b")): {Class: "basic", Name: "bob"},
		sha256.Sum256([]byte("key-c")): {Class: "retired", Name: "carol"},
	}
	classes := integrations.Classes{
		ByName: map[string]httplimit.Limiter{"gold": perKey(t, 100), "basic": perKey(t, 10)},
		Others: perKey(t, 2),
	}
	limit, err := httplimit.New(classes, httplimit.WithKey(customers.Key))
	require.NoError(t, err)
	handler := limit(http.NotFoundHandler())
	for _, c := range []struct{ key, policy, remaining string }{
		{"key-a", `"default";q=100;w=100000000`, "99"},
		{"key-b", `"default";q=10;w=10000000`, "9"},
		{"key-b", `"default";q=10;w=10000000`, "8"},
		{"key-c", `"default";q=2;w=2000000`, "1"},
		{"", `"default";q=2;w=2000000`, "1"},
		{"guess-1", `"default";q=2;w=2000000`, "0"}, // the address has had its second token
		{"guess-2", `"default";q=2;w=2000000`, "0"},
	} {
		h := get(handler, "/", header("X-API-Key", c.key)).Header()
		require.Equal(t, c.policy, h.Get("RateLimit-Policy"), c.key)
		require.Equal(t, c.remaining, h.Get("X-RateLimit-Remaining"), c.key)
	}
	require.Equal(t, http.StatusTooManyRequests, get(handler, "/", header("X-API-Key", "guess-3")).Code)

	strict := customers.Require(handler)
	require.Equal(t, http.StatusUnauthorized, get(strict, "/", header("X-API-Key", "guess-3")).Code)
	require.Equal(t, http.StatusUnauthorized, get(strict, "/").Code)
	require.Equal(t, http.StatusNotFound, get(strict, "/", header("X-API-Key", "key-a")).Code)
}
