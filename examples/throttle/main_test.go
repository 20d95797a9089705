package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/iolimit"
)

func TestServesAndStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, "127.0.0.1:0", "", iolimit.BytesPerSecond(100e6), iolimit.BytesPerSecond(100e6), newProgress(out, false))
		out.Close()
	}()
	lines := bufio.NewScanner(printed)
	var address string
	for address == "" && lines.Scan() {
		address = regexp.MustCompile(`http://\S+/bytes/5000000`).FindString(lines.Text())
	}
	go func() {
		for lines.Scan() { // discard the rest of its output
		}
	}()
	answer, err := http.Get(address)
	require.NoError(t, err)
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	require.EqualValues(t, 5_000_000, n)
	stop()
	require.NoError(t, <-done)
}

// After an upgrade the proxy passes bytes in both directions, and limits both.
func TestUpgradedConnectionsAreLimited(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(c, both, 5)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	slow := iolimit.BytesPerSecond(1e-6) // after 4,096 bytes at once
	proxy, err := newThrottle(target, slow, slow, newProgress(io.Discard, false))
	require.NoError(t, err)
	server := httptest.NewServer(proxy)
	defer server.Close()

	r, err := http.NewRequest("GET", server.URL, nil)
	require.NoError(t, err)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	answer, err := server.Client().Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, answer.StatusCode)
	body := answer.Body.(io.ReadWriteCloser)
	defer body.Close()
	_, err = io.WriteString(body, "hello")
	require.NoError(t, err)
	echo, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(echo))
	require.InDelta(t, 4096-10, proxy.total.Tokens(), 1e-3, "five bytes there and five back")
}
