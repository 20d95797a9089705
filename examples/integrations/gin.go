package integrations

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin returns a limiter's middleware for gin. Gin calls the next handler when a middleware
// returns, unless the middleware aborts. So this middleware,
//
//	limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
//
// answers 429 and then runs the handler anyway.
func Gin(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		c.Request.Pattern = c.FullPath()
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted, c.Request = true, r
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}
