package httplimit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
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

// Without a hold, the result depends on how goroutines are scheduled. So each test runs this
// many times.
const runs = 20

// crossing has a server that refuses "/refused" for two seconds, and requests that have
// left the clients' bucket but have not been written when the server does so.
type crossing struct {
	t      *testing.T
	clock  *waittest.Clock
	start  time.Time
	bucket *tokenbucket.Bucket
	server *httptest.Server

	mu    sync.Mutex
	reads []read // what the server read
}

type read struct {
	at   time.Duration
	body string
}

// onCrossings runs a test on many crossings of each protocol.
func onCrossings(t *testing.T, act func(t *testing.T, c *crossing)) {
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			for range runs {
				c := &crossing{t: t, clock: new(waittest.Clock)}
				c.start = c.clock.Now()
				c.bucket = tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, tokenbucket.WithClock(c.clock))
				c.server = startSecureServer(t, proto, c.serve)
				act(t, c)
				c.server.Close()
			}
		})
	}
}

func (c *crossing) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	assert.NoError(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = append(c.reads, read{c.clock.Since(c.start), string(body)})
	if r.URL.Path == "/refused" {
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func (c *crossing) readSoFar() []read {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// base returns a transport that knows the server's certificate and dials with the given
// function, or at once if it is nil.
func (c *crossing) base(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	base := c.server.Client().Transport.(*http.Transport).Clone()
	base.DialContext = dial
	c.t.Cleanup(base.CloseIdleConnections)
	return base
}

func (c *crossing) client(base http.RoundTripper, opts ...httplimit.TransportOption) *http.Client {
	opts = append(opts, httplimit.WithBase(base), httplimit.WithTransportClock(c.clock))
	transport, err := httplimit.NewTransport(httplimit.AllHosts(c.bucket), opts...)
	require.NoError(c.t, err)
	return &http.Client{Transport: transport}
}

func (c *crossing) get(client *http.Client, path string, status int) {
	resp, err := client.Get(c.server.URL + path)
	if assert.NoError(c.t, err) {
		resp.Body.Close()
		assert.Equal(c.t, status, resp.StatusCode)
	}
}

// until waits until other goroutines have made a condition true.
func (c *crossing) until(done func() bool) {
	c.t.Helper()
	require.Eventually(c.t, done, time.Minute, 100*time.Microsecond)
}

// requireHeld lets the pause end, and checks that n requests are held until then.
func (c *crossing) requireHeld(n int) {
	c.t.Helper()
	c.until(func() bool { return c.bucket.Waiting() == n })
	require.Len(c.t, c.readSoFar(), 1)
	c.clock.Add(2*time.Second - 1)
	require.Equal(c.t, n, c.bucket.Waiting())
	c.clock.Add(1)
}

func (c *crossing) requireReadAtTheEnd(n int) {
	c.t.Helper()
	reads := c.readSoFar()[1:]
	require.Len(c.t, reads, n)
	for _, r := range reads {
		require.Equal(c.t, 2*time.Second, r.at)
	}
	require.Zero(c.t, c.bucket.Tokens(), "held requests have paid already")
}

// gated is a base that passes requests on when a gate is opened.
func gated(gate <-chan struct{}, base http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		<-gate
		return base.RoundTrip(req)
	})
}

// Nine requests have left the bucket and still dial when a tenth is refused.
func TestTransportPauseHoldsRequestsThatStillDial(t *testing.T) {
	onCrossings(t, func(t *testing.T, c *crossing) {
		gate := make(chan struct{})
		slow := c.client(c.base(func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-gate
			return new(net.Dialer).DialContext(ctx, network, addr)
		}))
		var group sync.WaitGroup
		for range 9 {
			group.Go(func() { c.get(slow, "/", 200) })
		}
		c.until(func() bool { return c.bucket.Tokens() == 1 })
		c.get(c.client(c.base(nil)), "/refused", 429)
		close(gate)
		c.requireHeld(9)
		group.Wait()
		c.requireReadAtTheEnd(9)
	})
}

// Nine requests have left the bucket and wait for the only connection when the tenth is
// refused. One of them is held on it, the others behind it.
func TestTransportPauseHoldsRequestsThatWaitForAConnection(t *testing.T) {
	onCrossings(t, func(t *testing.T, c *crossing) {
		base, gate := c.base(nil), make(chan struct{})
		base.MaxConnsPerHost = 1
		client := c.client(roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path != "/refused" {
				<-gate
			}
			return base.RoundTrip(req)
		}))
		var group sync.WaitGroup
		for range 9 {
			group.Go(func() { c.get(client, "/", 200) })
		}
		c.until(func() bool { return c.bucket.Tokens() == 1 })
		c.get(client, "/refused", 429)
		close(gate)
		held := 1
		if c.server.EnableHTTP2 {
			held = 9 // they share it
		}
		c.requireHeld(held)
		group.Wait()
		c.requireReadAtTheEnd(9)
	})
}

// The context of a held request ends: the server never reads it.
func TestTransportCancelledWhileHeld(t *testing.T) {
	enough := errors.New("enough")
	for name, how := range map[string]struct {
		wrap   func(base http.RoundTripper) http.RoundTripper
		header string
		body   string
	}{
		"alone":                     {func(b http.RoundTripper) http.RoundTripper { return b }, "", ""},
		"with a body":               {func(b http.RoundTripper) http.RoundTripper { return b }, "", strings.Repeat("text", 50_000)},
		"with a header beyond 4 KB": {func(b http.RoundTripper) http.RoundTripper { return b }, strings.Repeat("a", 10_000), ""},
		"as a copy": {func(b http.RoundTripper) http.RoundTripper {
			return roundTripFunc(func(req *http.Request) (*http.Response, error) { return b.RoundTrip(req.Clone(req.Context())) })
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			onCrossings(t, func(t *testing.T, c *crossing) {
				gate, base := make(chan struct{}), c.base(nil)
				client := c.client(gated(gate, how.wrap(base)))
				ctx, cancel := context.WithCancelCause(context.Background())
				var group sync.WaitGroup
				group.Go(func() {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.URL, strings.NewReader(how.body))
					assert.NoError(t, err)
					req.Header.Set("X-Test", how.header)
					_, err = client.Transport.RoundTrip(req)
					assert.Equal(t, enough, err)
				})
				c.until(func() bool { return c.bucket.Tokens() == 9 })
				c.bucket.Pause(time.Hour)
				close(gate)
				c.until(func() bool { return c.bucket.Waiting() == 1 })
				cancel(enough)
				group.Wait()
				base.CloseIdleConnections()
				c.server.Close() // waits for the handlers
				require.Empty(t, c.readSoFar())
				require.Zero(t, c.bucket.Waiting())
			})
		})
	}
}

// A request that is cancelled may lose only its own HTTP/1 connection.
func TestTransportCancelledWhileHeldLeavesOtherRequestsAlone(t *testing.T) {
	onCrossings(t, func(t *testing.T, c *crossing) {
		base, gate := c.base(nil), make(chan struct{})
		free := c.client(base, httplimit.WithTransportCost(func(*http.Request) float64 { return 0 }))
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server.URL, nil)
			assert.NoError(t, err)
			_, err = c.client(gated(gate, base)).Do(req)
			assert.ErrorIs(t, err, context.Canceled)
		})
		c.until(func() bool { return c.bucket.Tokens() == 9 })
		c.bucket.Pause(time.Hour)
		c.get(free, "/", 200) // free requests are not held
		close(gate)
		c.until(func() bool { return c.bucket.Waiting() == 1 })
		cancel()
		group.Wait()
		var reused bool
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
		}), http.MethodGet, c.server.URL, nil)
		require.NoError(t, err)
		resp, err := free.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, c.server.EnableHTTP2, reused)
		require.Len(t, c.readSoFar(), 2)
	})
}

// The server closes the connection on which a request is held, after a second. The
// request is sent again if its body can be read again, and does not pay again.
func TestTransportSendsAgainWhatWasHeldTooLong(t *testing.T) {
	for _, row := range []struct {
		name string
		body func() io.Reader
		text string
		sent bool
	}{
		{"without a body", func() io.Reader { return nil }, "", true},
		{"with a body", func() io.Reader { return strings.NewReader("text") }, "text", true},
		{"with a body that cannot be had twice", func() io.Reader { return onlyReader{strings.NewReader("text")} }, "text", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			start, reads := time.Time{}, []read(nil)
			inMemory(t, time.Second, func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				reads = append(reads, read{time.Since(start), string(body)})
			}, func(t *testing.T, base *http.Transport) {
				start, reads = time.Now(), nil
				bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1})
				tries := 0
				transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
					if tries++; tries == 1 {
						bucket.Pause(2 * time.Second)
					}
					return base.RoundTrip(req)
				})))
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: transport}).Post(exampleURL, "text/plain", row.body())
				if !row.sent && err != nil {
					require.Empty(t, reads)
					require.Equal(t, 1, tries)
					return
				}
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, []read{{2 * time.Second, row.text}}, reads)
				require.Zero(t, bucket.Tokens())
			})
		})
	}
}

// In virtual time, dials take 300 ms, and the refusal comes during that time.
func TestTransportPauseHoldsSlowDials(t *testing.T) {
	var mu sync.Mutex
	var start time.Time
	var reads []time.Duration
	handler := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		reads = append(reads, time.Since(start))
		if r.URL.Path == "/refused" {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	inMemory(t, 0, handler, func(t *testing.T, base *http.Transport) {
		start, reads = time.Now(), nil
		hosts, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1})
		require.NoError(t, err)
		slow := base.Clone()
		slow.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(300 * time.Millisecond)
			return base.DialContext(ctx, network, addr)
		}
		defer slow.CloseIdleConnections()
		get := func(base http.RoundTripper, path string) {
			transport, err := httplimit.NewTransport(hosts, httplimit.WithBase(base))
			assert.NoError(t, err)
			resp, err := (&http.Client{Transport: transport}).Get(exampleURL + path)
			if assert.NoError(t, err) {
				resp.Body.Close()
			}
		}
		var group sync.WaitGroup
		for range 9 {
			group.Go(func() { get(slow, "") })
		}
		synctest.Wait()
		get(base, "refused")
		group.Wait()
		require.Len(t, reads, 10)
		for _, at := range reads[1:] {
			require.Equal(t, 2*time.Second, at)
		}
		require.Zero(t, hosts.Tokens("api.example.com"))
	})
}

// A caller sees its own request in the answer, and its own hooks are called.
func TestTransportHoldIsNotSeen(t *testing.T) {
	onLoopback(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, url string, base http.RoundTripper) {
		transport, err := httplimit.NewTransport(httplimit.AllHosts(tokenbucket.MustNew(oneASecond)), httplimit.WithBase(base))
		require.NoError(t, err)
		var hooks []string
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			GotConn:      func(httptrace.GotConnInfo) { hooks = append(hooks, "GotConn") },
			WroteHeaders: func() { hooks = append(hooks, "WroteHeaders") },
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Same(t, req, resp.Request)
		require.Equal(t, []string{"GotConn", "WroteHeaders"}, hooks)
	})
}

// hooked returns a Transport with an observer, whose base calls the hooks of net/http by itself.
func hooked(t *testing.T, bucket *tokenbucket.Bucket, o *observer, base func(*http.Request, *httptrace.ClientTrace) (*http.Response, error), opts ...httplimit.TransportOption) *httplimit.Transport {
	t.Helper()
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), append(opts, o.option(),
		httplimit.WithBase(roundTripFunc(func(req *http.Request) (*http.Response, error) {
			return base(req, httptrace.ContextClientTrace(req.Context()))
		})))...)
	require.NoError(t, err)
	return transport
}

// The base writes to a connection that the server has closed, and takes another one. That one
// is closed while the request is held on it, before anything is written to it.
func TestTransportHeldOnSeveralConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observer
		bucket, tries, another := tokenbucket.MustNew(oneASecond), 0, new(http.Request)
		transport := hooked(t, bucket, &o, func(_ *http.Request, hooks *httptrace.ClientTrace) (*http.Response, error) {
			tries++
			bucket.Pause(time.Second)
			hooks.GotConn(httptrace.GotConnInfo{})
			hooks.WroteHeaders()
			if tries == 2 {
				return &http.Response{StatusCode: 200, Request: another}, nil
			}
			bucket.Pause(time.Second)
			hooks.GotConn(httptrace.GotConnInfo{})
			return nil, io.ErrUnexpectedEOF
		})
		req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.Same(t, another, resp.Request)
		require.Equal(t, 2, tries)
		require.Equal(t, 3*time.Second, o.events[0].Waited)
	})
}

// A pause does not hold a request that costs 0, but it holds its retries.
func TestTransportHoldsTheRetryOfAFreeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observer
		var held []time.Duration
		bucket := tokenbucket.MustNew(oneASecond)
		transport := hooked(t, bucket, &o, func(_ *http.Request, hooks *httptrace.ClientTrace) (*http.Response, error) {
			since := time.Now()
			bucket.Pause(3 * time.Second)
			if hooks != nil {
				hooks.GotConn(httptrace.GotConnInfo{})
			}
			held = append(held, time.Since(since))
			return &http.Response{StatusCode: 429}, nil
		}, httplimit.WithRetries(1), httplimit.WithTransportCost(func(*http.Request) float64 { return 0 }))
		req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, 3 * time.Second}, held)
	})
}

func TestTransportDoesNotSendAgain(t *testing.T) {
	for name, fail := range map[string]func(b *tokenbucket.Bucket, hooks *httptrace.ClientTrace, cancel func()){
		"what was not held": func(_ *tokenbucket.Bucket, hooks *httptrace.ClientTrace, _ func()) {
			hooks.GotConn(httptrace.GotConnInfo{})
		},
		"what was written": func(b *tokenbucket.Bucket, hooks *httptrace.ClientTrace, _ func()) {
			b.Pause(time.Second)
			hooks.GotConn(httptrace.GotConnInfo{})
			hooks.WroteHeaders()
		},
		"what was cancelled after the hold": func(b *tokenbucket.Bucket, hooks *httptrace.ClientTrace, cancel func()) {
			b.Pause(time.Second)
			hooks.GotConn(httptrace.GotConnInfo{})
			cancel()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var o observer
			bucket, tries := tokenbucket.MustNew(oneASecond), 0
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			transport := hooked(t, bucket, &o, func(_ *http.Request, hooks *httptrace.ClientTrace) (*http.Response, error) {
				if tries++; tries == 1 {
					fail(bucket, hooks, cancel)
				}
				return nil, io.ErrUnexpectedEOF
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, exampleURL, nil)
			require.NoError(t, err)
			_, err = transport.RoundTrip(req)
			require.Equal(t, io.ErrUnexpectedEOF, err, name)
			require.Equal(t, 1, tries, name)
		})
	}
}

// closable is a connection that can only be closed.
type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// secure is a connection that carries a protocol over TLS.
type secure struct {
	*closable
	protocol string
}

func (s secure) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{NegotiatedProtocol: s.protocol}
}

// Closing the connection keeps a held request whose context has ended from the server.
// Over HTTP/2, the connection may carry other requests.
func TestTransportClosesOnlyConnectionsOfOneRequest(t *testing.T) {
	for name, row := range map[string]struct {
		conn   func(c *closable) net.Conn
		cancel bool
		closed bool
	}{
		"HTTP/1":                {func(c *closable) net.Conn { return c }, true, true},
		"HTTP/1 over TLS":       {func(c *closable) net.Conn { return secure{c, "http/1.1"} }, true, true},
		"HTTP/2":                {func(c *closable) net.Conn { return secure{c, "h2"} }, true, false},
		"HTTP/1, not cancelled": {func(c *closable) net.Conn { return c }, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var o observer
			var c closable
			enough, failed := errors.New("enough"), errors.New("failed")
			bucket, tries := tokenbucket.MustNew(oneASecond), 0
			ctx, cancel := context.WithCancelCause(context.Background())
			transport := hooked(t, bucket, &o, func(_ *http.Request, hooks *httptrace.ClientTrace) (*http.Response, error) {
				if tries++; tries > 1 {
					return nil, failed
				}
				bucket.Pause(time.Hour)
				if row.cancel {
					time.AfterFunc(time.Second, func() { cancel(enough) })
				}
				hooks.GotConn(httptrace.GotConnInfo{Conn: row.conn(&c)})
				hooks.WroteHeaders()
				return nil, failed
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, exampleURL, nil)
			require.NoError(t, err)
			_, err = transport.RoundTrip(req)
			require.Equal(t, row.closed, c.closed, name)
			if row.cancel {
				require.Equal(t, enough, err, name)
			} else {
				require.Equal(t, failed, err, name)
			}
			cancel(nil)
		})
	}
}

// A base may report no connection.
func TestHoldWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(oneASecond)
		transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithBase(roundTripFunc(func(r *http.Request) (*http.Response, error) {
			bucket.Pause(time.Hour)
			hooks := httptrace.ContextClientTrace(r.Context())
			hooks.GotConn(httptrace.GotConnInfo{})
			hooks.WroteHeaders()
			return nil, r.Context().Err()
		})))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://a.example/", nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
