package integrations

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin returns a limiter's middleware for gin. When a middleware returns, gin calls the next
// handler unless the middleware has called Abort. The middleware returned here calls Abort
// for a refused request. A middleware with only the line below does not: it answers 429,
// and then gin runs the handler anyway.
//
//	limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
func Gin(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		var admitted *http.Request
		c.Request.Pattern = c.FullPath()
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted = r
		})).ServeHTTP(c.Writer, c.Request)
		if admitted == nil {
			c.Abort()
			return
		}
		*c.Request = *admitted // in place, because the server removes the files of the forms in its own request
	}
}
