package integrations

import (
	"net/http"
	"slices"

	"github.com/rs/cors"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// CORS lets pages of one origin use a limited handler. The layer for CORS is outside the
// limiter: it answers preflights, which then cost nothing, and pages can also read
// refusals. Do not set cors.Options.ExposedHeaders for the limiter's fields:
// httplimit.WithExposedFields adds those that are set.
func CORS(origin string, next http.Handler, limiter httplimit.Limiter, opts ...httplimit.Option) (http.Handler, error) {
	limit, err := httplimit.New(limiter, append(slices.Clip(opts), httplimit.WithExposedFields())...)
	if err != nil {
		return nil, err
	}
	return cors.New(cors.Options{AllowedOrigins: []string{origin}}).Handler(limit(next)), nil
}
