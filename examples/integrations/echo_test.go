package integrations_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestEcho(t *testing.T) {
	served := 0
	e := echo.New()
	e.Use(integrations.Echo(newLimit(t, byPattern()...)))
	e.GET("/export/:id", func(c *echo.Context) error {
		served++
		if httplimit.AdmissionFromContext(c.Request().Context()) == nil {
			return echo.NewHTTPError(http.StatusInternalServerError, "no admission")
		}
		return c.String(http.StatusOK, c.Param("id"))
	})
	e.GET("/gone", func(*echo.Context) error { return echo.NewHTTPError(http.StatusGone, "gone") })
	requireLimits(t, func(path string) *http.Response { return get(e, path).Result() }, &served)
	other := func(r *http.Request) { r.RemoteAddr = "192.0.2.9:1" }
	require.Equal(t, http.StatusGone, get(e, "/gone", other).Code, "errors of handlers pass")
}

func TestEchoFilesOfFormsAreRemoved(t *testing.T) {
	e := echo.New()
	e.Use(integrations.Echo(newLimit(t, httplimit.WithAdmission())))
	e.POST("/", func(c *echo.Context) error {
		require.NoError(t, c.Request().ParseMultipartForm(1))
		file, err := c.FormFile("file")
		require.NoError(t, err)
		c.Response().Header().Set("X-Name", nameOf(t, file))
		return nil
	})
	requireFileIsRemoved(t, e)
}
