package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Four exports of 5 tokens on a bucket of 10: the third and the fourth have to wait 10 s.
func TestMetrics(t *testing.T) {
	clients, err := newClients(standard.limit, clock.NewMock())
	require.NoError(t, err)
	m := &metrics{keys: clients.Len}
	observed := standard
	observed.observe = m.observe
	handler, err := newHandler(observed, clients)
	require.NoError(t, err)
	for range 4 {
		client(handler, "GET", "192.0.2.1:1234")("/export")
	}
	client(handler, "GET", "192.0.2.2:1234")("/read")

	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	var samples []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	require.Equal(t, []string{
		`tokenbucket_decisions_total{limit="default",limiter="gateway",outcome="admitted"} 3`,
		`tokenbucket_decisions_total{limit="default",limiter="gateway",outcome="refused"} 2`,
		`tokenbucket_keys{limiter="gateway"} 2`,
		`tokenbucket_tokens_total{limit="default",limiter="gateway",outcome="admitted"} 11`,
		`tokenbucket_tokens_total{limit="default",limiter="gateway",outcome="refused"} 10`,
		`tokenbucket_wait_duration_seconds_sum{limiter="gateway",outcome="refused"} 20`,
		`tokenbucket_wait_duration_seconds_count{limiter="gateway",outcome="refused"} 2`,
	}, samples)
}

// A wait counts in each bucket of the histogram whose upper bound is not below the wait.
func TestHistogramOfWaits(t *testing.T) {
	m := &metrics{keys: func() int { return 0 }}
	for _, wait := range []time.Duration{0, 5 * time.Millisecond, 5*time.Millisecond + 1, time.Hour, time.Hour + 1, tokenbucket.Never} {
		m.observe(httplimit.Event{Refused: true, Decision: tokenbucket.Decision{Wait: wait}})
	}
	require.Equal(t, [...]int{2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4}, m.waits)
	require.Contains(t, string(m.text()), `le="+Inf"} 5`+"\n")
}

func TestMetricsHaveAnAddressOfTheirOwn(t *testing.T) {
	m := &metrics{keys: func() int { return 0 }}
	var out strings.Builder
	stop, err := m.start("127.0.0.1:0", &out)
	require.NoError(t, err)
	url := regexp.MustCompile(`http://\S+`).FindString(out.String())
	answer, err := http.Get(url)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, string(m.text()), string(text))
	require.NoError(t, stop())
	_, err = http.Get(url)
	require.Error(t, err)

	bad := standard
	bad.metrics = "127.0.0.1:http-no"
	require.ErrorContains(t, serve(t.Context(), "127.0.0.1:0", bad, io.Discard), "metrics: ")
}
