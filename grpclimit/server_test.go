package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func TestAdmissionHasTheFields(t *testing.T) {
	overBoth(t, func(t *testing.T, overTCP bool) {
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-3}), dial: []grpc.DialOption{withRetries}}
		a := call(t.Context(), s.client(t, overTCP))
		require.NoError(t, a.err)
		require.Equal(t, []string{`"default";r=9;t=9000`}, a.trailer.Get("ratelimit"))
		require.Equal(t, []string{`"default";q=10;w=10000`}, a.trailer.Get("ratelimit-policy"))
		require.Empty(t, a.pushback())

		s.opts = []grpclimit.Option{grpclimit.WithoutRateLimit()}
		a = call(t.Context(), s.client(t, overTCP))
		require.NoError(t, a.err)
		require.Empty(t, a.trailer)
	})
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	overBoth(t, func(t *testing.T, overTCP bool) {
		limiter, _ := refusing(2*sec + 1)
		s := &setup{limiter: limiter, opts: []grpclimit.Option{grpclimit.WithPolicyNames("per-client")}}
		a := call(t.Context(), s.client(t, overTCP))
		require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		require.Equal(t, 2*sec+1, a.retryInfo())
		require.Equal(t, []string{"per-client"}, a.violations())
		require.Equal(t, []string{"2001"}, a.pushback())
		require.Equal(t, []string{`"per-client";r=0;t=3`}, a.trailer.Get("ratelimit"))
		require.Equal(t, []string{`"per-client";q=1;w=1`}, a.trailer.Get("ratelimit-policy"))
		require.Empty(t, a.header.Get("ratelimit"))
		require.ErrorContains(t, a.err, "retry in 2001 ms")
	})
}

func TestNeverAdmitted(t *testing.T) {
	const longest = (1<<31 - 1) * ms
	for _, test := range []struct {
		wait      time.Duration
		pushback  string
		retryInfo time.Duration
		message   string
	}{
		{longest, "2147483647", longest, "retry in 2147483647 ms"},
		{longest + 1, "-1", -1, "retry in more than 24 days"},
		{tokenbucket.Never, "-1", -1, "no wait is long enough"},
	} {
		limiter, n := refusing(test.wait)
		s := &setup{limiter: limiter}
		a := call(t.Context(), s.client(t, true))
		require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		require.Equal(t, []string{test.pushback}, a.pushback())
		require.Equal(t, test.retryInfo, a.retryInfo())
		require.ErrorContains(t, a.err, test.message)
		require.Equal(t, []string{"default"}, a.violations())
		require.Len(t, n.all(), 1)
	}
	overBoth(t, func(t *testing.T, overTCP bool) { // 6 of a capacity of 5
		six := func(context.Context, string, any) float64 { return 6 }
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 5, RefillPerSec: 1}), opts: []grpclimit.Option{grpclimit.WithCost(six)}, dial: []grpc.DialOption{withRetries}}
		a := call(t.Context(), s.client(t, overTCP))
		require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		require.Equal(t, time.Duration(-1), a.retryInfo())
		require.Equal(t, []string{"-1"}, a.pushback())
		require.ErrorContains(t, a.err, "ask for less")
	})
}

var errDown = errors.New("the store is down")

var failing = limiterFunc(func(string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{}, errDown
})

func TestLimiterFails(t *testing.T) {
	overBoth(t, func(t *testing.T, overTCP bool) {
		var seen events
		open := &setup{limiter: failing, opts: []grpclimit.Option{seen.observe()}}
		require.NoError(t, call(t.Context(), open.client(t, overTCP)).err)
		closed := &setup{limiter: failing, opts: []grpclimit.Option{seen.observe(), grpclimit.WithFailClosed(1500 * ms)}}
		a := call(t.Context(), closed.client(t, overTCP))
		require.Equal(t, codes.Unavailable, status.Code(a.err))
		require.Equal(t, 1500*ms, a.retryInfo())
		require.Equal(t, []string{"1500"}, a.pushback())
		require.Empty(t, a.violations())
		require.Len(t, seen.all(), 2)
		for i, e := range seen.all() {
			require.ErrorIs(t, e.Err, errDown)
			require.Equal(t, unaryMethod, e.Method)
			require.Equal(t, -1, e.LimiterIndex)
			require.Zero(t, e.Decision)
			require.Equal(t, i == 1, e.Refused)
		}
	})
}

func TestFallbackDecides(t *testing.T) {
	var seen events
	s := &setup{limiter: failing, opts: []grpclimit.Option{
		grpclimit.WithFallback(perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3})), seen.observe()}}
	client := s.client(t, true)
	require.NoError(t, call(t.Context(), client).err)
	require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), client).err))
	last := seen.all()[1]
	require.True(t, last.Fallback && last.Refused)
	require.ErrorIs(t, last.Err, errDown)
}

func TestReportOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3}), opts: []grpclimit.Option{
			grpclimit.WithReportOnly(), grpclimit.WithMessageCost(one), seen.observe()}}
		client := s.client(t, false)
		for range 3 {
			a := call(t.Context(), client)
			require.NoError(t, a.err)
			require.Empty(t, a.pushback())
		}
		require.Equal(t, []time.Duration{0, 0}, stream(t, client, 2, &s.service), "messages do not wait")
		require.Len(t, seen.all(), 6)
		for i, e := range seen.all() { // 3 calls, a stream and its messages
			require.Equal(t, i > 0, e.Refused)
		}
	})
}

func one(context.Context, string, any) float64 { return 1 }

// stream sends messages and returns when they arrive.
func stream(t *testing.T, client pb.TestServiceClient, messages int, s *service) []time.Duration {
	opened, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range messages {
		require.NoError(t, opened.Send(&pb.StreamingOutputCallRequest{}))
	}
	require.NoError(t, opened.CloseSend())
	_, err = opened.Recv()
	require.ErrorContains(t, err, "EOF")
	return s.all()
}

func TestMessagesWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := perKey(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1})
		s := &setup{limiter: limiter, opts: []grpclimit.Option{grpclimit.WithMessageCost(one)}}
		require.Equal(t, []time.Duration{0, 0, sec, 2 * sec}, stream(t, s.client(t, false), 4, &s.service))
	})
	synctest.Test(t, func(t *testing.T) { // without it they are free
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1})}
		require.Equal(t, []time.Duration{0, 0, 0}, stream(t, s.client(t, false), 3, &s.service))
	})
}

func TestMessagesThatDoNotGoOn(t *testing.T) {
	for _, test := range []struct {
		name     string
		cost     float64
		timeout  time.Duration
		pushback []string
		want     codes.Code
	}{
		{"above the capacity", 4, time.Hour, []string{"-1"}, codes.ResourceExhausted},
		{"invalid", -1, time.Hour, []string{"-1"}, codes.ResourceExhausted},
		{"later than the deadline", 3, 500 * ms, []string{"1000"}, codes.ResourceExhausted},
	} {
		synctest.Test(t, func(t *testing.T) {
			cost := func(context.Context, string, any) float64 { return test.cost }
			var seen events
			s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}), opts: []grpclimit.Option{
				grpclimit.WithMessageCost(cost), seen.observe()}}
			ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
			defer cancel()
			opened, err := s.client(t, false).FullDuplexCall(ctx)
			require.NoError(t, err)
			require.NoError(t, opened.Send(&pb.StreamingOutputCallRequest{}))
			_, err = opened.Recv()
			require.Equal(t, test.want, status.Code(err), test.name)
			require.Equal(t, test.pushback, opened.Trailer().Get("grpc-retry-pushback-ms"), test.name)
			require.Len(t, seen.all(), 2)
			require.True(t, seen.all()[1].Refused)
		})
	}
}

func TestPanicSpendsItsCost(t *testing.T) {
	recovers := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "panicked")
			}
		}()
		return next(ctx, request)
	}
	s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3}), server: []grpc.ServerOption{grpc.ChainUnaryInterceptor(recovers)}}
	s.service.answer = func(context.Context) error { panic("no") }
	client := s.client(t, true)
	require.Equal(t, codes.Internal, status.Code(call(t.Context(), client).err))
	require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), client).err))
}

func TestServerOptions(t *testing.T) {
	limiter := perKey(t, tokenbucket.Limit{Capacity: 5, RefillPerSec: 1})
	for _, test := range []struct {
		limiter httplimit.Limiter
		opt     grpclimit.Option
		want    error
	}{
		{nil, grpclimit.WithoutRateLimit(), tokenbucket.ErrInvalidOption},
		{limiter, nil, tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithAddress(nil), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/a.B/C": 6}), tokenbucket.ErrCostExceedsCapacity},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/a.B/*": -1}), tokenbucket.ErrInvalidCost},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"a.B/C": 1}), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/a.B": 1}), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/a.B/": 1}), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/a.*/C": 1}), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/*": 1}), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithPolicyNames("é"), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithAddress(httplimit.WithoutXRateLimit()), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithFailClosed(0), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithFailClosed(1<<31*ms - ms), nil},
		{limiter, grpclimit.WithFailClosed(1 << 31 * ms), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithFailClosed(tokenbucket.Never), tokenbucket.ErrInvalidOption},
		{limiter, grpclimit.WithMetadataKey("a b"), tokenbucket.ErrInvalidOption},
		{admitting, grpclimit.WithMessageCost(one), tokenbucket.ErrInvalidOption},
		{httplimit.Both(limiter.(httplimit.Refunder), admitting), grpclimit.WithMessageCost(one), tokenbucket.ErrInvalidOption},
		{httplimit.Both(httplimit.Both(limiter.(httplimit.Refunder), limiter).(httplimit.Refunder), limiter), grpclimit.WithMessageCost(one), nil},
		{limiter, grpclimit.WithCosts(tokenbucket.Costs{"/a.B/C": 5, "/a.B/*": 0}), nil},
	} {
		_, err := grpclimit.UnaryServerInterceptor(test.limiter, test.opt)
		require.ErrorIs(t, err, test.want)
		_, err = grpclimit.StreamServerInterceptor(test.limiter, test.opt)
		require.ErrorIs(t, err, test.want)
	}
}
