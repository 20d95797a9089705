package integrations_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestChi(t *testing.T) {
	served := 0
	r := chi.NewRouter()
	integrations.Chi(r, newLimit(t, byPattern()...), func(r chi.Router) {
		r.Get("/export/{id}", func(w http.ResponseWriter, r *http.Request) {
			served++
			_, _ = w.Write([]byte(chi.URLParam(r, "id")))
		})
	})
	r.Get("/status", func(http.ResponseWriter, *http.Request) {})
	requireLimits(t, func(path string) *http.Response { return get(r, path).Result() }, &served)
	require.Equal(t, http.StatusOK, get(r, "/status").Code, "routes outside the group are not limited")
}
