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
// Fiber is not net/http: the request is converted, and what the limiter has in its
// context is in the fiber.Ctx's Context afterwards.
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
