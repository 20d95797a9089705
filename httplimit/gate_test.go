package httplimit_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestGate(t *testing.T) {
	limit := tokenbucket.Limit{Capacity: 5, RefillPerSec: 1e-3}
	limiter := httplimit.Shared(tokenbucket.MustNew(limit))
	gate, err := httplimit.NewGate(limiter)
	require.NoError(t, err)
	require.Equal(t, []tokenbucket.Limit{limit}, gate.Limits())
	r := &http.Request{RemoteAddr: "192.0.2.1:4000"}
	require.Equal(t, "192.0.2.1", gate.Key(r))
	require.Equal(t, "own", gate.OwnKey("own", nil))
	require.Equal(t, "!address:192.0.2.1", gate.OwnKey("", r))

	for _, admitted := range []bool{true, false} {
		a := gate.Ask(t.Context(), "own", 4)
		require.Equal(t, admitted, a.GoesOn())
		e := a.Event()
		require.Equal(t, !admitted, e.Refused)
		require.Equal(t, "own", e.Key)
		require.Equal(t, 4.0, e.Cost)
		require.Regexp(t, `^x"default";r=1;t=\d+$`, string(a.AppendRateLimit([]byte("x"))))
		require.Equal(t, `"default";q=5;w=5000`, a.RateLimitPolicy())
	}
	silent, err := httplimit.NewGate(limiter, httplimit.WithoutRateLimit(), httplimit.WithReportOnly())
	require.NoError(t, err)
	a := silent.Ask(context.Background(), "own", 6)
	require.True(t, a.GoesOn())
	require.True(t, a.Event().Refused)
	require.Empty(t, a.AppendRateLimit(nil))
	require.Empty(t, a.RateLimitPolicy())

	_, err = httplimit.NewGate(nil)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	_, err = httplimit.NewGate(limiter, nil)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
}
