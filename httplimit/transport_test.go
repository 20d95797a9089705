package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

func TestTransportWaitsBeforeEveryRequest(t *testing.T) {
	limit := tokenbucket.Limit{Capacity: 2, RefillPerSec: 0.5}
	check := func(t *testing.T, s *stage, client *http.Client) {
		for range 5 {
			status, _ := s.get(client, exampleURL)
			require.Equal(t, http.StatusOK, status)
		}
		require.Equal(t, []time.Duration{0, 0, 2 * time.Second, 4 * time.Second, 6 * time.Second}, s.instants())
	}
	t.Run("one bucket", func(t *testing.T) {
		onStage(t, func(t *testing.T, s *stage) {
			client, _ := s.politely(limit)
			check(t, s, client)
		})
	})
	t.Run("a bucket for each host", func(t *testing.T) {
		onStage(t, func(t *testing.T, s *stage) {
			client, _ := s.hostByHost(limit)
			check(t, s, client)
		})
	})
}

func TestTransportHostsDoNotWaitForEachOther(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.hostByHost(oneASecond)
		s.get(client, exampleURL)
		s.get(client, otherURL)
		s.get(client, exampleURL)
		require.Equal(t, []time.Duration{0, 0, time.Second}, s.instants())
	})
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.politely(oneASecond)
		s.get(client, exampleURL)
		s.get(client, otherURL)
		require.Equal(t, []time.Duration{0, time.Second}, s.instants())
	})
}

func TestTransportHostNames(t *testing.T) {
	for _, row := range []struct{ url, host string }{
		{"http://api.example.com/a?b", "api.example.com"},
		{"http://API.Example.COM/", "api.example.com"},
		{"http://api.example.com:80/", "api.example.com"},
		{"https://api.example.com:443/", "api.example.com"},
		{"http://api.example.com:/", "api.example.com"},
		{"http://api.example.com./", "api.example.com"},
		{"http://api.example.com.:80/", "api.example.com"},
		{"http://user:password@api.example.com/", "api.example.com"},
		{"http://api.example.com:443/", "api.example.com:443"},
		{"https://api.example.com:80/", "api.example.com:80"},
		{"http://localhost:8080/", "localhost:8080"},
		{"http://192.0.2.1:80/", "192.0.2.1"},
		{"http://[2001:DB8::1]/", "[2001:db8::1]"},
		{"https://[2001:db8::1]:443/", "[2001:db8::1]"},
		{"http://[::1]:8080/", "[::1]:8080"},
		{"file:///etc/hosts", ""},
	} {
		t.Run(row.url, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, buckets := s.hostByHost(oneASecond)
				s.get(client, row.url)
				require.Zero(t, buckets.Tokens(row.host))
				require.Equal(t, 1, buckets.Len())
			})
		})
	}
}

// The Host header names a site, but the connection goes to the URL's host.
func TestTransportWaitsForTheHostThatIsAsked(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, buckets := s.hostByHost(oneASecond)
		req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		req.Host = "site.example.com"
		resp, err := client.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Zero(t, buckets.Tokens("api.example.com"))
	})
}

func TestTransportWaitsForRedirectsToo(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.politely(oneASecond)
		s.will(http.StatusFound, "Location", "/elsewhere")
		status, _ := s.get(client, exampleURL)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, []time.Duration{0, time.Second}, s.instants())
	})
}

func TestTransportCosts(t *testing.T) {
	costs := tokenbucket.Costs{
		"GET /export":                5,
		"/free":                      0,
		"/users/{id}":                2,
		"/users/me":                  3,
		"costly.example.com/":        4,
		"costly.example.com/bargain": 1,
	}
	for _, row := range []struct {
		method, url string
		cost        float64
	}{
		{"GET", "http://api.example.com/export", 5},
		{"", "http://api.example.com/export?all", 5},
		{"HEAD", "http://api.example.com/export", 5},
		{"POST", "http://api.example.com/export", 1},
		{"GET", "http://api.example.com", 1},
		{"GET", "http://api.example.com/free", 0},
		{"GET", "http://api.example.com/users/7", 2},
		{"GET", "http://api.example.com/users/me", 3},
		{"GET", "http://costly.example.com/any", 4},
		{"GET", "https://Costly.example.com:443/any", 4},
		{"GET", "http://costly.example.com/bargain", 1},
	} {
		t.Run(row.method+" "+row.url, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithTransportCosts(costs))
				req, err := http.NewRequest(row.method, row.url, nil)
				require.NoError(t, err)
				req.Host = "" // as a request made by hand has it
				req.Method = row.method
				resp, err := client.Do(req)
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, 10-row.cost, bucket.Tokens())
			})
		})
	}
}

func TestTransportCostByFunction(t *testing.T) {
	byLength := func(req *http.Request) float64 { return float64(len(req.URL.Path)) - 1 }
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.politely(tokenbucket.Limit{Capacity: 3, RefillPerSec: 1},
			httplimit.WithTransportCosts(tokenbucket.Costs{"/": 2}), httplimit.WithTransportCost(byLength))
		s.get(client, exampleURL+"abc")
		s.get(client, exampleURL) // free
		s.get(client, exampleURL+"ab")
		require.Equal(t, []time.Duration{0, 0, 2 * time.Second}, s.instants())
	})
	onStage(t, func(t *testing.T, s *stage) {
		client, bucket := s.politely(tokenbucket.Limit{Capacity: 3, RefillPerSec: 1},
			httplimit.WithTransportCost(byLength), httplimit.WithTransportCosts(tokenbucket.Costs{"/": 2}))
		s.get(client, exampleURL+"abc")
		require.Equal(t, 1.0, bucket.Tokens())
	})
}

func TestTransportRefusesCostsThatCanNeverBeMet(t *testing.T) {
	for _, row := range []struct {
		cost float64
		want error
	}{
		{4, tokenbucket.ErrCostExceedsCapacity},
		{math.Inf(1), tokenbucket.ErrCostExceedsCapacity},
		{-1, tokenbucket.ErrInvalidCost},
		{math.NaN(), tokenbucket.ErrInvalidCost},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			client, bucket := s.politely(tokenbucket.Limit{Capacity: 3, RefillPerSec: 1},
				httplimit.WithTransportCost(func(*http.Request) float64 { return row.cost }))
			body := newRequestBody("text")
			_, err := client.Post(exampleURL, "text/plain", body)
			require.ErrorIs(t, err, row.want)
			require.NotEmpty(t, body.closed)
			require.Empty(t, s.instants())
			require.Equal(t, 3.0, bucket.Tokens())
		})
	}
}

func TestTransportDeadlineThatCannotBeMet(t *testing.T) {
	deadlines := map[string]func(*http.Client) (context.Context, context.CancelFunc){
		"of the context": func(*http.Client) (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 999*time.Millisecond)
		},
		"of the client": func(client *http.Client) (context.Context, context.CancelFunc) {
			client.Timeout = 999 * time.Millisecond
			return context.Background(), func() {}
		},
	}
	for name, set := range deadlines {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, bucket := s.politely(oneASecond)
				bucket.TryAcquire(1)
				ctx, stop := set(client)
				defer stop()
				body := newRequestBody("text")
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, exampleURL, body)
				require.NoError(t, err)

				_, err = client.Do(req)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var urlErr *url.Error
				require.ErrorAs(t, err, &urlErr)
				require.True(t, urlErr.Timeout())
				var deadline *tokenbucket.DeadlineError
				require.ErrorAs(t, err, &deadline)
				require.Equal(t, time.Second, deadline.Wait)
				require.NotEmpty(t, body.closed)
				require.Zero(t, s.now(), "it fails at once")
				require.Empty(t, s.instants(), "nothing is sent")
				require.Zero(t, bucket.Tokens(), "nothing is taken")
			})
		})
	}
}

func TestTransportDeadlineThatCanBeMet(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, bucket := s.politely(oneASecond)
		bucket.TryAcquire(1)
		client.Timeout = time.Second + 1
		s.get(client, exampleURL)
		require.Equal(t, []time.Duration{time.Second}, s.instants())
	})
}

func TestTransportCancelledWhileWaiting(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, bucket := s.politely(oneASecond)
		bucket.TryAcquire(1)
		ctx, cancel := context.WithCancel(context.Background())
		body := newRequestBody("text")
		var group sync.WaitGroup
		group.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, exampleURL, body)
			assert.NoError(t, err)
			_, err = client.Do(req)
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, 300*time.Millisecond, s.now())
		})
		synctest.Wait()
		group.Go(func() { s.get(client, exampleURL) }) // behind it
		time.Sleep(300 * time.Millisecond)
		cancel()
		group.Wait()
		require.NotEmpty(t, body.closed)
		require.Equal(t, []time.Duration{time.Second}, s.instants(), "the place is given up")
	})
}

func TestTransportQueueThatIsFull(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		bucket := tokenbucket.MustNew(oneASecond, tokenbucket.WithTokens(0), tokenbucket.WithMaxWaiters(0))
		body := newRequestBody("text")
		_, err := s.client(httplimit.AllHosts(bucket)).Post(exampleURL, "text/plain", body)
		require.ErrorIs(t, err, tokenbucket.ErrTooManyWaiters)
		require.NotEmpty(t, body.closed)
		require.Empty(t, s.instants())
	})
}

func TestTransportPassesTheBaseOn(t *testing.T) {
	t.Run("its error", func(t *testing.T) {
		broken := errors.New("connection reset")
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithRetries(3),
			httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, broken })))
		require.NoError(t, err)
		req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.Nil(t, resp)
		require.Equal(t, broken, err)
	})
	t.Run("its refusal of a request without a URL", func(t *testing.T) {
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)))
		require.NoError(t, err)
		body := newRequestBody("text")
		_, err = transport.RoundTrip(&http.Request{Body: body})
		require.Error(t, err)
		require.NotEmpty(t, body.closed)
	})
	t.Run("http.DefaultTransport", func(t *testing.T) {
		before := http.DefaultTransport
		defer func() { http.DefaultTransport = before }()
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(nil))
		require.NoError(t, err)
		onStage(t, func(t *testing.T, s *stage) {
			http.DefaultTransport = s
			req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
			require.NoError(t, err)
			_, err = transport.RoundTrip(req)
			require.NoError(t, err)
			require.Len(t, s.instants(), 1)
		})
	})
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type idleCloser struct {
	roundTripFunc
	closed int
}

func (c *idleCloser) CloseIdleConnections() { c.closed++ }

func TestTransportClosesIdleConnectionsOfItsBase(t *testing.T) {
	base := &idleCloser{}
	for _, b := range []http.RoundTripper{base, roundTripFunc(nil)} {
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(b))
		require.NoError(t, err)
		(&http.Client{Transport: transport}).CloseIdleConnections()
	}
	require.Equal(t, 1, base.closed)
}

func TestTransportZeroValueSendsNothing(t *testing.T) {
	var transport httplimit.Transport
	body := newRequestBody("text")
	_, err := (&http.Client{Transport: &transport}).Post(exampleURL, "text/plain", body)
	require.ErrorContains(t, err, "use NewTransport")
	require.NotEmpty(t, body.closed)
}

func TestTransportChecksItsConfiguration(t *testing.T) {
	bucket := httplimit.AllHosts(tokenbucket.MustNew(tokenbucket.PerMinute(10)))
	hosts, err := keyed.New[string](tokenbucket.PerMinute(10), keyed.WithLimit(tokenbucket.PerHour(4)))
	require.NoError(t, err)
	for _, row := range []struct {
		buckets httplimit.HostBuckets
		opt     httplimit.TransportOption
		want    error
		says    string
	}{
		{nil, httplimit.WithRetries(0), tokenbucket.ErrInvalidOption, "no buckets"},
		{httplimit.AllHosts(nil), httplimit.WithRetries(0), tokenbucket.ErrInvalidOption, "no buckets"},
		{bucket, httplimit.WithTransportCost(nil), tokenbucket.ErrInvalidOption, "WithTransportCost(nil)"},
		{bucket, httplimit.WithDefaultPause(0), tokenbucket.ErrInvalidOption, "WithDefaultPause(0s)"},
		{bucket, httplimit.WithDefaultPause(-1), tokenbucket.ErrInvalidOption, "WithDefaultPause(-1ns)"},
		{bucket, httplimit.WithLongestPause(0), tokenbucket.ErrInvalidOption, "WithLongestPause(0s)"},
		{bucket, httplimit.WithRetries(-1), tokenbucket.ErrInvalidOption, "WithRetries(-1)"},
		{bucket, httplimit.WithDrain(-1), tokenbucket.ErrInvalidOption, "WithDrain(-1)"},
		{bucket, httplimit.WithTooFast(500, 399), tokenbucket.ErrInvalidOption, "WithTooFast(399)"},
		{bucket, httplimit.WithTooFast(600), tokenbucket.ErrInvalidOption, "WithTooFast(600)"},
		{bucket, nil, tokenbucket.ErrInvalidOption, "option 0 is nil"},
		{bucket, httplimit.WithTransportCosts(tokenbucket.Costs{"API.example.com/x": 1}), tokenbucket.ErrInvalidOption, "lower case"},
		{bucket, httplimit.WithTransportCosts(tokenbucket.Costs{"GET": 1}), tokenbucket.ErrInvalidOption, `"GET"`},
		{bucket, httplimit.WithTransportCosts(tokenbucket.Costs{"/a/{x}/b": 1, "/a/b/{x}": 1}), tokenbucket.ErrInvalidOption, "conflicts"},
		{bucket, httplimit.WithTransportCosts(tokenbucket.Costs{"/": -1}), tokenbucket.ErrInvalidCost, `"/"`},
		{bucket, httplimit.WithTransportCosts(tokenbucket.Costs{"/": 11}), tokenbucket.ErrCostExceedsCapacity, `"/"`},
		{hosts, httplimit.WithTransportCosts(tokenbucket.Costs{"/": 5}), tokenbucket.ErrCostExceedsCapacity, `"/"`},
	} {
		t.Run(row.says, func(t *testing.T) {
			transport, err := httplimit.NewTransport(row.buckets, row.opt)
			require.ErrorIs(t, err, row.want)
			require.ErrorContains(t, err, row.says)
			require.Nil(t, transport)
		})
	}
}

func TestTransportPricesAreCopied(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		costs := tokenbucket.Costs{"/": 2}
		client, bucket := s.politely(tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, httplimit.WithTransportCosts(costs))
		costs["/"] = 3
		s.get(client, exampleURL)
		require.Equal(t, 1.0, bucket.Tokens())
	})
}

// All parts of a request must be the same after a retry as before.
func TestTransportModifiesNoRequest(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "1")
		client, _ := s.politely(oneASecond, httplimit.WithRetries(1), httplimit.WithRateLimitFields())
		req, err := http.NewRequest(http.MethodPut, "http://API.example.com:80/x", strings.NewReader("text"))
		require.NoError(t, err)
		req.Header.Set("X-Test", "1")
		before, url, header := *req, *req.URL, req.Header.Clone()

		resp, err := client.Transport.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Len(t, s.instants(), 2)
		require.Equal(t, url, *req.URL)
		require.Equal(t, header, req.Header)
		require.True(t, before.Body == req.Body)
		require.Equal(t, before.Host, req.Host)
		require.NotSame(t, req, resp.Request, "the retry is a copy")
	})
}

func TestTransportHundredGoroutines(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 10})
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() { s.get(client, fmt.Sprint(exampleURL, i)) })
		}
		group.Wait()
		at := s.instants()
		require.Len(t, at, 100)
		for i := range at {
			require.Equal(t, max(0, time.Duration(i-9)*100*time.Millisecond), at[i])
		}
		require.Zero(t, bucket.Tokens())
	})
}

// The requests of a hundred goroutines are refused, retried, slowed down and cancelled at
// random. In all cases the requests that are sent stay within the bucket's limit.
func TestTransportHundredGoroutinesAndAServerInABadMood(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 150 {
			switch random.IntN(5) {
			case 0:
				s.will(429, "Retry-After", fmt.Sprint(1+random.IntN(3)))
			case 1:
				s.will(503, "Retry-After", "1")
			case 2:
				s.will(200, "RateLimit", fmt.Sprintf(`"default";r=%d;t=2`, random.IntN(5)))
			default:
				s.will(200)
			}
		}
		limit := tokenbucket.Limit{Capacity: 5, RefillPerSec: 10}
		client, _ := s.hostByHost(limit, httplimit.WithRetries(2), httplimit.WithRateLimitFields())
		var group sync.WaitGroup
		for i := range 100 {
			patience := time.Duration(random.Int64N(int64(2 * time.Minute)))
			group.Go(func() {
				ctx, stop := context.WithTimeout(context.Background(), patience)
				defer stop()
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprint(exampleURL, i), strings.NewReader("text"))
				assert.NoError(t, err)
				resp, err := client.Do(req)
				if err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				assert.NoError(t, err)
				resp.Body.Close()
			})
		}
		group.Wait()
		at := s.instants()
		for i := range at {
			for j := i; j < len(at); j++ {
				require.LessOrEqual(t, float64(j-i+1), limit.Capacity+limit.RefillPerSec*(at[j]-at[i]).Seconds()+1e-6)
			}
		}
		for _, r := range s.sent {
			require.Equal(t, "text", r.body)
		}
	})
}

// Dates are compared with the given clock, and a bucket on the same clock waits by it.
func TestTransportOnAMockClock(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		mock := waittest.NewClock(time.Date(2026, time.November, 6, 8, 49, 37, 0, time.UTC))
		bucket := tokenbucket.MustNew(oneASecond, tokenbucket.WithClock(mock))
		client := s.client(httplimit.AllHosts(bucket), httplimit.WithTransportClock(mock))
		s.will(429, "Retry-After", "Fri, 06 Nov 2026 08:50:07 GMT")
		s.get(client, exampleURL)
		wait, ok := bucket.TryAcquire(1)
		require.False(t, ok)
		require.Equal(t, 31*time.Second, wait)

		done := make(chan struct{})
		go func() {
			defer close(done)
			s.get(client, exampleURL)
		}()
		synctest.Wait()
		mock.Set(31*time.Second - 1)
		synctest.Wait()
		require.Len(t, s.instants(), 1)
		mock.Set(31 * time.Second)
		<-done
		require.Len(t, s.instants(), 2)
	})
	_, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithTransportClock(nil))
	require.NoError(t, err)
}
