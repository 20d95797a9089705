package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// start serves on two ports and returns their URLs.
func start(t *testing.T, server string) (urls []string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	printed, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, []string{"127.0.0.1:0", "127.0.0.1:0"}, server, out)
		out.Close()
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	lines := bufio.NewScanner(printed)
	for len(urls) < 2 && lines.Scan() {
		if url := regexp.MustCompile(`http://\S+`).FindString(lines.Text()); url != "" {
			urls = append(urls, url)
		}
	}
	require.Len(t, urls, 2)
	go func() {
		for lines.Scan() { // discard the rest of its output
		}
	}()
	return urls
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer
}

func TestAlternatingBetweenPortsSeesOneBucket(t *testing.T) {
	urls := start(t, miniredis.RunT(t).Addr())
	require.Equal(t, 200, get(t, urls[0]).StatusCode)
	second := get(t, urls[1])
	require.Equal(t, 200, second.StatusCode)
	require.Equal(t, "0", second.Header.Get("X-RateLimit-Remaining"))
	for i := range 4 {
		refused := get(t, urls[i%2])
		require.Equal(t, 429, refused.StatusCode)
		require.Regexp(t, "^(9|10)$", refused.Header.Get("Retry-After"))
	}
}

func TestRequestsUnderWayMayFinish(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	finished := false
	served := make(chan error, 1)
	go func() {
		served <- serveOne(ctx, listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			stop()
			time.Sleep(100 * time.Millisecond) // a server that does not wait for its requests ends earlier
			finished = true
		}))
	}()
	require.Equal(t, 200, get(t, "http://"+listener.Addr().String()).StatusCode)
	require.NoError(t, <-served)
	require.True(t, finished)
}

func TestNoRedis(t *testing.T) {
	err := serve(context.Background(), []string{"127.0.0.1:0"}, "127.0.0.1:1", io.Discard)
	require.ErrorContains(t, err, "redis-server")
}
