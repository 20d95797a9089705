package integrations_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestPriceByPattern(t *testing.T) {
	price := integrations.PriceByPattern(tokenbucket.Costs{
		"GET /export/:id": 5, "/export/:id": 7, "GET /ping": 4, "HEAD /ping": 0, "GET example.com/host": 3, "": 9,
	})
	for _, c := range []struct {
		method, pattern string
		price           float64
	}{
		{"GET", "/export/:id", 5},
		{"HEAD", "/export/:id", 5}, // fiber, among others, serves HEAD by the handler of GET
		{"POST", "/export/:id", 7},
		{"GET", "/ping", 4},
		{"HEAD", "/ping", 0},
		{"POST", "/ping", 1},
		{"HEAD", "GET example.com/host", 3}, // as a ServeMux sets it
		{"GET", "", 9},
		{"GET", "/other", 1},
	} {
		require.Equal(t, c.price, price(&http.Request{Method: c.method, Pattern: c.pattern}), c)
	}
}
