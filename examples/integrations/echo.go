package integrations

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// Echo returns a limiter's middleware for echo v5. Echo sets Request.Pattern before
// the middlewares of Use run.
func Echo(limit func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return echo.WrapMiddleware(limit)
}
