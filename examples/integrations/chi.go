package integrations

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Chi limits the routes that the function add registers. A chi.Router accepts a
// limiter's middleware unchanged. If the main router adds it with Use, it runs for all
// requests, also those that no route matches. In a Group, as here, it runs after
// routing, so that Request.Pattern is known.
func Chi(r chi.Router, limit func(http.Handler) http.Handler, add func(chi.Router)) {
	r.Group(func(r chi.Router) {
		r.Use(limit)
		add(r)
	})
}
