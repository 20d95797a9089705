package integrations_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocolly/colly/v2"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// server answers requests without a network, since a bubble must not use one.
type server func(*http.Request) *http.Response

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := s(r)
	answer.Request = r
	return answer, nil
}

func answer(status int, body string, fields ...string) *http.Response {
	header := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(fields); i += 2 {
		header.Set(fields[i], fields[i+1])
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

func newTransport(t *testing.T, bucket *tokenbucket.Bucket) *httplimit.Transport {
	t.Helper()
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket),
		httplimit.WithBase(server(func(*http.Request) *http.Response { return answer(200, `{}`) })))
	require.NoError(t, err)
	return transport
}

func TestResty(t *testing.T) {
	requireOneASecond(t, func(bucket *tokenbucket.Bucket) func() error {
		client := integrations.Resty(newTransport(t, bucket))
		return func() error {
			_, err := client.R().Get("http://api.example.com/")
			return err
		}
	})
}

func TestColly(t *testing.T) {
	requireOneASecond(t, func(bucket *tokenbucket.Bucket) func() error {
		collector := colly.NewCollector(colly.AllowURLRevisit())
		integrations.Colly(collector, newTransport(t, bucket))
		return func() error { return collector.Visit("http://example.com/") }
	})
}

func TestGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		base := server(func(*http.Request) *http.Response {
			if asked++; asked == 2 {
				return answer(403, `{"message": "You have exceeded a secondary rate limit."}`, "Retry-After", "30")
			}
			return answer(200, `{"login": "octocat"}`)
		})
		bucket := tokenbucket.MustNew(tokenbucket.PerSecond(1))
		client, err := integrations.GitHub(httplimit.AllHosts(bucket), httplimit.WithBase(base), httplimit.WithRetries(1))
		require.NoError(t, err)
		start := time.Now()
		for range 2 {
			user, _, err := client.Users.Get(t.Context(), "octocat")
			require.NoError(t, err)
			require.Equal(t, "octocat", user.GetLogin())
		}
		require.Equal(t, 3, asked)
		require.GreaterOrEqual(t, time.Since(start), 31*time.Second, "the second is sent after 1 s, and again 30 s later")
	})
}
