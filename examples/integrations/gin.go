package integrations

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin returns a limiter's middleware for gin. Gin calls the next handler when a middleware
// returns, unless it aborts. So the obvious three lines,
//
//	limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
//
// answer 429 and then run the handler anyway.
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
