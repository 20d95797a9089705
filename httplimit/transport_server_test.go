package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
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
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// pipes is a listener in memory, whose connections work in a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// inMemory runs a test in a bubble with a server in memory, over HTTP/1.1 and over
// HTTP/2, and with a base that leads to it. If idle is above 0, the server closes
// connections that get no request for that long.
func inMemory(t *testing.T, idle time.Duration, handler http.HandlerFunc, act func(t *testing.T, base *http.Transport)) {
	var http1, http2 http.Protocols
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	for name, protocols := range map[string]*http.Protocols{"HTTP/1.1": &http1, "HTTP/2.0": &http2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := &pipes{make(chan net.Conn), make(chan struct{})}
				server := &http.Server{Protocols: protocols, ReadHeaderTimeout: idle, IdleTimeout: idle, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					assert.Equal(t, name, r.Proto)
					handler(w, r)
				})}
				go func() { assert.ErrorIs(t, server.Serve(listener), http.ErrServerClosed) }()
				base := &http.Transport{DialContext: listener.dial, Protocols: protocols}
				defer func() {
					base.CloseIdleConnections()
					assert.NoError(t, server.Close())
				}()
				act(t, base)
			})
		})
	}
}

// refusing answers 429 a number of times, then 200, over each protocol.
func refusing(times int32, text string) http.HandlerFunc {
	asked := map[string]*atomic.Int32{"HTTP/1.1": {}, "HTTP/2.0": {}}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "text" {
			http.Error(w, "the body is not whole", http.StatusBadRequest)
			return
		}
		if asked[r.Proto].Add(1) <= times {
			w.Header().Set("Retry-After", "2")
			http.Error(w, text, http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "done")
	}
}

// put sends a PUT with a text. It returns the status and the body of the answer, and for
// each connection that it got whether the connection had been used before.
func put(t *testing.T, client *http.Client, url string) (status int, text string, reused []bool) {
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { reused = append(reused, c.Reused) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader("text"))
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body), reused
}

func TestTransportInMemory(t *testing.T) {
	t.Run("exact instants", func(t *testing.T) {
		inMemory(t, 0, refusing(0, ""), func(t *testing.T, base *http.Transport) {
			start := time.Now()
			transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(base))
			require.NoError(t, err)
			client := &http.Client{Transport: transport}
			for i := range 5 {
				status, text, _ := put(t, client, exampleURL)
				require.Equal(t, http.StatusOK, status, text)
				require.Equal(t, time.Duration(i)*time.Second, time.Since(start))
			}
		})
	})
	t.Run("openai-go#495", func(t *testing.T) {
		inMemory(t, 0, refusing(2, strings.Repeat("too fast ", 5000)), func(t *testing.T, base *http.Transport) {
			start := time.Now()
			transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(base), httplimit.WithRetries(2))
			require.NoError(t, err)
			status, text, reused := put(t, &http.Client{Transport: transport}, exampleURL)
			require.Equal(t, http.StatusOK, status, text)
			require.Equal(t, []bool{false, true, true}, reused)
			require.GreaterOrEqual(t, time.Since(start), 6*time.Second)
			require.Less(t, time.Since(start), 8*time.Second)
		})
	})
	t.Run("the last refusal comes back", func(t *testing.T) {
		long := strings.Repeat("too fast ", 5000)
		inMemory(t, 0, refusing(2, long), func(t *testing.T, base *http.Transport) {
			transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(base), httplimit.WithRetries(1))
			require.NoError(t, err)
			status, text, _ := put(t, &http.Client{Transport: transport}, exampleURL)
			require.Equal(t, http.StatusTooManyRequests, status)
			require.Equal(t, long+"\n", text)
		})
	})
	t.Run("a deadline within the pause", func(t *testing.T) {
		inMemory(t, 0, refusing(1, "too fast"), func(t *testing.T, base *http.Transport) {
			transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(base))
			require.NoError(t, err)
			client := &http.Client{Transport: transport, Timeout: time.Second}
			status, _, _ := put(t, client, exampleURL)
			require.Equal(t, http.StatusTooManyRequests, status)
			_, err = client.Get(exampleURL)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
}

var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// onLoopback runs a test with a real server, over HTTP/1.1 and over HTTP/2.
func onLoopback(t *testing.T, handler http.HandlerFunc, act func(t *testing.T, url string, base http.RoundTripper)) {
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			server := startSecureServer(t, proto, handler)
			defer server.Close()
			act(t, server.URL, server.Client().Transport)
		})
	}
}

// startSecureServer starts a real server that speaks one protocol over TLS.
func startSecureServer(t *testing.T, proto string, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, proto, r.Proto)
		handler(w, r)
	}))
	server.EnableHTTP2 = proto == "HTTP/2.0"
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server
}

// advance lets a mock clock's time pass whenever a request waits for it. Requests set
// timers meanwhile, at which other mock clocks may tick a timer twice and hang.
func advance(t *testing.T, mock *waittest.Clock, bucket *tokenbucket.Bucket) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if bucket.Waiting() > 0 {
				mock.Add(time.Second)
				continue
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(func() {
		close(done)
		group.Wait()
	})
}

func TestTransportOnARealServer(t *testing.T) {
	t.Run("openai-go#495", func(t *testing.T) {
		onLoopback(t, refusing(2, strings.Repeat("too fast ", 5000)), func(t *testing.T, url string, base http.RoundTripper) {
			mock := new(waittest.Clock)
			start := mock.Now()
			bucket := tokenbucket.MustNew(oneASecond, tokenbucket.WithClock(mock))
			transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithBase(base), httplimit.WithTransportClock(mock), httplimit.WithRetries(2))
			require.NoError(t, err)
			advance(t, mock, bucket)
			status, text, reused := put(t, &http.Client{Transport: transport}, url)
			require.Equal(t, http.StatusOK, status, text)
			require.Equal(t, []bool{false, true, true}, reused)
			require.GreaterOrEqual(t, mock.Since(start), 6*time.Second)
		})
	})
	t.Run("a hundred goroutines", func(t *testing.T) {
		var served atomic.Int32
		onLoopback(t, func(http.ResponseWriter, *http.Request) { served.Add(1) }, func(t *testing.T, url string, base http.RoundTripper) {
			served.Store(0)
			mock := new(waittest.Clock)
			start := mock.Now()
			bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 20, RefillPerSec: 10}, tokenbucket.WithClock(mock))
			transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithBase(base))
			require.NoError(t, err)
			advance(t, mock, bucket)
			client := &http.Client{Transport: transport}
			var group sync.WaitGroup
			for range 100 {
				group.Go(func() {
					resp, err := client.Get(url)
					if assert.NoError(t, err) {
						resp.Body.Close()
					}
				})
			}
			group.Wait()
			require.EqualValues(t, 100, served.Load())
			require.GreaterOrEqual(t, mock.Since(start), 8*time.Second)
			client.CloseIdleConnections()
		})
	})
	t.Run("the middleware and the transport are of one mind", agree)
}

// agree lets a transport read the fields of middleware with a smaller limit.
func agree(t *testing.T) {
	mock := new(waittest.Clock)
	limit, err := httplimit.New(httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.4}, tokenbucket.WithClock(mock))))
	require.NoError(t, err)
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	onLoopback(t, handler.ServeHTTP, func(t *testing.T, url string, base http.RoundTripper) {
		for _, opt := range []httplimit.TransportOption{httplimit.WithRateLimitFields(), httplimit.WithRetries(1)} {
			bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 5, RefillPerSec: 10}, tokenbucket.WithClock(mock))
			transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithBase(base), httplimit.WithTransportClock(mock), opt)
			require.NoError(t, err)
			advance(t, mock, bucket)
			mock.Add(time.Minute)
			for range 10 {
				resp, err := (&http.Client{Transport: transport}).Get(url)
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, http.StatusOK, resp.StatusCode, "it never sees a refusal")
			}
		}
	})
}

// A request that is cancelled while the server works ends with the base's error.
func TestTransportCancelledOnTheWay(t *testing.T) {
	inMemory(t, 0, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(t *testing.T, base *http.Transport) {
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(base), httplimit.WithRetries(3))
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(5*time.Second, func() { cancel(errors.New("enough")) })
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		start := time.Now()
		_, err = (&http.Client{Transport: transport}).Do(req)
		require.Error(t, err)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}
