package integrations

import (
	"strconv"

	"github.com/labstack/echo/v5"

	"github.com/aa014e13/tokenbucket/keyed"
)

// EchoStore is a store for the RateLimiter middleware of echo v4 and v5, for programs
// that already use that middleware. It has a bucket for each identifier; a request costs
// 1.
type EchoStore struct {
	Buckets *keyed.Buckets[string]
}

// Allow is what echo v4 calls.
func (s EchoStore) Allow(identifier string) (bool, error) {
	_, ok := s.Buckets.TryAcquire(identifier, 1)
	return ok, nil
}

// AllowContext is what echo v5 calls instead. It sets Retry-After on a refusal.
func (s EchoStore) AllowContext(c *echo.Context, identifier string) (bool, error) {
	d := s.Buckets.Take(identifier, 1)
	if seconds, ok := d.RetryAfter(); ok && !d.OK {
		c.Response().Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	return d.OK, nil
}
