package httplimit_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
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
	pause  time.Duration // 0: none
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

	{"fields that nobody asked to be read", 200, []string{"RateLimit", `"default";r=0;t=9`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}, 0},
}

// A pause empties the bucket of 1 a second, so the next request comes a second
// after its end.
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

func TestTransportPausesByDefault(t *testing.T) {
	for _, row := range []struct {
		opts  []httplimit.TransportOption
		told  string
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
			s.will(429, "Retry-After", row.told)
			s.get(client, exampleURL)
			s.get(client, exampleURL)
			require.Equal(t, []time.Duration{0, row.pause + time.Second}, s.instants())
		})
	}
}

// Not only the request that was told holds, but all that wait, and all that come.
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

// What is free is free in a pause too: that is what its price says.
func TestTransportPauseLetsFreeRequestsPass(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.politely(oneASecond, httplimit.WithTransportCosts(tokenbucket.Costs{"/ping": 0}))
		s.will(429, "Retry-After", "10")
		s.get(client, exampleURL)
		s.get(client, exampleURL+"ping")
		require.Equal(t, []time.Duration{0, 0}, s.instants())
	})
}

const none, unread = 0, -1

// rateLimitFields are answers with what their fields make a transport do.
var rateLimitFields = []struct {
	name   string
	status int
	header []string
	pause  time.Duration
	tokens float64 // of 10, the request having cost 1; unread: 9
}{
	{"nothing left", 200, []string{"RateLimit", `"default";r=0;t=18`}, 18 * time.Second, 0},
	{"some left", 200, []string{"RateLimit", `"default";r=4;t=18`}, none, 4},
	{"more left than here", 200, []string{"RateLimit", `"default";r=50;t=30`}, none, 9},
	{"no window", 200, []string{"RateLimit", `"default";r=4`}, none, 4},
	{"nothing left, no window", 200, []string{"RateLimit", `"default";r=0`}, none, 0},
	{"nothing left for 0 s", 200, []string{"RateLimit", `"default";r=0;t=0`}, none, 0},
	{"too long a window", 200, []string{"RateLimit", `"default";r=0;t=86400`}, 300 * time.Second, 0},
	{"the longest window there is", 200, []string{"RateLimit", `"default";r=0;t=999999999999999`}, 300 * time.Second, 0},
	{"several policies", 200, []string{"RateLimit", `"hour";r=900;t=3000, "minute";r=0;t=20,"day";r=5;t=9`}, 20 * time.Second, 0},
	{"several policies, nothing left of two", 200, []string{"RateLimit", `"a";r=0;t=7, "b";r=0;t=20, "c";r=0;t=8`}, 20 * time.Second, 0},
	{"several lines", 200, []string{"RateLimit", `"a";r=5;t=7`, "RateLimit", `"b";r=3;t=20`}, none, 3},
	{"other parameters", 200, []string{"RateLimit", `"a;r=9, \"b\\";x;pk=:cHsdsRa894==:;r=0;acme-x="r=7;t=7, \"";t=18;y=?0;z=tok/en:*;n=-1.5;d=@-7;s=%"f%c3%bc"`}, 18 * time.Second, 0},
	{"the last of two parameters", 200, []string{"RateLimit", `"a";r=0;r=6;t=18`}, none, 6},
	{"white space", 200, []string{"RateLimit", "  \"a\"; r=6;  t=18 \t,\t \"b\";r=5  "}, none, 5},
	{"on an error", 404, []string{"RateLimit", `"default";r=0;t=18`}, 18 * time.Second, 0},
	{"on a bare 503", 503, []string{"RateLimit", `"default";r=0;t=18`}, 18 * time.Second, 0},

	{"X, in seconds", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 18 * time.Second, 0},
	{"X, the most seconds", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000"}, 300 * time.Second, 0},
	{"X, the least Unix time", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000001"}, 300 * time.Second, 0}, // in 2001
	{"X, some left", 200, []string{"X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "18"}, none, 4},
	{"X, no reset", 200, []string{"X-RateLimit-Remaining", "0"}, none, 0},
	{"X, a malformed reset", 200, []string{"X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "soon"}, none, 4},
	{"X, a negative reset", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "-18"}, none, 0},
	{"X, only a reset", 200, []string{"X-RateLimit-Reset", "18"}, none, unread},
	{"X, malformed", 200, []string{"X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "18"}, none, unread},
	{"X, a fraction", 200, []string{"X-RateLimit-Remaining", "0.5", "X-RateLimit-Reset", "18"}, none, unread},
	{"X, a list", 200, []string{"X-RateLimit-Remaining", "0, 5", "X-RateLimit-Reset", "18"}, none, unread},
	{"X, beyond 64 bits", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strings.Repeat("9", 30)}, none, 0},
	{"X, a reset of 16 digits", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000000000"}, none, 0},
	{"both", 200, []string{"RateLimit", `"a";r=4;t=7`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, none, 4},
	{"both, one malformed", 200, []string{"RateLimit", `"a";r=`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 18 * time.Second, 0},

	{"Retry-After wins on 429", 429, []string{"Retry-After", "7", "RateLimit", `"a";r=0;t=18`}, 7 * time.Second, 0},
	{"Retry-After wins on 503", 503, []string{"Retry-After", "20", "RateLimit", `"a";r=0;t=18`}, 20 * time.Second, 0},
	{"Retry-After wins on 403", 403, []string{"Retry-After", "7", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 7 * time.Second, 0},
	{"a malformed Retry-After does not", 429, []string{"Retry-After", "x", "RateLimit", `"a";r=0;t=18`}, 18 * time.Second, 0},
	{"429 with a reset", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 18 * time.Second, 0},
	{"429 with too long a reset", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"}, 300 * time.Second, 0},
	{"429 with something left", 429, []string{"RateLimit", `"a";r=4;t=18`}, 10 * time.Second, 0},
	{"429 with a malformed remainder", 429, []string{"X-RateLimit-Remaining", "none", "X-RateLimit-Reset", "18"}, 10 * time.Second, 0},
	{"429 with only a reset", 429, []string{"X-RateLimit-Reset", "18"}, 10 * time.Second, 0},
	{"429 with no r", 429, []string{"RateLimit", `"a";t=18`}, 10 * time.Second, 0},

	{"out of a cache", 200, []string{"RateLimit", `"a";r=0;t=18`, "Age", "3"}, none, unread},
	{"past a cache", 200, []string{"RateLimit", `"a";r=0;t=18`, "Age", "0"}, 18 * time.Second, 0},

	{"empty", 200, []string{"RateLimit", ``}, none, unread},
	{"no r", 200, []string{"RateLimit", `"a";t=18`}, none, unread},
	{"no r in one of two", 200, []string{"RateLimit", `"a";r=0;t=18, "b";t=3`}, none, unread},
	{"r without a value", 200, []string{"RateLimit", `"a";r;t=18`}, none, unread},
	{"a negative r", 200, []string{"RateLimit", `"a";r=-1;t=18`}, none, unread},
	{"a decimal r", 200, []string{"RateLimit", `"a";r=0.0;t=18`}, none, unread},
	{"a decimal t", 200, []string{"RateLimit", `"a";r=0;t=1.5`}, none, unread},
	{"a t without a value", 200, []string{"RateLimit", `"a";r=0;t`}, none, unread},
	{"16 digits", 200, []string{"RateLimit", `"a";r=0;t=1000000000000000`}, none, unread},
	{"a token", 200, []string{"RateLimit", `default;r=0;t=18`}, none, unread},
	{"an inner list", 200, []string{"RateLimit", `("a");r=0;t=18`}, none, unread},
	{"a dictionary, as an older draft has it", 200, []string{"RateLimit", `limit=10, remaining=0, reset=18`}, none, unread},
	{"a comma at the end", 200, []string{"RateLimit", `"a";r=0;t=18,`}, none, unread},
	{"an open string", 200, []string{"RateLimit", `"a;r=0;t=18`}, none, unread},
	{"a bad escape", 200, []string{"RateLimit", `"a\n";r=0;t=18`}, none, unread},
	{"an upper-case key", 200, []string{"RateLimit", `"a";R=0;t=18`}, none, unread},
	{"a space before a parameter", 200, []string{"RateLimit", `"a" ;r=0;t=18`}, none, unread},
	{"a letter outside ASCII", 200, []string{"RateLimit", `"ä";r=0;t=18`}, none, unread},
}

func TestTransportReadsRateLimitFields(t *testing.T) {
	for _, row := range rateLimitFields {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithRateLimitFields())
				s.will(row.status, row.header...)
				s.get(client, exampleURL)
				tokens := row.tokens
				if tokens == unread {
					tokens = 9
				}
				require.Equal(t, tokens, bucket.Tokens())
				wait, _ := bucket.TryAcquire(10)
				require.Equal(t, row.pause+time.Duration(10-tokens)*time.Second, wait)
			})
		})
	}
}

func TestTransportReadsUnixTimesByTheClock(t *testing.T) {
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		status int
		reset  int64
		pause  time.Duration
	}{
		{200, now.Unix(), 0},
		{200, now.Unix() - 100, 0},
		{200, now.Unix() + 1, time.Second},
		{200, now.Unix() + 60, time.Minute},
		{200, now.Unix() + 3600, 5 * time.Minute},
		{200, 999_999_999_999_999, 5 * time.Minute},
		{200, 1_000_000_001, 0},               // in 2001
		{200, 1_000_000_000, 5 * time.Minute}, // 31 years
		{429, now.Unix() + 60, time.Minute},
		{429, now.Unix() - 100, 10 * time.Second}, // as if it were not told
	} {
		onStage(t, func(t *testing.T, s *stage) {
			time.Sleep(time.Until(now))
			client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithRateLimitFields())
			s.will(row.status, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(row.reset, 10))
			s.get(client, exampleURL)
			wait, _ := bucket.TryAcquire(10)
			require.Equal(t, row.pause+10*time.Second, wait, "%+v", row)
		})
	}
}

// Workers that were just restarted, and whose bucket is full while the server's is
// not. One that reads the fields is never refused; of ten hardly any is: one can slip
// through between its grant and its being counted as on its way.
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

// What is on its way was spent here, but the server has not counted it yet.
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

// turnstile is a bucket that notices when two lower it at once: then both would
// charge the same surplus.
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

// ledger stands in for a bucket and notes what a Transport does to it.
type ledger struct{ paused, charged []float64 }

func (l *ledger) Wait(context.Context, string, float64) error { return nil }
func (l *ledger) Pause(_ string, d time.Duration)             { l.paused = append(l.paused, d.Seconds()) }
func (l *ledger) Tokens(string) float64                       { return 1000 }
func (l *ledger) Charge(_ string, cost float64) error {
	l.charged = append(l.charged, cost)
	return nil
}

// read returns what a Transport does after a 200 with a header.
func (l *ledger) read(t *testing.T, header http.Header) {
	transport, err := httplimit.NewTransport(l, httplimit.WithRateLimitFields(), httplimit.WithLongestPause(tokenbucket.Never),
		httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: header, Body: http.NoBody}, nil
		})))
	require.NoError(t, err)
	req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(req)
	require.NoError(t, err)
}

// The oracle is a parser of structured fields written the other way, character by
// character as RFC 9651, section 4.2, has it.
func FuzzTransportRateLimit(f *testing.F) {
	for _, seed := range []string{
		``, `"default";r=50;t=30`, `"a";r=0;t=18, "b";r=5`, `"a\"\\";x;pk=:cHs=:;r=0;s="r=7;t=7, \"";t=18;y=?0;z=tok/en:*;n=-1.5`,
		`"a";d=@-7;s=%"f%c3%bc";r=1`, `"a";r=999999999999999;t=999999999999999`, `"a";r=1000000000000000`, `"a";r=1;`, `"a" ;r=1`, `"a";r=1,`,
		`a;r=1`, `("a");r=1`, `"a";r=1;t=-1`, `"a";r=1;t=1.0`, `"a";r=1;t`, `"a";r=1;r=2`, "\"a\"; r=1 \t,\t \"b\";r=0", `"ä";r=1`, `"a`, `"a\`,
		`"a";r=1;n=123456789012.123;m=1234567890123.1`, `"a";r=1;n=1.1234`, `"a";r=1;n=1.`, `"a";r=1;*=*`, `"a";r=1;R=2`, `"a";r=00`, `"a";r=-0`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		var l ledger
		l.read(t, http.Header{"Ratelimit": {field}})
		remaining, reset, ok := oracleRateLimit(strings.Trim(field, " "))
		if !ok {
			require.Empty(t, l.charged)
			require.Empty(t, l.paused)
			return
		}
		if remaining >= 1000 {
			require.Empty(t, l.charged)
		} else {
			require.Equal(t, []float64{1000 - remaining}, l.charged)
		}
		if remaining > 0 {
			require.Empty(t, l.paused)
		} else {
			require.Equal(t, []float64{min(reset, time.Duration(math.MaxInt64).Seconds())}, l.paused)
		}
	})
}

func oracleRateLimit(s string) (remaining, reset float64, ok bool) {
	defer func() {
		if recover() != nil { // an index out of range: the field ended too early
			ok = false
		}
	}()
	remaining = math.Inf(1)
	for {
		var text bool
		if text, s = s[0] == '"', oracleItem(s); !text {
			return 0, 0, false
		}
		values := map[string]string{}
		for s != "" && s[0] == ';' {
			s = strings.TrimLeft(s[1:], " ")
			end := oracleSpan(s, "abcdefghijklmnopqrstuvwxyz0123456789_-.*")
			if end == 0 || strings.Contains("0123456789_-.", s[:1]) {
				return 0, 0, false
			}
			name := s[:end]
			s = s[end:]
			values[name] = "?1"
			if s != "" && s[0] == '=' {
				rest := oracleItem(s[1:])
				values[name] = s[1 : len(s)-len(rest)]
				s = rest
			}
		}
		r, ok := oracleInteger(values["r"])
		at, hasReset := values["t"]
		t, reads := oracleInteger(at)
		if !ok || hasReset && !reads {
			return 0, 0, false
		}
		if r < remaining || r == remaining && t > reset {
			remaining, reset = r, t
		}
		s = strings.TrimLeft(s, " \t")
		if s == "" {
			return remaining, reset, true
		}
		if s[0] != ',' {
			return 0, 0, false
		}
		s = strings.TrimLeft(s[1:], " \t")
	}
}

func oracleInteger(s string) (float64, bool) {
	if s == "" || len(s) > 15 || oracleSpan(s, "0123456789") < len(s) {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

func oracleSpan(s, set string) int { return len(s) - len(strings.TrimLeft(s, set)) }

// oracleItem returns what follows a bare item. It panics where there is none.
func oracleItem(s string) string {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	require := func(ok bool) {
		if !ok {
			panic("no item")
		}
	}
	integer := func(s string) (string, int) {
		s = strings.TrimPrefix(s, "-")
		n := oracleSpan(s, digits)
		require(n > 0 && n <= 15)
		return s[n:], n
	}
	switch c := s[0]; {
	case c == '"':
		for s = s[1:]; s[0] != '"'; s = s[1:] {
			require(s[0] >= ' ' && s[0] <= '~')
			if s[0] == '\\' {
				s = s[1:]
				require(s[0] == '"' || s[0] == '\\')
			}
		}
		return s[1:]
	case c == '-' || strings.IndexByte(digits, c) >= 0:
		rest, whole := integer(s)
		if rest == "" || rest[0] != '.' {
			return rest
		}
		fraction := oracleSpan(rest[1:], digits)
		require(whole <= 12 && fraction >= 1 && fraction <= 3)
		return rest[1+fraction:]
	case c == '@':
		rest, _ := integer(s[1:])
		require(rest == "" || rest[0] != '.')
		return rest
	case c == ':':
		n := oracleSpan(s[1:], digits+letters+"+/=")
		require(s[1+n] == ':')
		return s[2+n:]
	case c == '?':
		require(s[1] == '0' || s[1] == '1')
		return s[2:]
	case c == '%':
		require(s[1] == '"')
		for s = s[2:]; s[0] != '"'; s = s[1:] {
			require(s[0] >= ' ' && s[0] <= '~')
			if s[0] == '%' {
				require(oracleSpan(s[1:3], digits+"abcdef") == 2)
				s = s[2:]
			}
		}
		return s[1:]
	default:
		require(c == '*' || strings.IndexByte(letters, c) >= 0)
		return s[oracleSpan(s, digits+letters+":/!#$%&'*+-.^_`|~"):]
	}
}

func FuzzTransportXRateLimit(f *testing.F) {
	for _, seed := range [][2]string{{"0", "18"}, {"4", "4102444800"}, {"0", "999999999999999"}, {"-1", "1"}, {"1.5", "x"}, {" 7 ", " 8 "}, {"", ""}, {"9999999999999999", "1"}, {"+1", "0x1"}, {"1_0", "1e3"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, remaining, reset string) {
		var l ledger
		l.read(t, http.Header{"X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}})
		left, known := oracleInteger(strings.TrimSpace(remaining))
		if !known || left >= 1000 {
			require.Empty(t, l.charged)
			require.Empty(t, l.paused)
			return
		}
		require.Equal(t, []float64{1000 - left}, l.charged)
		if left > 0 {
			require.Empty(t, l.paused)
			return
		}
		require.Len(t, l.paused, 1)
		require.GreaterOrEqual(t, l.paused[0], 0.0)
		if at, ok := oracleInteger(strings.TrimSpace(reset)); ok && at <= 1e9 {
			require.Equal(t, at, l.paused[0])
		}
	})
}
