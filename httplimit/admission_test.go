package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// admissions returns a server that keeps the Admission of every request.
func admissions(t *testing.T, limiter httplimit.Limiter, opts ...httplimit.Option) (get func(with ...func(*http.Request)) *httplimit.Admission) {
	t.Helper()
	var last *httplimit.Admission
	handler := newMiddleware(t, limiter, append(opts, httplimit.WithAdmission())...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		last = httplimit.AdmissionFromContext(r.Context())
	}))
	return func(with ...func(*http.Request)) *httplimit.Admission {
		last = nil
		r := httptest.NewRequest("GET", "/", nil)
		for _, change := range with {
			change(r)
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		return last
	}
}

func TestAdmissionSettlesTheSameKey(t *testing.T) {
	for name, opts := range map[string][]httplimit.Option{
		"by address": {costing(3)},
		"by API key": {costing(3), httplimit.WithAPIKey("X-API-Key")},
		"no key":     {costing(3), httplimit.WithKey(func(*http.Request) string { return "" })},
	} {
		buckets, err := keyed.New[string](tenHalf[0], keyed.WithClock(new(waittest.Clock)))
		require.NoError(t, err)
		a := admissions(t, httplimit.PerKey(buckets), opts...)(header("X-API-Key", "secret"))
		require.Equal(t, 3.0, a.Cost)
		require.Equal(t, tokenbucket.Decision{OK: true, Tokens: 7, Limit: tenHalf[0]}, a.Decision)

		ctx, cancel := context.WithCancel(context.Background())
		cancel() // the answer is sent, and the client has gone
		require.NoError(t, a.Charge(ctx, 5))
		require.Equal(t, 2.0, buckets.Tokens(a.Key), name)
		require.NoError(t, a.Charge(ctx, 5))
		require.Equal(t, -3.0, buckets.Tokens(a.Key), "into debt")
		require.NoError(t, a.Refund(ctx, 4))
		require.Equal(t, 1.0, buckets.Tokens(a.Key))
		require.NoError(t, a.Refund(ctx, 400))
		require.Equal(t, 10.0, buckets.Tokens(a.Key), "up to the capacity")
		require.ErrorIs(t, a.Charge(ctx, -1), tokenbucket.ErrInvalidCost)
		require.ErrorIs(t, a.Refund(ctx, -1), tokenbucket.ErrInvalidCost)
		require.NoError(t, a.Charge(ctx, 1))
		require.Equal(t, 1, buckets.Len(), "no other key was settled")
	}
}

// settling is a limiter that fails if the context has ended, as the client of a store
// does.
type settling struct {
	httplimit.Refunder
	fails bool
}

func (s settling) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	if s.fails {
		return tokenbucket.Decision{}, errBroken
	}
	return s.Refunder.Take(ctx, key, cost)
}

func (s settling) Refund(ctx context.Context, key string, cost float64) error {
	return errors.Join(ctx.Err(), s.Refunder.Refund(ctx, key, cost))
}

func (s settling) Charge(ctx context.Context, key string, cost float64) error {
	return errors.Join(ctx.Err(), s.Refunder.(interface {
		Charge(ctx context.Context, key string, cost float64) error
	}).Charge(ctx, key, cost))
}

func TestErrorOfABadCostNamesTheCost(t *testing.T) {
	bucket := httplimit.Shared(tokenbucket.MustNew(tenHalf[0]))
	for _, l := range []httplimit.Limiter{bucket, httplimit.Both(bucket, bucket)} {
		a := admissions(t, l)()
		for _, settle := range []func(context.Context, float64) error{a.Charge, a.Refund} {
			err := settle(context.Background(), -3)
			require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
			require.ErrorContains(t, err, "-3")
		}
	}
}

func TestAdmissionSettlesWithTheLimiterThatDecided(t *testing.T) {
	store, local := newHouse(t, tenHalf[0], tenHalf[0]), newHouse(t, tenHalf[0], tenHalf[0])
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, fails := range []bool{false, true} {
		first := settling{httplimit.PerKey(store.own), fails}
		a := admissions(t, first, httplimit.WithFallback(local.both))()
		require.NoError(t, a.Charge(ctx, 2))
		require.NoError(t, a.Refund(ctx, 1))
	}
	require.Equal(t, 8.0, store.own.Tokens("192.0.2.1"), "the first was asked once")
	require.Equal(t, 8.0, local.own.Tokens("192.0.2.1"))
	require.Equal(t, 8.0, local.everyone.Tokens(), "Both settles with both")

	nobody := admissions(t, settling{httplimit.PerKey(store.own), true})()
	require.Equal(t, "192.0.2.1", nobody.Key)
	require.Equal(t, 1.0, nobody.Cost)
	require.Zero(t, nobody.Decision)
	for _, settle := range []func(context.Context, float64) error{nobody.Charge, nobody.Refund} {
		require.NoError(t, settle(ctx, 1))
	}
	require.Equal(t, 8.0, store.own.Tokens("192.0.2.1"))
}

func TestAdmissionOfWhatWasNotTaken(t *testing.T) {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, tokenbucket.WithClock(new(waittest.Clock)))
	a := admissions(t, httplimit.Shared(bucket), httplimit.WithReportOnly(), costing(3))()
	require.False(t, a.Decision.OK)
	require.NoError(t, bucket.Charge(1))
	require.NoError(t, a.Refund(context.Background(), 1))
	require.Equal(t, 1.0, bucket.Tokens(), "a request that would have been refused took nothing")
	require.NoError(t, a.Charge(context.Background(), 1))
	require.Equal(t, 1.0, bucket.Tokens())

	none := httplimit.AdmissionFromContext(context.Background())
	require.Nil(t, none)
	require.NoError(t, none.Charge(context.Background(), 1))
	require.NoError(t, none.RefundEach(context.Background(), 1))
	require.Nil(t, none.Outer())
	require.Nil(t, admissions(t, httplimit.Shared(bucket), costing(3))(), "the handler of a refused request is not called")
}

func TestAdmissionsOfNestedMiddlewares(t *testing.T) {
	h := newHouse(t, tenHalf[0], tenHalf[0])
	var inner *httplimit.Admission
	user := newMiddleware(t, httplimit.PerKey(h.own), httplimit.WithAdmission())
	everybody := newMiddleware(t, httplimit.Shared(h.everyone), httplimit.WithAdmission())
	user(everybody(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inner = httplimit.AdmissionFromContext(r.Context())
	}))).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	require.NoError(t, inner.Charge(context.Background(), 1))
	require.NoError(t, inner.Outer().Charge(context.Background(), 3))
	require.Nil(t, inner.Outer().Outer())
	require.Equal(t, 8.0, h.everyone.Tokens())
	require.Equal(t, 6.0, h.own.Tokens("192.0.2.1"))
}

func TestLimitersThatCannotSettleAreStartUpErrors(t *testing.T) {
	good := httplimit.Shared(tokenbucket.MustNew(tenHalf[0]))
	for name, limiter := range map[string]httplimit.Limiter{
		"neither": fixed{OK: true}, "no Charge": mute{fixed{OK: true}}, "the first of two": httplimit.Both(mute{}, good), "the second of two": httplimit.Both(good, mute{}),
	} {
		_, err := httplimit.New(limiter, httplimit.WithAdmission())
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
		_, err = httplimit.New(good, httplimit.WithAdmission(), httplimit.WithFallback(limiter))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
	}
}

// Layers outside see the pattern and the path values that the router has set, with an
// Admission as well as without.
func TestLayersOutsideSeeThePatternBehindAnAdmission(t *testing.T) {
	for _, opts := range [][]httplimit.Option{nil, {httplimit.WithAdmission()}} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /users/{id}", func(w http.ResponseWriter, r *http.Request) {
			r.SetPathValue("seen", "yes")
			if r.PathValue("id") == "panic" {
				panic("handler")
			}
		})
		handler := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])), opts...)(mux)
		for _, path := range []string{"/users/7", "/users/panic"} {
			type outer struct{}
			ctx := context.WithValue(context.Background(), outer{}, "outer")
			r := httptest.NewRequest("GET", path, nil).WithContext(ctx)
			func() {
				defer func() { _ = recover() }()
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}()
			require.Equal(t, "GET /users/{id}", r.Pattern)
			require.Equal(t, path, "/users/"+r.PathValue("id"))
			require.Equal(t, "yes", r.PathValue("seen"))
			require.Equal(t, ctx, r.Context(), "the context is the outer one again")
		}
	}
}

// At the end of a request, a server removes the files of its form, if the form is in the
// request that it sees.
func TestFilesOfFormsAreRemovedBehindAnAdmission(t *testing.T) {
	var uploaded string
	handler := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])), httplimit.WithAdmission())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		file, err := r.MultipartForm.File["file"][0].Open()
		if err == nil {
			uploaded = file.(*os.File).Name()
			_ = file.Close()
		}
	}))
	server := httptest.NewServer(handler)
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("file", "a.txt")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 11<<20)) // more than ParseMultipartForm keeps in memory
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	answer, err := server.Client().Post(server.URL, writer.FormDataContentType(), &form)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	server.Close() // waits until the handler has returned
	require.Equal(t, 200, answer.StatusCode)
	require.NotEmpty(t, uploaded)
	require.NoFileExists(t, uploaded)
}

// net/http writes trailers that the client has not announced into its own request.
func TestAdmissionKeepsTrailers(t *testing.T) {
	limit := newMiddleware(t, fixed{OK: true}, httplimit.WithReportOnly())
	admission := newMiddleware(t, newLevels(10), httplimit.WithAdmission())
	inner, seen := http.Header{}, make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit(admission(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			inner = r.Trailer
		}))).ServeHTTP(w, r)
		seen <- r.Trailer
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n")
	require.NoError(t, err)
	require.Equal(t, http.Header{"X-Sum": {"1"}}, <-seen)
	require.Equal(t, http.Header{"X-Sum": {"1"}}, inner)
}
