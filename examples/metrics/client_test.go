package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/metrics"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// oneASecond is a bucket of one token, refilled every second.
var oneASecond = tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}

// roundTripper is a function that acts as a server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newHosts(t *testing.T) *metrics.Hosts {
	buckets, err := keyed.New[string](oneASecond)
	require.NoError(t, err)
	return metrics.NewHosts(buckets)
}

func get(ctx context.Context, t *testing.T, transport http.RoundTripper) error {
	request, err := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(request)
	return err
}

func TestOutcomesOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, failure := newPrometheus(t), error(nil)
		answer := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
		transport, err := httplimit.NewTransport(newHosts(t), httplimit.WithTransportObserver(metrics.Client(c, "api")),
			httplimit.WithBase(roundTripper(func(*http.Request) (*http.Response, error) { return answer, failure })))
		require.NoError(t, err)

		require.NoError(t, get(t.Context(), t, transport)) // at once
		require.NoError(t, get(t.Context(), t, transport)) // after a second
		hurried, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		require.Error(t, get(hurried, t, transport)) // refused, since its wait is a second
		failure = errors.New("connection refused")
		require.Error(t, get(t.Context(), t, transport)) // after a second
		require.Equal(t, []string{
			`decisions_total{limit="",limiter="api",outcome="admitted"} 2`,
			`decisions_total{limit="",limiter="api",outcome="error"} 1`,
			`decisions_total{limit="",limiter="api",outcome="refused"} 1`,
			`tokens_total{limit="",limiter="api",outcome="admitted"} 2`,
			`tokens_total{limit="",limiter="api",outcome="error"} 1`,
			`tokens_total{limit="",limiter="api",outcome="refused"} 1`,
			`wait_duration_seconds_sum{limiter="api",outcome="admitted"} 1`,
			`wait_duration_seconds_count{limiter="api",outcome="admitted"} 2`,
			`wait_duration_seconds_sum{limiter="api",outcome="error"} 1`,
			`wait_duration_seconds_count{limiter="api",outcome="error"} 1`,
			`wait_duration_seconds_sum{limiter="api",outcome="refused"} 1`,
			`wait_duration_seconds_count{limiter="api",outcome="refused"} 1`,
		}, samples(t, c, "decisions", "tokens", "wait"))
	})
}

func TestPausesOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrometheus(t)
		answer := &http.Response{StatusCode: 429, Header: http.Header{}, Body: http.NoBody}
		transport, err := httplimit.NewTransport(newHosts(t), httplimit.WithTransportObserver(metrics.Client(c, "api")),
			httplimit.WithBase(roundTripper(func(*http.Request) (*http.Response, error) { return answer, nil })))
		require.NoError(t, err)
		require.NoError(t, get(t.Context(), t, transport))
		answer.Header.Set("Retry-After", "5")
		require.NoError(t, get(t.Context(), t, transport))
		require.NoError(t, get(t.Context(), t, transport))
		require.Equal(t, []string{
			`pauses_total{limiter="api",reason="default_pause"} 1`,
			`pauses_total{limiter="api",reason="retry-after"} 2`,
		}, samples(t, c, "pauses"))
	})
}

func TestWaitingNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, hosts := newPrometheus(t), newHosts(t)
		require.NoError(t, c.watch("api", hosts.Len, hosts.Waiters))
		require.NoError(t, hosts.Wait(t.Context(), "a", 1))
		hosts.Pause("b", time.Minute)
		go func() { _ = hosts.Wait(t.Context(), "a", 1) }()
		go func() { _ = hosts.WaitEach(t.Context(), "a", 1) }()
		go func() { _, _ = hosts.WaitPause(t.Context(), "b") }()
		synctest.Wait()
		require.Equal(t, []string{`keys{limiter="api"} 2`, `waiting_requests{limiter="api"} 3`}, samples(t, c, "keys", "waiting"))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{`waiting_requests{limiter="api"} 2`}, samples(t, c, "waiting"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{`waiting_requests{limiter="api"} 0`}, samples(t, c, "waiting"))
	})
}

// dial returns a function that makes calls with an interceptor and gets the given answer.
func dial(t *testing.T, c collector, buckets httplimit.HostBuckets) func(ctx context.Context, answer error) error {
	intercept, err := grpclimit.UnaryClientInterceptor(buckets, grpclimit.WithClientObserver(metrics.GRPCClient(c, "api")),
		grpclimit.WithClientCosts(tokenbucket.Costs{"/a.B/C": 0.5}))
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:///api", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return func(ctx context.Context, answer error) error {
		return intercept(ctx, "/a.B/C", nil, nil, conn, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return answer })
	}
}

func TestOutcomesOfAGRPCClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrometheus(t)
		call := dial(t, c, httplimit.AllHosts(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 0.5, RefillPerSec: 0.5})))
		missing := status.Error(codes.NotFound, "not found")
		require.NoError(t, call(t.Context(), nil))
		require.Equal(t, missing, call(t.Context(), missing), "after a second")
		hurried, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		require.Error(t, call(hurried, nil), "its wait is a second")
		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, stop)
		require.ErrorIs(t, call(canceled, nil), context.Canceled)
		require.Equal(t, []string{
			`decisions_total{limit="",limiter="api",outcome="admitted"} 2`,
			`decisions_total{limit="",limiter="api",outcome="error"} 1`,
			`decisions_total{limit="",limiter="api",outcome="refused"} 1`,
			`tokens_total{limit="",limiter="api",outcome="admitted"} 1`,
			`tokens_total{limit="",limiter="api",outcome="error"} 0.5`,
			`tokens_total{limit="",limiter="api",outcome="refused"} 0.5`,
			`wait_duration_seconds_sum{limiter="api",outcome="admitted"} 1`,
			`wait_duration_seconds_count{limiter="api",outcome="admitted"} 2`,
			`wait_duration_seconds_sum{limiter="api",outcome="error"} 0.5`,
			`wait_duration_seconds_count{limiter="api",outcome="error"} 1`,
			`wait_duration_seconds_sum{limiter="api",outcome="refused"} 1`,
			`wait_duration_seconds_count{limiter="api",outcome="refused"} 1`,
		}, samples(t, c, "decisions", "tokens", "wait"))
	})
}

func TestPausesOfAGRPCClient(t *testing.T) {
	c := newPrometheus(t)
	refusal, err := status.New(codes.ResourceExhausted, "too fast").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	require.NoError(t, err)
	require.Equal(t, refusal.Err(), dial(t, c, httplimit.AllHosts(tokenbucket.MustNew(slow)))(t.Context(), refusal.Err()))
	metrics.GRPCClient(c, "api")(grpclimit.ClientEvent{Ended: true, Pause: time.Second, Err: refusal.Err()}) // the stream was counted before
	require.Equal(t, []string{
		`decisions_total{limit="",limiter="api",outcome="admitted"} 1`,
		`pauses_total{limiter="api",reason="server"} 2`,
	}, samples(t, c, "decisions", "pauses"))
}

// Each limit has tokens of its own kind.
func TestTokensOfAClientByLimit(t *testing.T) {
	forEachCollector(t, func(t *testing.T, c collector) {
		bucket := tokenbucket.MustNew(slow, tokenbucket.WithLimit(slow), tokenbucket.WithLimit(slow))
		answer := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
		transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket),
			httplimit.WithTransportObserver(metrics.Client(c, "llm", "requests", "tokens")),
			httplimit.WithTransportCostEach(func(*http.Request) []float64 { return []float64{1, 2.5, 0.25} }),
			httplimit.WithBase(roundTripper(func(*http.Request) (*http.Response, error) { return answer, nil })))
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, get(t.Context(), t, transport))
		}
		require.Equal(t, []string{
			`decisions_total{limit="",limiter="llm",outcome="admitted"} 2`,
			`tokens_total{limit="limit-3",limiter="llm",outcome="admitted"} 0.5`,
			`tokens_total{limit="requests",limiter="llm",outcome="admitted"} 2`,
			`tokens_total{limit="tokens",limiter="llm",outcome="admitted"} 5`,
		}, samples(t, c, "decisions", "tokens"))
	})
}
