package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// exchange sends a request over a new connection and returns the whole answer, without its date.
func exchange(t *testing.T, server *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request+" HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	text = regexp.MustCompile(`Date: .*\r\n`).ReplaceAll(text, nil)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

func TestOnTheWire(t *testing.T) {
	bucket := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)), tokenbucket.WithTokens(6))
	g := newGatewayOf(t, httplimit.Shared(bucket), prices)
	server := httptest.NewServer(g.handler)
	defer server.Close()
	require.Equal(t, `HTTP/1.1 200 OK
Ratelimit: "default";r=1;t=2
Ratelimit-Policy: "default";q=10;w=20
X-Ratelimit-Limit: 10
X-Ratelimit-Remaining: 1
X-Ratelimit-Reset: 18
Content-Length: 2
Content-Type: text/plain; charset=utf-8
Connection: close

ok`, exchange(t, server, "GET /export"))
	require.Equal(t, `HTTP/1.1 429 Too Many Requests
Cache-Control: no-store
Content-Type: application/problem+json
Ratelimit: "default";r=1;t=8
Ratelimit-Policy: "default";q=10;w=20
Retry-After: 8
X-Ratelimit-Limit: 10
X-Ratelimit-Remaining: 1
X-Ratelimit-Reset: 18
Content-Length: 195
Connection: close

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,`+
		`"detail":"Tokens needed: 5, left: 1. Retry in 8 s.","violated-policies":["default"]}`, exchange(t, server, "GET /export"))
	head := exchange(t, server, "HEAD /export")
	require.Contains(t, head, "429")
	require.NotContains(t, head, "{", "no body for HEAD")
	require.Equal(t, 1, g.served)
}

func TestResponseWriterIsNotWrapped(t *testing.T) {
	w := httptest.NewRecorder()
	called := false
	newMiddleware(t, fixed{OK: true})(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		called = true
		require.Same(t, w, got)
	})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.True(t, called)
}

// startServer starts a server with the handler behind middleware that admits ten
// requests.
func startServer(t *testing.T, http2 bool, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])))(handler))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestControllerWorksBehind(t *testing.T) { // keel#286, chi#544
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", http2), func(t *testing.T) {
			received := make(chan struct{})
			server := startServer(t, http2, func(w http.ResponseWriter, _ *http.Request) {
				controller := http.NewResponseController(w)
				assert.NoError(t, controller.SetWriteDeadline(time.Now().Add(time.Minute)))
				assert.NoError(t, controller.SetReadDeadline(time.Now().Add(time.Minute)))
				_, readsFrom := w.(io.ReaderFrom)
				assert.Equal(t, !http2, readsFrom, "as the server's own has it")
				_, _ = io.WriteString(w, "first ")
				assert.NoError(t, controller.Flush())
				<-received
				_, err := io.Copy(w, strings.NewReader("second"))
				assert.NoError(t, err)
			})
			answer, err := server.Client().Get(server.URL)
			require.NoError(t, err)
			defer answer.Body.Close()
			require.Equal(t, http2, answer.ProtoMajor == 2)
			require.Equal(t, "9", answer.Header.Get("X-RateLimit-Remaining"))
			first := make([]byte, len("first "))
			_, err = io.ReadFull(answer.Body, first) // while the handler still runs
			require.NoError(t, err)
			close(received)
			rest, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, "first second", string(first)+string(rest))
		})
	}
}

func TestHijackWorksBehind(t *testing.T) {
	server := startServer(t, false, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
		assert.NoError(t, buffer.Flush())
	})
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "hijacked", string(text))
}

func TestWriteDeadlineIsObeyedBehind(t *testing.T) {
	failed := make(chan error, 1)
	server := startServer(t, false, func(w http.ResponseWriter, _ *http.Request) {
		controller := http.NewResponseController(w)
		assert.NoError(t, controller.SetWriteDeadline(time.Unix(1, 0))) // long past
		_, _ = io.WriteString(w, "too late")
		failed <- controller.Flush()
	})
	request, err := http.NewRequest("POST", server.URL, strings.NewReader("once")) // so that it is not sent again
	require.NoError(t, err)
	answer, err := server.Client().Do(request)
	if err == nil {
		answer.Body.Close()
	}
	require.Error(t, <-failed)
}

func TestRefusedOverHTTP2(t *testing.T) {
	bucket := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)), tokenbucket.WithTokens(0))
	server := httptest.NewUnstartedServer(newMiddleware(t, httplimit.Shared(bucket))(http.NotFoundHandler()))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 2, answer.ProtoMajor)
	require.Equal(t, 429, answer.StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "20",
		"RateLimit": `"default";r=0;t=2`, "RateLimit-Policy": `"default";q=10;w=20`, "Retry-After": "2", "Cache-Control": "no-store",
	}, answer)
	require.Equal(t, 429.0, body(t, answer)["status"])
}

func TestManyAtOnce(t *testing.T) {
	middleware := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 50, RefillPerSec: 1e-6})))
	handler := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var mu sync.Mutex
	statuses := map[int]int{}
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			mu.Lock()
			defer mu.Unlock()
			statuses[w.Code]++
		})
	}
	group.Wait()
	require.Equal(t, map[int]int{200: 50, 429: 50}, statuses)
}

func TestUnixSocket(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}}, httplimit.WithTrustedProxies(netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")))
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: g.handler}}
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
	}}}
	for i, status := range []int{200, 429} {
		request, err := http.NewRequest("GET", "http://gateway/", nil)
		require.NoError(t, err)
		request.Header.Set("X-Forwarded-For", fmt.Sprint("203.0.113.", i))
		answer, err := client.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, status, answer.StatusCode, "all share one bucket: none is free")
	}
}
