package httplimit_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// There are two limiters with two equal limits each. The event says which limit of which
// limiter refused.
func TestEventReportsWhichLimitRefused(t *testing.T) {
	for _, c := range []struct {
		drained        func(first, second *levels)
		limiter, limit int
		policy         string
	}{
		{func(first, _ *levels) { first.tokens[0] = 0 }, 0, 0, "default"},
		{func(first, _ *levels) { first.tokens[1] = 0 }, 0, 1, "default-2"},
		{func(_, second *levels) { second.tokens[0] = 0 }, 1, 0, "default-3"},
		{func(_, second *levels) { second.tokens[1] = 0 }, 1, 1, "default-4"},
	} {
		first, second, last := newLevels(5, 5), newLevels(5, 5), newLevels(5, 5)
		both := httplimit.Both(first, httplimit.Both(second, last))
		c.drained(first, second)
		g := newGatewayOf(t, both)
		answer := g.get("/")
		e := g.lastEvent()
		require.True(t, e.Refused)
		require.Equal(t, []any{c.limiter, c.limit, c.policy}, []any{e.LimiterIndex, e.Decision.LimitIndex, e.Policy})
		require.Equal(t, []any{c.policy}, body(t, answer)["violated-policies"])
		require.False(t, e.Fallback)
	}
}

func TestEventCountsThroughEveryBoth(t *testing.T) {
	first, second, last := newLevels(9), newLevels(9), newLevels(1)
	left, ok := httplimit.Both(first, second).(httplimit.Refunder)
	require.True(t, ok)
	g := newGatewayOf(t, httplimit.Both(left, last))
	g.get("/")
	g.get("/")
	require.Equal(t, []any{2, 0, "default-3"}, []any{g.lastEvent().LimiterIndex, g.lastEvent().Decision.LimitIndex, g.lastEvent().Policy})
	require.Equal(t, [][]float64{{8}, {8}, {0}}, [][]float64{first.tokens, second.tokens, last.tokens})
}

func TestEventReportsTheFallback(t *testing.T) {
	g := newGatewayOf(t, broken{}, httplimit.WithFallback(httplimit.Both(newLevels(9), newLevels(1))))
	for _, refused := range []bool{false, true} {
		g.get("/")
		e := g.lastEvent()
		require.True(t, e.Fallback)
		require.Equal(t, refused, e.Refused)
		require.Equal(t, 1, e.LimiterIndex)
		require.Equal(t, "default-2", e.Policy)
		require.ErrorIs(t, e.Err, errBroken)
	}
	both := newGatewayOf(t, broken{}, httplimit.WithFallback(broken{}), costing(3))
	both.get("/")
	require.Equal(t, []any{-1, false, "", 3.0}, []any{both.lastEvent().LimiterIndex, both.lastEvent().Fallback, both.lastEvent().Policy, both.lastEvent().Cost})
	require.Zero(t, both.lastEvent().Decision)
}

func TestEventReportsThatRefusalsAreOnlyReported(t *testing.T) {
	for _, reportOnly := range []bool{false, true} {
		opts := []httplimit.Option{costing(11)}
		if reportOnly {
			opts = append(opts, httplimit.WithReportOnly())
		}
		g := newGateway(t, tenHalf, opts...)
		g.get("/")
		require.Equal(t, []any{true, reportOnly}, []any{g.lastEvent().Refused, g.lastEvent().ReportOnly})
	}
}

// The observer is called once for each request, for every kind of decision.
func TestOneEventPerRequest(t *testing.T) {
	local := httplimit.Shared(tokenbucket.MustNew(tenHalf[0]))
	for name, g := range map[string]*gateway{
		"admitted":              newGateway(t, tenHalf),
		"refused":               newGateway(t, tenHalf, costing(11)),
		"failed, admitted":      newGatewayOf(t, broken{}),
		"failed, refused":       newGatewayOf(t, broken{}, httplimit.WithFailClosed(sec)),
		"failed, fallback":      newGatewayOf(t, broken{}, httplimit.WithFallback(local)),
		"failed twice":          newGatewayOf(t, broken{}, httplimit.WithFallback(broken{})),
		"failed, only reported": newGatewayOf(t, broken{}, httplimit.WithFailClosed(sec), httplimit.WithReportOnly()),
		"only reported":         newGateway(t, tenHalf, costing(11), httplimit.WithReportOnly()),
		"with an Admission":     newGateway(t, tenHalf, httplimit.WithAdmission()),
		"the second fails":      newGatewayOf(t, httplimit.Both(local, broken{})),
	} {
		for n := 1; n < 3; n++ {
			g.get("/")
			require.Len(t, g.events, n, name)
		}
	}
}

func TestUnavailableHandler(t *testing.T) {
	var failure error
	answer := httplimit.WithUnavailable(func(w http.ResponseWriter, r *http.Request, err error) {
		failure = err
		http.Error(w, r.URL.Path, http.StatusTeapot)
	})
	g := newGatewayOf(t, broken{}, httplimit.WithFailClosed(2*sec), answer, httplimit.WithRefusal(func(http.ResponseWriter, *http.Request, tokenbucket.Decision) {
		panic("not a refusal of a limiter")
	}))
	got := g.get("/a")
	require.Equal(t, 418, got.StatusCode)
	requireFields(t, map[string]string{"Retry-After": "2", "Cache-Control": "no-store"}, got)
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Equal(t, "/a\n", string(text))
	require.ErrorIs(t, failure, errBroken)

	require.Equal(t, 503, newGatewayOf(t, broken{}, httplimit.WithFailClosed(sec), httplimit.WithUnavailable(nil)).get("/").StatusCode)
	_, err = httplimit.New(broken{}, answer)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, "it would never be called")
	_, err = httplimit.New(broken{}, nil)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
}

// Event.Err joins the errors of both limiters, and the error of the refund to the first.
func TestEventHasAllErrors(t *testing.T) {
	g := newGatewayOf(t, httplimit.Both(stingy{httplimit.Shared(tokenbucket.MustNew(tenHalf[0]))}, broken{}))
	g.get("/")
	for _, want := range []error{errBroken, errStingy} {
		require.True(t, errors.Is(g.lastEvent().Err, want))
	}
}
