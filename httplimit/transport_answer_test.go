package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// dated returns a date some time after 2000-01-01 00:00:00 UTC, when a bubble starts.
func dated(d time.Duration, layout string) string {
	return time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(layout)
}

const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// pauses are answers with how long a transport pauses after them.
var pauses = []struct {
	name   string
	status int
	header []string
	pause  time.Duration // 0 for none
}{
	{"429 in seconds", 429, []string{"Retry-After", "7"}, 7 * time.Second},
	{"429 in seconds, padded", 429, []string{"Retry-After", " 007 "}, 7 * time.Second},
	{"429 with an IMF-fixdate", 429, []string{"Retry-After", dated(30*time.Second, http.TimeFormat)}, 30 * time.Second},
	{"429 with an RFC 850 date", 429, []string{"Retry-After", dated(30*time.Second, rfc850)}, 30 * time.Second},
	{"429 with an asctime date", 429, []string{"Retry-After", dated(30*time.Second, time.ANSIC)}, 30 * time.Second},
	{"503 in seconds", 503, []string{"Retry-After", "7"}, 7 * time.Second},
	{"503 with a date", 503, []string{"Retry-After", dated(30*time.Second, http.TimeFormat)}, 30 * time.Second},
	{"the longest pause", 429, []string{"Retry-After", "300"}, 300 * time.Second},

	{"github-api#1805", 429, nil, 4 * time.Second},
	{"429 with an empty header", 429, []string{"Retry-After", ""}, 4 * time.Second},
	{"429 with 0", 429, []string{"Retry-After", "0"}, 4 * time.Second},
	{"429 with -1", 429, []string{"Retry-After", "-1"}, 4 * time.Second},
	{"429 with 1.5", 429, []string{"Retry-After", "1.5"}, 4 * time.Second},
	{"429 with 99x", 429, []string{"Retry-After", "99x"}, 4 * time.Second},
	{"429 with soon", 429, []string{"Retry-After", "soon"}, 4 * time.Second},
	{"429 with a date in the past", 429, []string{"Retry-After", dated(-time.Hour, http.TimeFormat)}, 4 * time.Second},

	{"a bare 503", 503, nil, 0},
	{"503 with 0", 503, []string{"Retry-After", "0"}, 0},
	{"503 with -1", 503, []string{"Retry-After", "-1"}, 0},
	{"503 with a date in the past", 503, []string{"Retry-After", dated(-time.Hour, http.TimeFormat)}, 0},

	{"200 with the header", 200, []string{"Retry-After", "7"}, 0},
	{"202 with the header", 202, []string{"Retry-After", "7"}, 0},
	{"404", 404, nil, 0},
	{"502", 502, []string{"Retry-After", "7"}, 0},
	{"500, declared", 500, nil, 4 * time.Second},
	{"500, declared, with the header", 500, []string{"Retry-After", "7"}, 7 * time.Second},
	{"403, declared", 403, nil, 4 * time.Second},

	{"go-retryablehttp#297", 429, []string{"Retry-After", "9223372037"}, 300 * time.Second},
	{"beyond 64 bits", 429, []string{"Retry-After", strings.Repeat("9", 40)}, 300 * time.Second},
	{"a second too long", 429, []string{"Retry-After", "301"}, 300 * time.Second},
	{"503 too long", 503, []string{"Retry-After", "86400"}, 300 * time.Second},
	{"the year 9999", 429, []string{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}, 300 * time.Second},

	{"fields without WithRateLimitFields", 200, []string{"RateLimit", `"default";r=0;t=9`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}, 0},
}

// A pause empties the bucket, which refills 1 a second, so the next request comes a
// second after its end.
func TestTransportPausesAfter(t *testing.T) {
	for _, row := range pauses {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, _ := s.politely(oneASecond, httplimit.WithDefaultPause(4*time.Second), httplimit.WithTooFast(500, 403))
				s.will(row.status, append(row.header, "body", "as it is")...)
				status, body := s.get(client, exampleURL)
				require.Equal(t, row.status, status)
				require.Equal(t, "as it is", body)
				require.Zero(t, s.now(), "the answer is not held back")
				s.get(client, exampleURL)
				require.Equal(t, []time.Duration{0, row.pause + time.Second}, s.instants())
			})
		})
	}
}

// The server's clock may differ, so dates are compared with the Date of the same answer.
func TestTransportComparesDatesWithTheDateOfTheAnswer(t *testing.T) {
	now := time.Date(2026, time.November, 6, 8, 49, 37, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	unix := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for _, row := range []struct {
		name   string
		header []string
		pause  time.Duration
	}{
		{"juju#22007", []string{"Retry-After", at(7 * time.Second)}, 7 * time.Second},
		{"a minute slow", []string{"Date", at(-time.Minute), "Retry-After", at(-53 * time.Second)}, 7 * time.Second},
		{"5 s slow", []string{"Date", at(-5 * time.Second), "Retry-After", at(2 * time.Second)}, 7 * time.Second},
		{"an hour fast", []string{"Date", at(time.Hour), "Retry-After", at(time.Hour + 7*time.Second)}, 7 * time.Second},
		{"past by the server's clock", []string{"Date", at(time.Hour), "Retry-After", at(time.Minute)}, 4 * time.Second},
		{"an RFC 850 Date", []string{"Date", now.Add(time.Hour).Format("Monday, 02-Jan-06 15:04:05 GMT"), "Retry-After", at(time.Hour + 7*time.Second)}, 7 * time.Second},
		{"a malformed Date", []string{"Date", "yesterday", "Retry-After", at(7 * time.Second)}, 7 * time.Second},
		{"seconds", []string{"Date", at(time.Hour), "Retry-After", "7"}, 7 * time.Second},
		{"a Unix time, a minute slow", []string{"Date", at(-time.Minute), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(-53 * time.Second)}, 7 * time.Second},
		{"a Unix time, an hour fast", []string{"Date", at(time.Hour), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(time.Hour + 7*time.Second)}, 7 * time.Second},
		{"a Unix time of draft 6", []string{"Date", at(time.Hour), "RateLimit-Remaining", "0", "RateLimit-Reset", unix(time.Hour + 7*time.Second)}, 7 * time.Second},
		{"a Unix time without Date", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(7 * time.Second)}, 7 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				time.Sleep(time.Until(now))
				client, _ := s.politely(oneASecond, httplimit.WithDefaultPause(4*time.Second), httplimit.WithRateLimitFields())
				s.will(429, row.header...)
				s.get(client, exampleURL)
				s.get(client, exampleURL)
				at := s.instants()
				require.Equal(t, row.pause+time.Second, at[1]-at[0])
			})
		})
	}
}

func TestTransportPausesByDefault(t *testing.T) {
	for _, row := range []struct {
		opts  []httplimit.TransportOption
		value string
		pause time.Duration
	}{
		{nil, "", 10 * time.Second},
		{nil, "300", 5 * time.Minute},
		{nil, "301", 5 * time.Minute},
		{[]httplimit.TransportOption{httplimit.WithLongestPause(2 * time.Second)}, "", 2 * time.Second},
		{[]httplimit.TransportOption{httplimit.WithLongestPause(60 * time.Second)}, "9223372037", 60 * time.Second},
		{[]httplimit.TransportOption{httplimit.WithLongestPause(time.Hour)}, "3600", time.Hour},
		{[]httplimit.TransportOption{httplimit.WithDefaultPause(time.Hour)}, "", 5 * time.Minute},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			client, _ := s.politely(oneASecond, row.opts...)
			s.will(429, "Retry-After", row.value)
			s.get(client, exampleURL)
			s.get(client, exampleURL)
			require.Equal(t, []time.Duration{0, row.pause + time.Second}, s.instants())
		})
	}
}

// A pause holds the requests that wait and those that come later, not only the refused one.
func TestTransportPauseHoldsEveryRequest(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.hostByHost(oneASecond)
		s.will(200).will(429, "Retry-After", "10")
		var group sync.WaitGroup
		for range 5 { // at 0 s, refused at 1 s, and three in the queue
			group.Go(func() { s.get(client, exampleURL) })
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		group.Go(func() { s.get(client, exampleURL) })
		s.get(client, otherURL)
		group.Wait()
		second := time.Second
		require.Equal(t, []time.Duration{0, second, 5 * second, 12 * second, 13 * second, 14 * second, 15 * second}, s.instants())
	})
}

func TestTransportLaterRefusalDoesNotShortenThePause(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.politely(tokenbucket.Limit{Capacity: 2, RefillPerSec: 1})
		s.will(429, "Retry-After", "10").will(429, "Retry-After", "1")
		var group sync.WaitGroup
		release := make(chan struct{})
		slow := s.client(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
			<-release
			return client.Transport.RoundTrip(req)
		})))
		group.Go(func() { s.get(slow, exampleURL) })
		s.get(client, exampleURL)
		close(release)
		group.Wait()
		s.get(client, exampleURL)
		require.Equal(t, []time.Duration{0, 11 * time.Second, 13 * time.Second}, s.instants())
	})
}

// A request that costs 0 is sent during a pause, too.
func TestTransportPauseLetsFreeRequestsPass(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.politely(oneASecond, httplimit.WithTransportCosts(tokenbucket.Costs{"/ping": 0}))
		s.will(429, "Retry-After", "10")
		s.get(client, exampleURL)
		s.get(client, exampleURL+"ping")
		require.Equal(t, []time.Duration{0, 0}, s.instants())
	})
}

// After a restart, the bucket of the workers is full, but the server's is not. A single
// worker that reads the fields is never refused. Ten workers are rarely refused: a request
// can be sent between its grant and the instant from which it counts as on its way.
func TestTransportSlowsDownBeforeItIsRefused(t *testing.T) {
	refusals := func(t *testing.T, workers int, opts ...httplimit.TransportOption) (refused int) {
		onStage(t, func(t *testing.T, s *stage) {
			theirs := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 100, RefillPerSec: 2}, tokenbucket.WithTokens(35))
			ours := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 100, RefillPerSec: 2})
			var mu sync.Mutex
			serve := roundTripFunc(func(req *http.Request) (*http.Response, error) {
				time.Sleep(50 * time.Millisecond) // there
				d := theirs.Take(1)
				time.Sleep(50 * time.Millisecond) // and back
				resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}
				resp.Header.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=1`, d.Remaining()))
				if !d.OK {
					resp.StatusCode = 429
					resp.Header.Set("Retry-After", "1")
					mu.Lock()
					defer mu.Unlock()
					refused++
				}
				return resp, nil
			})
			client := s.client(httplimit.AllHosts(ours), append(opts, httplimit.WithBase(serve))...)
			var group sync.WaitGroup
			for range workers {
				group.Go(func() {
					for range 100 / workers {
						s.get(client, exampleURL)
					}
				})
			}
			group.Wait()
		})
		return refused
	}
	fields := httplimit.WithRateLimitFields()
	require.Zero(t, refusals(t, 1, fields))
	require.Positive(t, refusals(t, 1))
	require.LessOrEqual(t, refusals(t, 10, fields), 1)
	require.Greater(t, refusals(t, 10), 1)
}

// The bucket has counted requests that are on their way; the server has not yet.
func TestTransportCountsWhatIsOnItsWay(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		slow := make(chan struct{})
		client, hosts := s.hostByHost(tokenbucket.Limit{Capacity: 100, RefillPerSec: 1}, httplimit.WithRateLimitFields(),
			httplimit.WithTransportCosts(tokenbucket.Costs{"/slow": 2}),
			httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/slow" {
					<-slow
				}
				return s.RoundTrip(req)
			})))
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { s.get(client, exampleURL+"slow") })
			group.Go(func() { s.get(client, otherURL+"slow") })
		}
		synctest.Wait()
		s.will(200, "RateLimit", `"default";r=40;t=60`)
		s.get(client, exampleURL)
		require.Equal(t, 40.0-3*2, hosts.Tokens("api.example.com"))
		require.Equal(t, 100.0-3*2, hosts.Tokens("other.example.com"))
		s.will(200, "RateLimit", `"default";r=5;t=60`)
		s.get(client, exampleURL)
		require.Zero(t, hosts.Tokens("api.example.com"))
		close(slow)
		group.Wait()
		time.Sleep(100 * time.Second)
		s.will(200, "RateLimit", `"default";r=40;t=60`)
		s.get(client, exampleURL)
		require.Equal(t, 40.0, hosts.Tokens("api.example.com"), "all have arrived")
	})
}

func TestTransportRemembersNoHosts(t *testing.T) {
	transport, err := httplimit.NewTransport(&ledger{}, httplimit.WithRateLimitFields(),
		httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})))
	require.NoError(t, err)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range 20_000 {
		req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://host%d.example.com/", i), nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.NoError(t, err)
	}
	require.Less(t, heap()-before, int64(1<<20))
	runtime.KeepAlive(transport)
}

// turnstile is a bucket that notices if two goroutines lower it at the same time: both
// would charge the same surplus.
type turnstile struct {
	ledger
	inside  atomic.Int32
	crowded atomic.Bool
}

func (g *turnstile) Tokens(string) float64 {
	if g.inside.Add(1) > 1 {
		g.crowded.Store(true)
	}
	for range 10 {
		runtime.Gosched()
	}
	return 1000
}

func (g *turnstile) Charge(string, float64) error {
	g.inside.Add(-1)
	return nil
}

func TestTransportLowersABucketOneByOne(t *testing.T) {
	var g turnstile
	transport, err := httplimit.NewTransport(&g, httplimit.WithRateLimitFields(),
		httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Ratelimit": {`"default";r=500`}}, Body: http.NoBody}, nil
		})))
	require.NoError(t, err)
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
			assert.NoError(t, err)
			_, err = transport.RoundTrip(req)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	require.False(t, g.crowded.Load())
}

// With AllHosts, requests on their way to any host count.
func TestTransportCountsRequestsOnTheirWayToAllHosts(t *testing.T) {
	for _, host := range []string{"a.example", "b.example"} {
		bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-6})
		arrived, release := make(chan struct{}), make(chan struct{})
		transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithRateLimitFields(),
			httplimit.WithBase(roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/slow" {
					arrived <- struct{}{}
					<-release
				}
				return &http.Response{StatusCode: 200, Header: http.Header{"Ratelimit": {`"q";r=5;t=60`}}, Body: http.NoBody}, nil
			})))
		require.NoError(t, err)
		var slow sync.WaitGroup
		get := func(url string) {
			resp, err := transport.RoundTrip(httptest.NewRequest("GET", url, nil))
			require.NoError(t, err)
			resp.Body.Close()
		}
		for range 3 {
			slow.Go(func() { get("http://" + host + "/slow") })
			<-arrived
		}
		get("http://a.example/fast")
		require.InDelta(t, 2, bucket.Tokens(), 1e-3, host)
		close(release)
		slow.Wait()
	}
}
