package httplimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// problem is the body of a refusal, for encoding/json.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

// quotaExceeded returns the problem that a refusal must have.
func quotaExceeded(cost float64, d tokenbucket.Decision, name string) problem {
	p := problem{Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota exceeded", Status: 429}
	known := d.Limit.Validate() == nil
	if known {
		p.Violated = []string{name}
	}
	seconds, ok := d.RetryAfter()
	switch seconds = max(1, seconds); {
	case !ok:
		p.Detail = fmt.Sprintf("Tokens needed: %v, which can never be met: ask for less.", cost)
	case known:
		p.Detail = fmt.Sprintf("Tokens needed: %v, left: %d. Retry in %d s.", cost, d.Remaining(), seconds)
	default:
		p.Detail = fmt.Sprintf("Tokens needed: %v. Retry in %d s.", cost, seconds)
	}
	return p
}

func requireBody(t *testing.T, want problem, got io.Reader) {
	t.Helper()
	encoded, err := json.Marshal(want)
	require.NoError(t, err)
	text, err := io.ReadAll(got)
	require.NoError(t, err)
	require.Equal(t, string(encoded), string(text))
}

// telling is a Limiter that always returns the same decision, about one of its limits.
type telling struct {
	fixed
	limits []tokenbucket.Limit
}

func (l *telling) Limits() []tokenbucket.Limit { return l.limits }

func TestRefusalIsWhatJSONMakesOfIt(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	pick := func(odd ...float64) float64 {
		if i := random.IntN(2 * len(odd)); i < len(odd) {
			return odd[i]
		}
		return math.Exp(random.Float64()*100 - 50)
	}
	for range 10_000 {
		names := []string{randomName(random, 0), randomName(random, 1), randomName(random, 2)}
		limits := []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}, {Capacity: 2, RefillPerSec: 1}, {Capacity: 3, RefillPerSec: 1}}
		binding := random.IntN(len(limits))
		cost := pick(0, 1, 5, 0.1, 1e6, 1e20, 1e21, 1e-5, math.MaxFloat64, math.NaN(), math.Inf(1), math.Inf(-1), -1, math.Copysign(0, -1))
		d := tokenbucket.Decision{Wait: time.Duration(min(1e18, pick(0, -1, 1, 1e9, 1e9+1))), Tokens: pick(0, -5, 1, 1e15, 1e18), Limit: limits[binding]}
		switch random.IntN(8) {
		case 0:
			d.Wait = tokenbucket.Never
		case 1:
			d.Limit = tokenbucket.Limit{}
		}
		g := newGatewayOf(t, &telling{fixed(d), limits}, costing(cost), httplimit.WithPolicyNames(names...))
		requireBody(t, quotaExceeded(cost, d, names[binding]), g.get("/").Body)
	}
}

// Limits that were added after start-up have names as well.
func TestRefusalByALimitThatCameLater(t *testing.T) {
	limits := []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}, {Capacity: 2, RefillPerSec: 1}, {Capacity: 3, RefillPerSec: 1}}
	d := tokenbucket.Decision{Wait: 1, Limit: limits[2]}
	limiter := &telling{fixed(d), limits[:1]}
	g := newGatewayOf(t, limiter, httplimit.WithPolicyNames(`the "first"`))
	requireBody(t, quotaExceeded(1, d, `the "first"`), g.get("/").Body)
	limiter.limits = limits
	requireBody(t, quotaExceeded(1, d, `the "first"-3`), g.get("/").Body)
}

func TestUndecidedIsWhatJSONMakesOfIt(t *testing.T) {
	for wait, seconds := range map[time.Duration]int64{1: 1, 90 * sec: 90, tokenbucket.Never - 1: 9223372037} {
		requireBody(t, problem{
			Type: "about:blank", Title: "Service Unavailable", Status: 503,
			Detail: fmt.Sprintf("The rate limiter does not answer: retry in %d s.", seconds),
		}, newGatewayOf(t, broken{}, httplimit.WithFailClosed(wait)).get("/").Body)
	}
}

func TestWhoWritesIntoARefusalsFieldsChangesNoOther(t *testing.T) {
	handler := newMiddleware(t, fixed{Wait: 2 * sec, Limit: tenHalf[0]})(http.NotFoundHandler())
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		for name := range w.Header() {
			w.Header()[name][0] += " or so"
			w.Header().Add(name, "more")
		}
		require.Equal(t, http.Header{
			"X-Ratelimit-Limit": {"10 or so", "more"}, "X-Ratelimit-Remaining": {"0 or so", "more"}, "X-Ratelimit-Reset": {"20 or so", "more"},
			"Ratelimit": {`"default";r=0;t=2 or so`, "more"}, "Ratelimit-Policy": {`"default";q=10;w=20 or so`, "more"}, "Retry-After": {"2 or so", "more"},
			"Cache-Control": {"no-store or so", "more"}, "Content-Type": {"application/problem+json or so", "more"},
		}, w.Header())
	}
}

func TestRefusalsAtOnceAreEachWhole(t *testing.T) {
	d := tokenbucket.Decision{Wait: 2 * sec, Limit: tenHalf[0]}
	handler := newMiddleware(t, fixed(d), httplimit.WithCost(func(r *http.Request) float64 { return float64(len(r.URL.Path)) }))(http.NotFoundHandler())
	var group sync.WaitGroup
	for i := range 4 {
		r := httptest.NewRequest("GET", "/"+strings.Repeat("a", 10*i), nil)
		want, err := json.Marshal(quotaExceeded(float64(len(r.URL.Path)), d, "default"))
		require.NoError(t, err)
		group.Go(func() {
			for range 200 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				assert.Equal(t, string(want), w.Body.String())
			}
		})
	}
	group.Wait()
}

// failingWriter fails, and uses the buffer afterwards, as HTTP/2 does when a stream is reset.
type failingWriter struct {
	*httptest.ResponseRecorder
	given []byte
}

func (w *failingWriter) Write(b []byte) (int, error) {
	w.given = b
	return 0, errors.New("stream reset")
}

func TestBodyThatCouldNotBeWrittenIsNotReused(t *testing.T) {
	cost := 0.0
	handler := newMiddleware(t, fixed{Wait: sec}, httplimit.WithCost(func(*http.Request) float64 { return cost }))(http.NotFoundHandler())
	var writers []*failingWriter
	for ; cost < 100; cost++ {
		w := &failingWriter{ResponseRecorder: httptest.NewRecorder()}
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		writers = append(writers, w)
	}
	for i, w := range writers {
		require.Contains(t, string(w.given), fmt.Sprintf("Tokens needed: %d.", i))
	}
}
