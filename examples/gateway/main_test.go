package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
)

func TestRetryAfterHolds(t *testing.T) {
	mock := clock.NewMock()
	handler, err := newHandler(mock)
	require.NoError(t, err)
	addr := "192.0.2.1:1234"
	get := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = addr
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, 200, get("/export").Code)
	read := get("/read")
	require.Equal(t, 200, read.Code)
	require.Equal(t, "10", read.Header().Get("X-RateLimit-Limit"))
	require.Equal(t, "4", read.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, "12", read.Header().Get("X-RateLimit-Reset"))
	require.Empty(t, read.Header().Get("Retry-After"))

	refused := get("/export")
	require.Equal(t, 429, refused.Code)
	require.Equal(t, "2", refused.Header().Get("Retry-After"))
	seconds, err := strconv.Atoi(refused.Header().Get("Retry-After"))
	require.NoError(t, err)
	mock.Add(time.Duration(seconds) * time.Second)
	require.Equal(t, 200, get("/export").Code)
	addr = "192.0.2.2:1234"
	require.Equal(t, "5", get("/export").Header().Get("X-RateLimit-Remaining"), "another client")
}

func TestServesAndStopsCleanly(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	printed, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, "127.0.0.1:0", out)
		out.Close()
	}()
	lines := bufio.NewScanner(printed)
	var url string
	for url == "" && lines.Scan() {
		url = regexp.MustCompile(`http://\S+/export`).FindString(lines.Text())
	}
	go func() {
		for lines.Scan() { // what else it prints
		}
	}()
	answer, err := http.Get(url)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	stop()
	require.NoError(t, <-done)
}

func TestAddressInUse(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	require.Error(t, serve(context.Background(), server.Listener.Addr().String(), io.Discard))
}
