package integrations

import (
	"net/http"
	"net/url"
	"strings"

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
			limited.ServeHTTP(w, netRequest(c, r))
		})(c)
		if err != nil || !admitted {
			return err
		}
		return c.Next()
	}
}

// netRequest returns what a limiter reads of a request that fiber's adaptor has converted. The
// text is copied, because fasthttp reuses its memory for later requests, and a limiter keeps
// keys. The adaptor keeps only the last line of each field; netRequest returns all of them.
func netRequest(c fiber.Ctx, converted *http.Request) *http.Request {
	r := converted.WithContext(c.Context())
	r.Method, r.Host, r.RequestURI = strings.Clone(r.Method), strings.Clone(r.Host), strings.Clone(r.RequestURI)
	r.URL, _ = url.ParseRequestURI(r.RequestURI) // the adaptor has parsed it without an error
	r.Pattern = c.Route().Path
	r.Header = http.Header{}
	for name, line := range c.Request().Header.All() {
		r.Header.Add(string(name), string(line))
	}
	return r
}
