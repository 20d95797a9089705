package integrations_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// cut is a body whose client disconnects.
func cut(text string) io.Reader {
	return io.MultiReader(strings.NewReader(text), failing{})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client has gone away") }

func TestUploadIsSettled(t *testing.T) {
	for name, c := range map[string]struct {
		body     io.Reader
		declared int64
		status   int
		spent    float64
	}{
		"declared":                 {strings.NewReader("0123456789"), 10, http.StatusNoContent, 10},
		"not declared":             {strings.NewReader("0123456789"), -1, http.StatusNoContent, 10},
		"empty":                    {strings.NewReader(""), 0, http.StatusNoContent, 0},
		"the client goes away":     {cut("0123"), 10, http.StatusInternalServerError, 4},
		"too large, so not stored": {strings.NewReader("0123456789"), 200, http.StatusTooManyRequests, 0},
	} {
		buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 100, RefillPerSec: 1e-9})
		require.NoError(t, err)
		limit, err := httplimit.New(httplimit.PerKey(buckets), httplimit.WithCost(integrations.DeclaredBytes), httplimit.WithAdmission())
		require.NoError(t, err)
		r := httptest.NewRequest("PUT", "/", c.body)
		r.ContentLength = c.declared
		w := httptest.NewRecorder()
		limit(integrations.SettledUpload(func(body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			return err
		})).ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, name)
		require.InDelta(t, 100-c.spent, buckets.Tokens("192.0.2.1"), 1e-6, name)
	}
}
