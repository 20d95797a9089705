package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestTransportRetries(t *testing.T) {
	for _, row := range []struct {
		name           string
		retries, sends int
	}{
		{"stripe-node#1885, none", 0, 1},
		{"stripe-node#1885, two", 2, 3},
		{"more than it takes", 9, 6},
	} {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				for _, text := range []string{"first", "second", "third", "fourth", "fifth"} {
					s.will(429, "Retry-After", "2", "X-Test", text, "body", text)
				}
				client, _ := s.politely(oneASecond, httplimit.WithRetries(row.retries))
				resp, err := client.Get(exampleURL)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Len(t, s.instants(), row.sends)
				if row.sends > 5 {
					require.Equal(t, http.StatusOK, resp.StatusCode)
					return
				}
				last := s.bodies[row.sends-1]
				require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				require.False(t, last.closed, "the last one is the caller's to read")
				require.Zero(t, last.read)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, resp.Header.Get("X-Test"), string(text))
				for _, refused := range s.bodies[:row.sends-1] {
					require.True(t, refused.closed)
					require.True(t, refused.ended)
				}
			})
		})
	}
}

func TestTransportRetriesOnlyRefusals(t *testing.T) {
	for _, row := range []struct {
		status int
		header []string
		sends  int
	}{
		{429, []string{"Retry-After", "1"}, 2},
		{429, nil, 2},
		{429, []string{"RateLimit", `"a";r=0;t=3`}, 2},
		{503, []string{"Retry-After", "1"}, 2},
		{500, nil, 2}, // declared
		{503, nil, 1},
		{503, []string{"RateLimit", `"a";r=0;t=3`}, 1},
		{502, []string{"Retry-After", "1"}, 1},
		{200, []string{"Retry-After", "1"}, 1},
		{200, []string{"RateLimit", `"a";r=0;t=3`}, 1},
		{429, []string{"Retry-After", "301"}, 1},
		{429, []string{"Retry-After", "9223372037"}, 1},
		{429, []string{"RateLimit", `"a";r=0;t=301`}, 1},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			s.will(row.status, append(row.header, "body", "as it is")...)
			client, _ := s.politely(oneASecond, httplimit.WithRetries(5), httplimit.WithTooFast(500), httplimit.WithRateLimitFields())
			status, body := s.get(client, exampleURL)
			require.Len(t, s.instants(), row.sends, "%+v", row)
			if row.sends == 1 {
				require.Equal(t, row.status, status)
				require.Equal(t, "as it is", body)
				require.Zero(t, s.now())
			}
		})
	}
}

// onlyReader hides what a reader is from http.NewRequest, which then sets no GetBody.
type onlyReader struct{ io.Reader }

func TestTransportRetriesOnlyWhatIsSafe(t *testing.T) {
	text := func() io.Reader { return strings.NewReader("text") }
	for _, row := range []struct {
		name, method string
		body         io.Reader
		header       http.Header
		sends        int
	}{
		{"", "GET", nil, nil, 2},
		{"", "HEAD", nil, nil, 2},
		{"", "OPTIONS", nil, nil, 2},
		{"", "TRACE", nil, nil, 2},
		{"", "PUT", nil, nil, 2},
		{"", "DELETE", nil, nil, 2},
		{"", "QUERY", nil, nil, 2},
		{"", "PROPFIND", nil, nil, 2},
		{"", "REPORT", nil, nil, 2},
		{"", "SEARCH", nil, nil, 2},
		{"with a body", "QUERY", text(), nil, 2},
		{"with a body that cannot be rewound", "QUERY", onlyReader{text()}, nil, 1},
		{"", "query", nil, nil, 1},
		{"", "POST", nil, nil, 1},
		{"", "PATCH", nil, nil, 1},
		{"", "get", nil, nil, 1},
		{"with a body", "PUT", text(), nil, 2},
		{"with a body", "GET", text(), nil, 2},
		{"with no body", "PUT", http.NoBody, nil, 2},
		{"with a body", "POST", text(), nil, 1},
		{"go-mastodon#219", "POST", text(), http.Header{"Idempotency-Key": {"7"}}, 2},
		{"with a key", "PATCH", text(), http.Header{"X-Idempotency-Key": {"7"}}, 2},
		{"with a key that is not sent", "POST", text(), http.Header{"Idempotency-Key": nil}, 2},
		{"go-mastodon#219, a body that cannot be rewound", "POST", onlyReader{text()}, http.Header{"Idempotency-Key": {"7"}}, 1},
		{"with a body that cannot be rewound", "PUT", onlyReader{text()}, nil, 1},
	} {
		t.Run(row.method+" "+row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				s.will(429, "Retry-After", "1")
				client, _ := s.politely(oneASecond, httplimit.WithRetries(3))
				req, err := http.NewRequest(row.method, exampleURL, row.body)
				require.NoError(t, err)
				if row.header != nil {
					req.Header = row.header
				}
				resp, err := client.Do(req)
				require.NoError(t, err)
				resp.Body.Close()
				require.Len(t, s.sent, row.sends)
				for _, r := range s.sent {
					require.Equal(t, s.sent[0].body, r.body, "whole again")
				}
				if row.body != nil && row.body != http.NoBody {
					require.Equal(t, "text", s.sent[0].body)
				}
			})
		})
	}
}

// Retry-After is 2 s. Then the bucket is empty and gets one token a second. The jitter is up
// to a second.
func requireRetryAt(t *testing.T, at time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, at, 3*time.Second)
	require.Less(t, at, 4*time.Second)
}

func TestTransportRetryWaitsForItsTurn(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2")
		client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithRetries(1))
		s.get(client, exampleURL)
		at := s.instants()
		require.Len(t, at, 2)
		requireRetryAt(t, at[1])
		require.Zero(t, bucket.Tokens(), "both attempts were paid for")
	})
}

// The retry queues at once: after the requests that wait already, before those that come later.
func TestTransportRetryComesBeforeLaterRequests(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2")
		client, _ := s.politely(oneASecond, httplimit.WithRetries(1))
		var group sync.WaitGroup
		group.Go(func() { s.get(client, exampleURL+"first") })
		synctest.Wait()
		for range 3 {
			group.Go(func() { s.get(client, exampleURL+"later") })
		}
		group.Wait()
		var urls []string
		for _, r := range s.sent {
			urls = append(urls, strings.TrimPrefix(r.url, exampleURL))
		}
		require.Equal(t, []string{"first", "first", "later", "later", "later"}, urls)
	})
}

// The retries of a free request that is refused must wait for the end of the pause.
func TestTransportRetryOfAFreeRequestWaitsForThePause(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2").will(429, "Retry-After", "2")
		client, bucket := s.politely(oneASecond, httplimit.WithRetries(2), httplimit.WithTransportCosts(tokenbucket.Costs{"/": 0}))
		s.get(client, exampleURL)
		at := s.instants()
		require.Len(t, at, 3)
		requireRetryAt(t, at[1]+time.Second)
		requireRetryAt(t, at[2]-at[1]+time.Second)
		require.Zero(t, bucket.Tokens(), "nothing was taken")
	})
}

func TestTransportRetryThatTheDeadlineForbids(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "20", "body", "as it is")
		client, _ := s.politely(oneASecond, httplimit.WithRetries(5))
		client.Timeout = 10 * time.Second
		status, body := s.get(client, exampleURL)
		require.Equal(t, http.StatusTooManyRequests, status)
		require.Equal(t, "as it is", body)
		require.Zero(t, s.now(), "that is known at once")
	})
	t.Run("by the queue, not by the pause", func(t *testing.T) {
		onStage(t, func(t *testing.T, s *stage) {
			s.will(429, "Retry-After", "2", "body", "as it is")
			client, _ := s.politely(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.1}, httplimit.WithRetries(5))
			client.Timeout = 10 * time.Second
			status, body := s.get(client, exampleURL)
			require.Equal(t, http.StatusTooManyRequests, status)
			require.Equal(t, "as it is", body)
			require.Zero(t, s.now())
		})
	})
	t.Run("a body longer than the bound", func(t *testing.T) {
		onStage(t, func(t *testing.T, s *stage) {
			s.will(429, "Retry-After", "20", "body", "too long")
			client, _ := s.politely(oneASecond, httplimit.WithRetries(5), httplimit.WithDrain(7))
			client.Timeout = 10 * time.Second
			status, body := s.get(client, exampleURL)
			require.Equal(t, http.StatusTooManyRequests, status)
			require.Equal(t, "too long", body)
			require.Zero(t, s.now())
		})
	})
	t.Run("the answer to a HEAD request has no body to read", func(t *testing.T) {
		onStage(t, func(t *testing.T, s *stage) {
			s.will(429, "Retry-After", "20")
			s.answers[0].Body, s.answers[0].ContentLength = http.NoBody, 1<<30
			client, _ := s.politely(oneASecond, httplimit.WithRetries(5))
			client.Timeout = 10 * time.Second
			resp, err := client.Head(exampleURL)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		})
	})
}

func TestTransportRetryCancelledInThePause(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "20")
		client, bucket := s.politely(oneASecond, httplimit.WithRetries(5))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(5*time.Second, cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, exampleURL, strings.NewReader("text"))
		require.NoError(t, err)
		again := newRequestBody("text")
		req.GetBody = func() (io.ReadCloser, error) { return again, nil }

		_, err = client.Do(req)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 5*time.Second, s.now())
		require.Len(t, s.instants(), 1)
		require.NotEmpty(t, again.closed)
		require.True(t, s.bodies[0].closed)
		synctest.Wait()
		require.Zero(t, bucket.Waiting())
	})
}

// trailing is a body that fills a trailer when it has been read.
type trailing struct {
	io.Reader
	trailer http.Header
}

func (b trailing) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.trailer.Add("Checksum", "42")
	}
	return n, err
}

func (b trailing) Close() error { return nil }

func TestTransportRetrySendsTheTrailerOfItsBody(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2").will(429, "Retry-After", "2")
		var sent []string
		base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := s.RoundTrip(req)
			sent = append(sent, req.Trailer.Get("Checksum"))
			req.Trailer["Checksum"] = nil
			return resp, err
		})
		client, _ := s.politely(oneASecond, httplimit.WithRetries(2), httplimit.WithBase(base))
		trailer := http.Header{"Checksum": nil}
		body := func() (io.ReadCloser, error) { return trailing{strings.NewReader("text"), trailer}, nil }
		first, _ := body()
		req, err := http.NewRequest(http.MethodPut, exampleURL, first)
		require.NoError(t, err)
		req.GetBody, req.Trailer = body, trailer
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, []string{"42", "42", "42"}, sent)
	})
}

func TestTransportRetryWhoseBodyCannotBeHadAgain(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2", "body", "as it is")
		client, _ := s.politely(oneASecond, httplimit.WithRetries(5))
		req, err := http.NewRequest(http.MethodPut, exampleURL, strings.NewReader("text"))
		require.NoError(t, err)
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "as it is", string(text))
		require.Len(t, s.instants(), 1)
	})
}

// WithLongestPause bounds the default pause, and the request is retried all the same.
func TestTransportRetryAfterADefaultPauseThatIsCapped(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429)
		client, _ := s.politely(oneASecond, httplimit.WithRetries(1), httplimit.WithLongestPause(2*time.Second))
		status, _ := s.get(client, exampleURL)
		require.Equal(t, http.StatusOK, status)
		requireRetryAt(t, s.instants()[1])
	})
}

func TestTransportRetryThatFails(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2")
		broken := errors.New("connection reset")
		client, _ := s.politely(oneASecond, httplimit.WithRetries(5), httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if len(s.instants()) == 1 {
				return nil, broken
			}
			return s.RoundTrip(req)
		})))
		_, err := client.Get(exampleURL)
		require.ErrorIs(t, err, broken)
	})
}

func TestTransportDrainsUpToABound(t *testing.T) {
	const kib = 1 << 10
	for _, row := range []struct {
		name   string
		body   io.Reader
		length int64
		opts   []httplimit.TransportOption
		read   int
		ended  bool
	}{
		{"none", strings.NewReader(""), 0, nil, 0, true},
		{"short", strings.NewReader("text"), 4, nil, 4, true},
		{"at the default bound", bytes.NewReader(make([]byte, 64*kib)), -1, nil, 64 * kib, true},
		{"a byte longer", bytes.NewReader(make([]byte, 64*kib+1)), -1, nil, 64*kib + 1, false},
		{"endless", rand.NewChaCha8([32]byte{}), -1, nil, 64*kib + 1, false},
		{"said to be longer", bytes.NewReader(make([]byte, 64*kib+1)), 64*kib + 1, nil, 0, false},
		{"at another bound", strings.NewReader("text"), -1, []httplimit.TransportOption{httplimit.WithDrain(4)}, 4, true},
		{"past another bound", strings.NewReader("texts and more"), -1, []httplimit.TransportOption{httplimit.WithDrain(4)}, 5, false},
		{"no bound", bytes.NewReader(make([]byte, 65*kib)), -1, []httplimit.TransportOption{httplimit.WithDrain(1<<63 - 1)}, 65 * kib, true},
		{"broken", io.MultiReader(strings.NewReader("te"), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, nil, 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				s.will(429, "Retry-After", "2")
				s.bodies[0].Reader, s.answers[0].ContentLength = row.body, row.length
				client, _ := s.politely(oneASecond, append(row.opts, httplimit.WithRetries(1))...)
				status, _ := s.get(client, exampleURL)
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, row.read, s.bodies[0].read)
				require.Equal(t, row.ended, s.bodies[0].ended)
				require.True(t, s.bodies[0].closed)
			})
		})
	}
}

// A refusing answer whose body never ends must not delay the retry.
func TestTransportRetryAfterABodyThatNeverEnds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "2")
		endless, _ := io.Pipe()
		s.answers[0].Body = endless
		client, _ := s.politely(oneASecond, httplimit.WithRetries(1))
		status, _ := s.get(client, exampleURL)
		require.Equal(t, http.StatusOK, status)
		require.Less(t, s.now(), 6*time.Second)
	})
}

func TestTransportRefusedHeadComesBackWhole(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.Header().Set("Content-Length", "100000")
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)),
			httplimit.WithBase(server.Client().Transport), httplimit.WithRetries(1))
		require.NoError(t, err)
		answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Head(server.URL)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	}
}

// A base that breaks the contract of RoundTripper is handled as by http.Client.
func TestTransportRetryAfterAnAnswerWithoutABody(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.answers = []*http.Response{{StatusCode: 429}}
		client, _ := s.politely(oneASecond, httplimit.WithRetries(1), httplimit.WithRateLimitFields())
		status, _ := s.get(client, exampleURL)
		require.Equal(t, http.StatusOK, status)
		require.Len(t, s.instants(), 2)
	})
	transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)),
		httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, nil })))
	require.NoError(t, err)
	_, err = (&http.Client{Transport: transport}).Get(exampleURL)
	require.Error(t, err)
}

// retryAt returns how long after its refusal the first request of a process is sent
// again. Several requests were under way at the same time. A token and the way to the
// server take a millisecond each.
func retryAt(t *testing.T, after string, requests int, opts ...httplimit.TransportOption) (first time.Duration) {
	onStage(t, func(t *testing.T, s *stage) {
		for range requests {
			s.will(429, "Retry-After", after)
		}
		client, _ := s.politely(tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1000}, append(opts, httplimit.WithRetries(1),
			httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Millisecond)
				return s.RoundTrip(req)
			})))...)
		var group sync.WaitGroup
		for range requests {
			group.Go(func() { s.get(client, exampleURL) })
		}
		group.Wait()
		first = s.instants()[requests] - s.instants()[0] - 2*time.Millisecond
	})
	return first
}

func TestTransportRetriesOfManyProcessesSpread(t *testing.T) {
	for _, row := range []struct {
		name, after string
		requests    int
		from, spans time.Duration
	}{
		{"1 s, up to twice that", "1", 1, time.Second, time.Second},
		{"5 s, up to a second later", "5", 1, 5 * time.Second, time.Second},
		{"5 minutes, up to 30 s later", "300", 1, 300 * time.Second, 30 * time.Second},
		{"no Retry-After, up to twice the pause", "", 1, 200 * time.Millisecond, 200 * time.Millisecond},
		{"each with many requests", "5", 20, 5 * time.Second, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			tenths := make([]int, 10)
			for process := range uint64(200) {
				at := retryAt(t, row.after, row.requests, httplimit.WithDefaultPause(200*time.Millisecond), httplimit.WithJitterSource(rand.NewPCG(process, 0))) - row.from
				require.GreaterOrEqual(t, at, time.Duration(0), "never early")
				require.Less(t, at, row.spans)
				tenths[at*10/row.spans]++
			}
			for _, n := range tenths {
				require.InDelta(t, 20, n, 16, tenths)
			}
		})
	}
	t.Run("by default too", func(t *testing.T) {
		var at []time.Duration
		for range 20 {
			at = append(at, retryAt(t, "5", 1, httplimit.WithJitterSource(nil)))
		}
		slices.Sort(at)
		require.Len(t, slices.Compact(at), 20)
	})
	t.Run("repeatably", func(t *testing.T) {
		again := func() time.Duration {
			return retryAt(t, "5", 1, httplimit.WithJitterSource(rand.NewPCG(7, 7)))
		}
		require.Equal(t, again(), again())
	})
}

func TestTransportJitterIsNotTheSameForEveryHostAndSecond(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, _ := s.hostByHost(tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1000}, httplimit.WithRetries(1))
		pauses := map[time.Duration]bool{}
		for range 2 {
			s.will(429, "Retry-After", "5").will(429, "Retry-After", "5")
			refused := s.now()
			var group sync.WaitGroup
			for _, url := range []string{exampleURL, otherURL} {
				group.Go(func() { s.get(client, url) })
			}
			group.Wait()
			at := s.instants()
			pauses[at[len(at)-1]-refused], pauses[at[len(at)-2]-refused] = true, true
			time.Sleep(10 * time.Second)
		}
		require.Len(t, pauses, 4)
	})
}

// Without retries there is no jitter.
func TestTransportWithoutRetriesHasNoJitter(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", "5")
		client, _ := s.politely(oneASecond)
		s.get(client, exampleURL)
		s.get(client, exampleURL)
		require.Equal(t, []time.Duration{0, 6 * time.Second}, s.instants())
	})
}

func TestTransportPauseThatNeverEnds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(429, "Retry-After", strings.Repeat("9", 40))
		client, bucket := s.politely(oneASecond, httplimit.WithRetries(1), httplimit.WithLongestPause(tokenbucket.Never))
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, exampleURL, nil)
			assert.NoError(t, err)
			_, err = client.Do(req)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		wait, ok := bucket.TryAcquire(1)
		require.False(t, ok)
		require.Equal(t, tokenbucket.Never, wait)
		cancel()
		group.Wait()
		require.Len(t, s.instants(), 1)
	})
}
