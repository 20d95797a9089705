package main

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// direct is a transport that calls the API without a network. Requests take some time to arrive.
type direct struct{ api *api }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(r.ContentLength%7) * 100 * time.Millisecond):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	answer := httptest.NewRecorder()
	d.api.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// systemClock is virtual time inside a bubble.
type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) Since(t time.Time) time.Duration        { return time.Since(t) }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func TestOneHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(perMinute, systemClock{}, 1)
		c, err := newClient(direct{api}, "http://api.example", perMinute, systemClock{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, run(ctx, c, 8))
		require.Zero(t, api.refused, "the API refuses nothing but on purpose")
		require.NotZero(t, api.onPurpose)
		require.Equal(t, api.onPurpose, c.pauses)
		open := time.Hour - api.ordered
		require.Less(t, open, time.Hour)
		require.GreaterOrEqual(t, float64(c.tokens), 0.95*40_000*open.Minutes(), c.report())
	})
}

func TestAllWorkersObeyARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newClient(nil, "", perMinute, systemClock{})
		require.NoError(t, err)
		c.hold(http.Header{"Retry-After": {"7"}})
		start := time.Now()
		require.NoError(t, c.bucket.WaitEach(t.Context(), 1, 0))
		require.Equal(t, 8*time.Second, time.Since(start), "the pause, and a second for one request")
	})
}

func TestCancelGivesBackWhatWasNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(perMinute, systemClock{}, 7)
		c, err := newClient(direct{api}, "http://api.example", perMinute, systemClock{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.complete(ctx, 100, 900), context.Canceled)
		require.Equal(t, 36_000.0, c.bucket.PeekEach(0, 36_000).Tokens+36_000)

		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond) // while the request is on its way
		defer cancel()
		require.ErrorIs(t, c.complete(ctx, 100, 901), context.DeadlineExceeded)
		require.True(t, c.bucket.PeekEach(0, 36_000).OK, "all tokens are back")
	})
}

func TestLowerNeverRaises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newClient(nil, "", perMinute, systemClock{})
		require.NoError(t, err)
		level := func() float64 { return c.bucket.PeekEach(0, math.MaxFloat64).Tokens }
		c.lower(http.Header{"X-Ratelimit-Remaining-Tokens": {"1000"}})
		require.Equal(t, 1000.0, level())
		c.lower(http.Header{"X-Ratelimit-Remaining-Tokens": {"1000"}})
		require.Equal(t, 1000.0, level(), "two answers that report the same lower once")
		c.lower(http.Header{"X-Ratelimit-Remaining-Tokens": {"30000"}})
		require.Equal(t, 1000.0, level())
		c.lower(http.Header{"X-Ratelimit-Remaining-Tokens": {"-1"}})
		require.Equal(t, 1000.0, level(), "a field that cannot be read")
	})
}

func TestReset(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1s": time.Second, "6m0s": 6 * time.Minute, "1m30.951s": 90951 * time.Millisecond, "859ms": 859 * time.Millisecond,
		"-5s": 0, "": 0, "12": 0, "soon": 0, "1s; 2s": 0,
	} {
		require.Equal(t, want, reset(http.Header{"X-Ratelimit-Reset-Tokens": {text}}, "tokens"), text)
	}
}

func TestFieldsOfTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(tokenbucket.Limits{tokenbucket.PerMinute(3), tokenbucket.PerMinute(1000)}, systemClock{}, 7)
		require.Zero(t, a.admit(400))
		h := http.Header{}
		a.setFields(h)
		require.Equal(t, "2", h.Get("X-Ratelimit-Remaining-Requests"))
		require.Equal(t, "600", h.Get("X-Ratelimit-Remaining-Tokens"))
		require.Equal(t, "20s", h.Get("X-Ratelimit-Reset-Requests"))
		require.Equal(t, "24s", h.Get("X-Ratelimit-Reset-Tokens"))
	})
}

func TestRunsOnAFastClock(t *testing.T) {
	var out strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(300*time.Millisecond, cancel)
	require.NoError(t, serve(ctx, 8, newFastClock(100), &out))
	require.Contains(t, out.String(), "requests,")
	require.NoError(t, serve(ctx, 1, newFastClock(100), io.Discard), "an ended context")
}
