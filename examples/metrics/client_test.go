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

// roundTripper is a server that a function is.
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

func TestOutcomesOfAGRPCClient(t *testing.T) {
	c := newPrometheus(t)
	intercept, err := grpclimit.UnaryClientInterceptor(httplimit.AllHosts(tokenbucket.MustNew(slow)),
		grpclimit.WithClientObserver(metrics.GRPCClient(c, "api")))
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:///api", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	refusal, err := status.New(codes.ResourceExhausted, "too fast").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	require.NoError(t, err)
	for _, answer := range []error{nil, refusal.Err()} {
		invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return answer }
		require.Equal(t, answer, intercept(t.Context(), "/a.B/C", nil, nil, conn, invoke))
	}
	require.Equal(t, []string{
		`decisions_total{limit="",limiter="api",outcome="admitted"} 2`,
		`pauses_total{limiter="api",reason="server"} 1`,
	}, samples(t, c, "decisions", "pauses"))
}

// The interceptors may come to report waits that failed.
func TestRefusalOfAGRPCClient(t *testing.T) {
	c := newPrometheus(t)
	metrics.GRPCClient(c, "api")(grpclimit.ClientEvent{Err: tokenbucket.ErrTooManyWaiters})
	require.Equal(t, []string{`decisions_total{limit="",limiter="api",outcome="refused"} 1`}, samples(t, c, "decisions"))
}
