package integrations_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestFiber(t *testing.T) {
	served := 0
	app := fiber.New()
	app.Get("/export/:id", integrations.Fiber(newLimit(t, byPattern()...)), func(c fiber.Ctx) error {
		served++
		if httplimit.AdmissionFromContext(c.Context()) == nil {
			return fiber.NewError(http.StatusInternalServerError, "no admission")
		}
		if c.Params("id") == "gone" {
			return fiber.ErrGone
		}
		return c.SendString(c.Params("id"))
	})
	serve := func(path string) *http.Response {
		answer, err := app.Test(httptest.NewRequest("GET", path, nil), fiber.TestConfig{Timeout: 0})
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	requireLimits(t, serve, &served)
	for _, path := range []string{"/EXPORT/7", "/export/7/"} { // fiber serves these spellings
		require.Equal(t, http.StatusTooManyRequests, serve(path).StatusCode, "priced as all others")
	}
	app.Get("/other/:id", integrations.Fiber(newLimit(t)), func(fiber.Ctx) error { return fiber.ErrGone })
	require.Equal(t, http.StatusGone, serve("/other/1").StatusCode, "errors of handlers pass")
}
