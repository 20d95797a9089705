package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// interceptor is a peer in front of a gRPC handler.
type interceptor struct {
	name string
	make func(testing.TB, tokenbucket.Limit) grpc.UnaryServerInterceptor
}

var interceptors = []interceptor{
	{"(bare)", interceptBare},
	{"(figures)", interceptFigures},
	{"go-grpc-middleware", interceptRate},
	{ours, interceptBuckets()},
	{ours + "-no-fields", interceptBuckets(grpclimit.WithoutRateLimit())},
}

// interceptBare limits nothing: where others refuse, it returns a plain error.
func interceptBare(_ testing.TB, l tokenbucket.Limit) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if l == refused.limit {
			return nil, status.Error(codes.ResourceExhausted, "rate limit exceeded")
		}
		return handler(ctx, request)
	}
}

// interceptFigures limits nothing either. It sends the figures of tokenbucket as
// constants: what that costs in addition to the bare handler is gRPC's own cost.
func interceptFigures(tb testing.TB, l tokenbucket.Limit) grpc.UnaryServerInterceptor {
	trailer := metadata.Pairs("ratelimit", `"default";r=0;t=3600`, "ratelimit-policy", `"default";q=1;w=3600`)
	answer := must[*status.Status](tb)(status.New(codes.ResourceExhausted, "rate limit exceeded: retry in 3600000 ms").WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(interval(refused.limit))},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: "default", Description: "rate limit exceeded"}}}))
	if l == refused.limit {
		trailer.Set("grpc-retry-pushback-ms", "3600000")
	}
	err := answer.Err()
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_ = grpc.SetTrailer(ctx, trailer)
		if l == refused.limit {
			return nil, err
		}
		return handler(ctx, request)
	}
}

// allowing is x/time/rate in the form that go-grpc-middleware needs: one limiter for all.
type allowing struct{ *rate.Limiter }

func (a allowing) Limit(context.Context) error {
	if a.Allow() {
		return nil
	}
	return errors.New("rate limit exceeded")
}

func interceptRate(_ testing.TB, l tokenbucket.Limit) grpc.UnaryServerInterceptor {
	return ratelimit.UnaryServerInterceptor(allowing{rate.NewLimiter(rate.Limit(l.RefillPerSec), int(l.Capacity))})
}

func interceptBuckets(opts ...grpclimit.Option) func(testing.TB, tokenbucket.Limit) grpc.UnaryServerInterceptor {
	return func(tb testing.TB, l tokenbucket.Limit) grpc.UnaryServerInterceptor {
		buckets := must[*keyed.Buckets[string]](tb)(keyed.New[string](l))
		return must[grpc.UnaryServerInterceptor](tb)(grpclimit.UnaryServerInterceptor(httplimit.PerKey(buckets), opts...))
	}
}

var grpcMethod = &grpc.UnaryServerInfo{FullMethod: "/bench.Service/Method"}

func answerEmpty(context.Context, any) (any, error) { return &emptypb.Empty{}, nil }

// call returns a function that sends calls through a server on loopback TCP.
func (i interceptor) call(tb testing.TB, l load) (admit func() bool) {
	limit := i.make(tb, l.limit)
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Service", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Method",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := &emptypb.Empty{}
			if err := decode(request); err != nil {
				return nil, err
			}
			return limit(ctx, request, grpcMethod, answerEmpty)
		},
	}}}, nil)
	listener := must[net.Listener](tb)(net.Listen("tcp", "127.0.0.1:0"))
	go server.Serve(listener)
	conn := must[*grpc.ClientConn](tb)(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))
	tb.Cleanup(func() {
		conn.Close()
		server.Stop()
	})
	request, response := &emptypb.Empty{}, &emptypb.Empty{}
	return l.ready(func() bool { return conn.Invoke(tb.Context(), grpcMethod.FullMethod, request, response) == nil })
}

// nowhere is a call whose trailers are not sent.
type nowhere struct{ grpc.ServerTransportStream }

func (nowhere) SetTrailer(metadata.MD) error { return nil }

// alone returns a function that calls the interceptor without a network.
func (i interceptor) alone(tb testing.TB, l load) func() error {
	limit := i.make(tb, l.limit)
	ctx := peer.NewContext(tb.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000}})
	ctx = grpc.NewContextWithServerTransportStream(ctx, nowhere{})
	return func() error {
		_, err := limit(ctx, nil, grpcMethod, answerEmpty)
		return err
	}
}

// BenchmarkGRPC is a call through each interceptor to a handler that does nothing: the
// interceptor alone, and with client, server and network.
func BenchmarkGRPC(b *testing.B) {
	for _, l := range []load{full, draining, refused} {
		for _, i := range interceptors {
			b.Run(i.name+"/"+l.name+"_interceptor", func(b *testing.B) {
				call := i.alone(b, l)
				b.ReportAllocs()
				serial(b, i.name, l.admitted, l.ready(func() bool { return call() == nil }))
			})
			b.Run(i.name+"/"+l.name+"_call", func(b *testing.B) {
				admit := i.call(b, l)
				b.ReportAllocs()
				serial(b, i.name, l.admitted, admit)
			})
		}
	}
}

// TestGRPCRefusals reports what a refused client gets from each peer.
func TestGRPCRefusals(t *testing.T) {
	for _, i := range interceptors[2:] {
		t.Run(i.name, func(t *testing.T) {
			call := i.alone(t, refused)
			require.NoError(t, call())
			refusal := status.Convert(call())
			got := []string{refusal.Code().String()}
			for _, detail := range refusal.Details() {
				got = append(got, string(detail.(proto.Message).ProtoReflect().Descriptor().Name()))
			}
			t.Attr("refused", strings.Join(got, ", "))
		})
	}
}
