package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/iolimit"
)

// tripper is an upstream server without a network, so that a bubble's time is exact.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// direct sends requests to a handler.
func direct(handler http.Handler) tripper {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		answer := w.Result()
		answer.Request = r
		return answer, nil
	}
}

// newTestThrottle returns a proxy of 10 kB per second for each client and 15 kB in total.
func newTestThrottle(t *testing.T, out *progress) *throttle {
	upstream, err := url.Parse("http://upstream.example")
	require.NoError(t, err)
	proxy, err := newThrottle(upstream, iolimit.BytesPerSecond(10e3), iolimit.BytesPerSecond(15e3), out)
	require.NoError(t, err)
	proxy.proxy.Transport = direct(newOrigin())
	return proxy
}

// fetch downloads 104,096 bytes. It returns how many arrived, and how long that took.
func fetch(ctx context.Context, h http.Handler, client string) (n int, took time.Duration) {
	start, w := time.Now(), httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/bytes/104096", nil).WithContext(ctx)
	r.RemoteAddr = client + ":1234"
	func() {
		defer func() { _ = recover() }() // the proxy panics to end a connection
		h.ServeHTTP(w, r)
	}()
	return w.Body.Len(), time.Since(start)
}

// The proxy rejects an upgrade that the client has not asked for.
func TestAnAnswerThatTheProxyRejectsEnds(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the proxy closes it
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	out := newProgress(io.Discard, false)
	handler, err := newThrottle(target, iolimit.BytesPerSecond(1e6), iolimit.BytesPerSecond(1e6), out)
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 502, answer.Code)
	require.Empty(t, out.active)
}

func TestOneClientGetsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newTestThrottle(t, newProgress(io.Discard, false))
		n, took := fetch(t.Context(), proxy, "192.0.2.1")
		require.Equal(t, 104096, n)
		require.Equal(t, 10*time.Second, took, "4,096 bytes come at once")
	})
}

func TestClientsShareTheTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newTestThrottle(t, newProgress(io.Discard, false))
		took := make(chan time.Duration, 2)
		for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
			go func() {
				_, d := fetch(t.Context(), proxy, client)
				took <- d
			}()
		}
		first, last := <-took, <-took
		all := 2*104096.0 - 4096
		require.InDelta(t, all/15e3, last.Seconds(), 1e-6, "the total is used up to the end")
		require.InDelta(t, last.Seconds(), first.Seconds(), 0.5, "each gets half of it")
	})
}

func TestDownloadsOfAClientShareItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newTestThrottle(t, newProgress(io.Discard, false))
		took := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				_, d := fetch(t.Context(), proxy, "192.0.2.1")
				took <- d
			}()
		}
		last := max(<-took, <-took)
		require.InDelta(t, (2*104096.0-4096)/10e3, last.Seconds(), 1e-6)
	})
}

func TestClientThatGoesAwayTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := newTestThrottle(t, newProgress(io.Discard, false))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second+time.Millisecond, cancel)
		n, took := fetch(ctx, proxy, "192.0.2.1")
		require.Equal(t, time.Second+time.Millisecond, took)
		require.Less(t, n, 4096+10_000+4096)
		require.Zero(t, proxy.total.Waiting())
	})
}

func TestIdleClientsAreForgottenWhenTheirBucketsAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newClients(iolimit.BytesPerSecond(4096))
		const addr = "192.0.2.1"
		bucket, release := all.use(addr)
		bucket.TryAcquire(4096)
		release()
		same, release := all.use(addr)
		require.Same(t, bucket, same)
		time.Sleep(time.Second)
		same, releaseSame := all.use(addr)
		require.Same(t, bucket, same, "it is in use")
		release()
		releaseSame()
		_, release = all.use("192.0.2.2")
		release()
		require.Len(t, all.all, 1)
	})
}

func TestBadLimitsAndURLsAreErrors(t *testing.T) {
	good, out := iolimit.BytesPerSecond(1), newProgress(io.Discard, false)
	for _, bad := range []string{"127.0.0.1", "ftp://host", "/path"} {
		u, err := url.Parse(bad)
		require.NoError(t, err)
		_, err = newThrottle(u, good, good, out)
		require.ErrorContains(t, err, "choose a URL")
	}
	u := &url.URL{Scheme: "http", Host: "upstream.example"}
	_, err := newThrottle(u, iolimit.BytesPerSecond(0), good, out)
	require.ErrorContains(t, err, "for each client")
	_, err = newThrottle(u, good, iolimit.BytesPerSecond(-1), out)
	require.ErrorContains(t, err, "in total")
}

func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, true)
		ctx, cancel := context.WithCancel(t.Context())
		go p.drawUntil(ctx)
		n, _ := fetch(t.Context(), newTestThrottle(t, p), "192.0.2.1")
		cancel()
		synctest.Wait()
		require.Equal(t, 104096, n)
		text := out.String()
		require.Contains(t, text, "192.0.2.1       /bytes/104096            51.2 kB of 104 kB  49 %  10.7 kB/s\n\x1b[1A\x1b[J")
		require.True(t, strings.HasSuffix(text, "\x1b[1A\x1b[J192.0.2.1       /bytes/104096            104 kB of 104 kB 100 %   10.4 kB/s\n"), "%q", text)
		for row := range strings.SplitSeq(text, "\n") {
			require.Less(t, len(strings.TrimPrefix(row, "\x1b[1A\x1b[J")), 80)
		}
	})
}

func TestProgressElsewhereIsALineForEachDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, false)
		ctx, cancel := context.WithCancel(t.Context())
		go p.drawUntil(ctx)
		fetch(t.Context(), newTestThrottle(t, p), "192.0.2.1")
		cancel()
		require.Equal(t, "192.0.2.1       /bytes/104096            104 kB of 104 kB 100 %   10.4 kB/s\n", out.String())
	})
}

func TestProgressShowsNoControlCharacters(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, false)
	asked, err := url.Parse("http://upstream.example/%1b%5b2J")
	require.NoError(t, err)
	p.finish(p.start("192.0.2.1", asked, -1))
	require.NotContains(t, out.String(), "\x1b")
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 999: "999 B", 999.6: "1 kB", 1500: "1.5 kB", 999_499: "999 kB", 1e6: "1 MB", 5e12: "5 TB"} {
		require.Equal(t, want, size(bytes))
	}
}
