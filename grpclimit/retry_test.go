package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/aa014e13/tokenbucket"
)

// retrying is gRPC's own retry policy: three attempts, 50 ms apart, plus or minus a
// fifth.
const retrying = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.05s",
	"maxBackoff": "0.05s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

var withRetries = grpc.WithDefaultServiceConfig(retrying)

// admitting admits everything.
var admitting = limiterFunc(func(string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{OK: true}, nil
})

// attempts returns when a client with gRPC's retry policy calls a handler that refuses
// with these figures.
func attempts(t *testing.T, retryInfo time.Duration, sendsHeader bool, pushback ...string) []time.Duration {
	refused := status.New(codes.ResourceExhausted, "no")
	if retryInfo > 0 {
		refused, _ = refused.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryInfo)})
	}
	var n notes
	synctest.Test(t, func(t *testing.T) {
		n = notes{}
		s := &setup{limiter: admitting, dial: []grpc.DialOption{withRetries}}
		s.service.answer = func(ctx context.Context) error {
			n.note()
			if sendsHeader {
				_ = grpc.SendHeader(ctx, metadata.Pairs("a", "b"))
			}
			_ = grpc.SetTrailer(ctx, metadata.MD{"grpc-retry-pushback-ms": pushback})
			return refused.Err()
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), s.client(t, false)).err))
	})
	return n.at
}

func TestWhatGRPCObeys(t *testing.T) {
	ignored := attempts(t, time.Hour, false)
	require.Len(t, ignored, 3, "RetryInfo alone is ignored")
	require.Less(t, ignored[2], 150*ms)
	require.Equal(t, []time.Duration{0, 300 * ms, 600 * ms}, attempts(t, 0, false, "300"), "pushback is obeyed")
	require.Len(t, attempts(t, 0, true, "300"), 1, "unless a header has been sent")
	require.Len(t, attempts(t, 0, false, "-1"), 1)
	require.Len(t, attempts(t, 0, false, "300.5"), 1)
	require.Len(t, attempts(t, 0, false, "300", "300"), 1)
}

func TestGRPCObeysARefusal(t *testing.T) {
	for _, test := range []struct {
		wait time.Duration
		want []time.Duration
	}{
		{300 * ms, []time.Duration{0, 300 * ms, 600 * ms}},
		{300*ms - 1, []time.Duration{0, 300 * ms, 600 * ms}},
		{300*ms + 1, []time.Duration{0, 301 * ms, 602 * ms}},
		{tokenbucket.Never, []time.Duration{0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter, n := refusing(test.wait)
			s := &setup{limiter: limiter, dial: []grpc.DialOption{withRetries}}
			a := call(t.Context(), s.client(t, false))
			require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
			require.Empty(t, a.header)
			require.Equal(t, test.want, n.all())
		})
	}
}

// Over TCP the clock is real, so only lower bounds hold.
func TestGRPCObeysARefusalOverTCP(t *testing.T) {
	limiter, n := refusing(60 * ms)
	s := &setup{limiter: limiter, dial: []grpc.DialOption{withRetries}}
	require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), s.client(t, true)).err))
	require.Len(t, n.all(), 3)
	require.GreaterOrEqual(t, n.all()[1], 60*ms)
	require.GreaterOrEqual(t, n.all()[2], 120*ms)

	limiter, n = refusing(tokenbucket.Never)
	s = &setup{limiter: limiter, dial: []grpc.DialOption{withRetries}}
	require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), s.client(t, true)).err))
	require.Len(t, n.all(), 1)
}

// If an outer layer sends a header before the refusal, the client does not retry.
func TestAHeaderEndsRetries(t *testing.T) {
	overBoth(t, func(t *testing.T, overTCP bool) {
		limiter, n := refusing(10 * ms)
		s := &setup{limiter: limiter, dial: []grpc.DialOption{withRetries}, server: []grpc.ServerOption{grpc.ChainUnaryInterceptor(
			func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				_ = grpc.SendHeader(ctx, metadata.Pairs("a", "b"))
				return next(ctx, request)
			})}}
		a := call(t.Context(), s.client(t, overTCP))
		require.Equal(t, []string{"10"}, a.pushback())
		require.Len(t, n.all(), 1)
	})
}

func TestRefusedStreamIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 2}), dial: []grpc.DialOption{withRetries}}
		client := s.client(t, false)
		started := time.Now()
		for range 2 {
			stream, err := client.FullDuplexCall(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
			require.NoError(t, stream.CloseSend())
			_, err = stream.Recv()
			require.ErrorContains(t, err, "EOF")
		}
		require.Equal(t, 500*ms, time.Since(started))
	})
}
