package integrations

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
)

// Fiber returns a limiter's middleware for fiber v3. Added to a route, as in
// app.Get("/export/:id", Fiber(limit), export), the pattern is that of the route; in Use
// it is that of Use.
//
// Fiber does not use net/http, so the request is converted. Afterwards, the Context of
// the fiber.Ctx has the values of the limiter's context.
func Fiber(limit func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		admitted := false
		limited := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted = true
			c.SetContext(r.Context())
		}))
		err := adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(c.Context())
			r.Pattern = c.Route().Path
			limited.ServeHTTP(w, r)
		})(c)
		if err != nil || !admitted {
			return err
		}
		return c.Next()
	}
}
