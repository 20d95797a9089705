package integrations

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
)

// Fiber returns a limiter's middleware for fiber v3. If it is added to a route, as in
// app.Get("/export/:id", Fiber(limit), export), Request.Pattern is the pattern of the
// route. If it is added by app.Use, Request.Pattern is the path given to Use.
//
// Fiber does not use net/http, so the request is converted. In later handlers,
// c.Context() has the values that the limiter set, such as httplimit's Admission.
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
