package metrics_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/metrics"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// slow is a limit that does not refill within a test: 10 tokens, then one in 1000 s.
var slow = tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.001}

// frozen is a clock that stands still.
type frozen struct{}

func (frozen) Now() time.Time                       { return time.Unix(1_800_000_000, 0) }
func (frozen) Since(start time.Time) time.Duration  { return frozen{}.Now().Sub(start) }
func (frozen) After(time.Duration) <-chan time.Time { return nil }

func newKeyed(t *testing.T) *keyed.Buckets[string] {
	b, err := keyed.New[string](slow, keyed.WithClock(frozen{}))
	require.NoError(t, err)
	return b
}

func newLimiter(t *testing.T) httplimit.Limiter { return httplimit.PerKey(newKeyed(t)) }

// down is a limiter whose store does not answer.
type down struct{}

func (down) Take(context.Context, string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{}, errors.New("no answer")
}

// ask sends requests with these costs, in tokens, to a server with the limiter.
func ask(t *testing.T, c collector, l httplimit.Limiter, costs []float64, opts ...httplimit.Option) {
	var cost float64
	opts = append(opts, httplimit.WithCost(func(*http.Request) float64 { return cost }),
		httplimit.WithObserver(metrics.Server(c, "customer", "everybody")))
	limit, err := httplimit.New(l, opts...)
	require.NoError(t, err)
	handler := limit(http.NotFoundHandler())
	for _, cost = range costs {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
}

func TestOutcomesOfAServer(t *testing.T) {
	shared := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 5, RefillPerSec: 0.001}, tokenbucket.WithClock(frozen{})))
	both := httplimit.Both(newLimiter(t).(httplimit.Refunder), shared)
	for name, s := range map[string]struct {
		limiter httplimit.Limiter
		costs   []float64
		opts    []httplimit.Option
		want    []string
	}{
		"admitted": {newLimiter(t), []float64{3, 0.5}, nil, []string{
			`decisions_total{limit="default",limiter="customer",outcome="admitted"} 2`,
			`tokens_total{limit="default",limiter="customer",outcome="admitted"} 3.5`,
		}},
		"refused": {newLimiter(t), []float64{10, 2}, nil, []string{
			`decisions_total{limit="default",limiter="customer",outcome="admitted"} 1`,
			`decisions_total{limit="default",limiter="customer",outcome="refused"} 1`,
			`tokens_total{limit="default",limiter="customer",outcome="admitted"} 10`,
			`tokens_total{limit="default",limiter="customer",outcome="refused"} 2`,
			`wait_duration_seconds_sum{limiter="customer",outcome="refused"} 2000`,
			`wait_duration_seconds_count{limiter="customer",outcome="refused"} 1`,
		}},
		"would be refused": {newLimiter(t), []float64{10, 2}, []httplimit.Option{httplimit.WithReportOnly()}, []string{
			`decisions_total{limit="default",limiter="customer",outcome="admitted"} 1`,
			`decisions_total{limit="default",limiter="customer",outcome="would_refuse"} 1`,
			`tokens_total{limit="default",limiter="customer",outcome="admitted"} 10`,
			`tokens_total{limit="default",limiter="customer",outcome="would_refuse"} 2`,
			`wait_duration_seconds_sum{limiter="customer",outcome="would_refuse"} 2000`,
			`wait_duration_seconds_count{limiter="customer",outcome="would_refuse"} 1`,
		}},
		"by the second limiter": {both, []float64{5, 1}, []httplimit.Option{httplimit.WithPolicyNames("day", "second")}, []string{
			`decisions_total{limit="second",limiter="everybody",outcome="admitted"} 1`,
			`decisions_total{limit="second",limiter="everybody",outcome="refused"} 1`,
			`tokens_total{limit="second",limiter="everybody",outcome="admitted"} 5`,
			`tokens_total{limit="second",limiter="everybody",outcome="refused"} 1`,
			`wait_duration_seconds_sum{limiter="everybody",outcome="refused"} 1000`,
			`wait_duration_seconds_count{limiter="everybody",outcome="refused"} 1`,
		}},
		"fallback": {down{}, []float64{10, 1}, []httplimit.Option{httplimit.WithFallback(newLimiter(t))}, []string{
			`decisions_total{limit="default",limiter="customer+everybody",outcome="fallback"} 1`,
			`decisions_total{limit="default",limiter="customer+everybody",outcome="refused"} 1`,
			`errors_total{limiter="customer+everybody"} 2`,
			`tokens_total{limit="default",limiter="customer+everybody",outcome="fallback"} 10`,
			`tokens_total{limit="default",limiter="customer+everybody",outcome="refused"} 1`,
			`wait_duration_seconds_sum{limiter="customer+everybody",outcome="refused"} 1000`,
			`wait_duration_seconds_count{limiter="customer+everybody",outcome="refused"} 1`,
		}},
		"error": {down{}, []float64{1}, nil, []string{
			`decisions_total{limit="",limiter="customer+everybody",outcome="error"} 1`,
			`errors_total{limiter="customer+everybody"} 1`,
			`tokens_total{limit="",limiter="customer+everybody",outcome="error"} 1`,
		}},
		"error, refused": {down{}, []float64{1}, []httplimit.Option{httplimit.WithFailClosed(time.Second)}, []string{
			`decisions_total{limit="",limiter="customer+everybody",outcome="error"} 1`,
			`errors_total{limiter="customer+everybody"} 1`,
			`tokens_total{limit="",limiter="customer+everybody",outcome="error"} 1`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newPrometheus(t)
			ask(t, c, s.limiter, s.costs, s.opts...)
			require.Equal(t, s.want, samples(t, c, "decisions", "tokens", "wait", "errors"))
		})
	}
}

// A counter must not decrease, and a wait of Never would make the sum of waits useless.
func TestCostsThatCannotBeCounted(t *testing.T) {
	forEachCollector(t, func(t *testing.T, c collector) {
		ask(t, c, newLimiter(t), []float64{-1, math.NaN(), math.Inf(1), 11})
		require.Equal(t, []string{
			`decisions_total{limit="default",limiter="customer",outcome="refused"} 4`,
			`tokens_total{limit="default",limiter="customer",outcome="refused"} 11`,
		}, samples(t, c, "decisions", "tokens", "wait"))
	})
}

// One name is enough for all limiters.
func TestOneNameForTwoLimiters(t *testing.T) {
	c := newPrometheus(t)
	observe := metrics.Server(c, "api")
	observe(httplimit.Event{LimiterIndex: 1, Cost: 1})
	require.Equal(t, []string{`decisions_total{limit="",limiter="api",outcome="admitted"} 1`}, samples(t, c, "decisions"))
}

// A key must not be a label: millions of keys would become millions of time series.
func TestTheKeyIsNoLabel(t *testing.T) {
	forEachCollector(t, func(t *testing.T, c collector) {
		both := metrics.Server(c, "api")
		for _, key := range []string{"ann", "bob", "eve"} {
			both(httplimit.Event{Key: key, Cost: 1, Policy: "default"})
			metrics.Client(c, "github")(httplimit.TransportEvent{Host: key, Cost: 1})
			metrics.GRPCClient(c, "billing")(grpclimit.ClientEvent{Target: key, Method: key})
		}
		require.Len(t, samples(t, c, "decisions"), 3)
		for _, line := range samples(t, c, "") {
			require.NotRegexp(t, "ann|bob|eve", line)
		}
	})
}

func TestOutcomesOfAGRPCServer(t *testing.T) {
	for outcome, opts := range map[string][]grpclimit.Option{"refused": nil, "would_refuse": {grpclimit.WithReportOnly()}} {
		c := newPrometheus(t)
		opts = append(opts, grpclimit.WithObserver(metrics.GRPCServer(c, "api")), grpclimit.WithCosts(tokenbucket.Costs{"/a.B/C": 6}))
		intercept, err := grpclimit.UnaryServerInterceptor(newLimiter(t), opts...)
		require.NoError(t, err)
		for range 2 {
			_, _ = intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return nil, nil })
		}
		require.Equal(t, []string{
			`decisions_total{limit="default",limiter="api",outcome="admitted"} 1`,
			`decisions_total{limit="default",limiter="api",outcome="` + outcome + `"} 1`,
			`tokens_total{limit="default",limiter="api",outcome="admitted"} 6`,
			`tokens_total{limit="default",limiter="api",outcome="` + outcome + `"} 6`,
			`wait_duration_seconds_sum{limiter="api",outcome="` + outcome + `"} 2000`,
			`wait_duration_seconds_count{limiter="api",outcome="` + outcome + `"} 1`,
		}, samples(t, c, "decisions", "tokens", "wait"))
	}
}

// A message goes on, is refused, finds its limiter failed, or its stream ends.
func TestOutcomesOfMessages(t *testing.T) {
	c := newPrometheus(t)
	observe := metrics.GRPCServer(c, "api")
	late := &tokenbucket.DeadlineError{Wait: 3 * time.Second}
	for _, e := range []grpclimit.Event{ // as grpclimit makes them
		{Waited: 2 * time.Second, Event: httplimit.Event{LimiterIndex: -1, Cost: 4, Decision: tokenbucket.Decision{OK: true, LimitIndex: -1}}},
		{Event: httplimit.Event{LimiterIndex: -1, Cost: 1, Refused: true, Err: late, Decision: tokenbucket.Decision{Wait: 3 * time.Second}}},
		{Event: httplimit.Event{LimiterIndex: -1, Cost: 1, Refused: true, Err: tokenbucket.ErrTooManyWaiters, Decision: tokenbucket.Decision{Wait: tokenbucket.Never}}},
		{Event: httplimit.Event{LimiterIndex: -1, Cost: 1, Err: errors.New("no answer")}},
		{Waited: time.Second, Event: httplimit.Event{LimiterIndex: -1, Cost: 1, Refused: true, Err: context.Canceled}},
	} {
		e.Message = true
		observe(e)
	}
	require.Equal(t, []string{
		`decisions_total{limit="",limiter="api",outcome="admitted"} 1`,
		`decisions_total{limit="",limiter="api",outcome="error"} 2`,
		`decisions_total{limit="",limiter="api",outcome="refused"} 2`,
		`errors_total{limiter="api"} 1`,
		`tokens_total{limit="",limiter="api",outcome="admitted"} 4`,
		`tokens_total{limit="",limiter="api",outcome="error"} 2`,
		`tokens_total{limit="",limiter="api",outcome="refused"} 2`,
		`wait_duration_seconds_sum{limiter="api",outcome="admitted"} 2`,
		`wait_duration_seconds_count{limiter="api",outcome="admitted"} 1`,
		`wait_duration_seconds_sum{limiter="api",outcome="error"} 1`,
		`wait_duration_seconds_count{limiter="api",outcome="error"} 2`,
		`wait_duration_seconds_sum{limiter="api",outcome="refused"} 3`,
		`wait_duration_seconds_count{limiter="api",outcome="refused"} 1`,
	}, samples(t, c, "decisions", "errors", "tokens", "wait"))
}

// stream is a stream of a server, with one message.
type stream struct{ grpc.ServerStream }

func (stream) Context() context.Context { return context.Background() }
func (stream) SetTrailer(metadata.MD)   {}
func (stream) RecvMsg(any) error        { return nil }

func TestMessagesOfAStream(t *testing.T) {
	for _, reportOnly := range []bool{false, true} {
		c := newPrometheus(t)
		opts := []grpclimit.Option{grpclimit.WithObserver(metrics.GRPCServer(c, "api")),
			grpclimit.WithMessageCost(func(context.Context, string, any) float64 { return 3 })}
		want := []string{
			`decisions_total{limit="",limiter="api",outcome="admitted"} 2`,
			`decisions_total{limit="default",limiter="api",outcome="admitted"} 1`,
			`tokens_total{limit="",limiter="api",outcome="admitted"} 6`,
			`tokens_total{limit="default",limiter="api",outcome="admitted"} 1`,
			`wait_duration_seconds_sum{limiter="api",outcome="admitted"} 0`,
			`wait_duration_seconds_count{limiter="api",outcome="admitted"} 2`,
		}
		if reportOnly {
			opts = append(opts, grpclimit.WithReportOnly())
			want = []string{
				`decisions_total{limit="default",limiter="api",outcome="admitted"} 3`,
				`tokens_total{limit="default",limiter="api",outcome="admitted"} 7`,
			}
		}
		synctest.Test(t, func(t *testing.T) {
			intercept, err := grpclimit.StreamServerInterceptor(newLimiter(t), opts...)
			require.NoError(t, err)
			require.NoError(t, intercept(nil, stream{}, &grpc.StreamServerInfo{FullMethod: "/a.B/S"}, func(_ any, s grpc.ServerStream) error {
				return errors.Join(s.RecvMsg(nil), s.RecvMsg(nil))
			}))
		})
		require.Equal(t, want, samples(t, c, "decisions", "tokens", "wait"))
	}
}

func TestFailuresOfAStore(t *testing.T) {
	forEachCollector(t, func(t *testing.T, c collector) {
		client := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no server") }})
		defer client.Close()
		count, counted := metrics.Store(c, "redis"), make(chan struct{}, 1)
		buckets, err := redisbucket.New(client, slow, redisbucket.WithErrorHandler(func(err error) {
			count(err)
			counted <- struct{}{}
		}))
		require.NoError(t, err)
		_, err = buckets.Take(t.Context(), "ann", 1)
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		<-counted
		require.Equal(t, []string{`errors_total{limiter="redis"} 1`}, samples(t, c, "errors"))
	})
}

func TestKeysAndWaitingAreReadAtEachCollection(t *testing.T) {
	forEachCollector(t, func(t *testing.T, c collector) {
		b := newKeyed(t)
		require.NoError(t, c.watch("api", b.Len, nil))
		require.Equal(t, []string{`keys{limiter="api"} 0`}, samples(t, c, "keys", "waiting"))
		b.Take("ann", 1)
		b.Take("bob", 1)
		require.Equal(t, []string{`keys{limiter="api"} 2`}, samples(t, c, "keys", "waiting"))
	})
}
