package grpclimit_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

type service struct {
	pb.UnimplementedTestServiceServer
	calls chan time.Time
}

func (s *service) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.calls <- time.Now()
	return &pb.SimpleResponse{}, nil
}

// serve starts a server on TCP and returns a client of it.
func serve(t *testing.T, l httplimit.Limiter, opts []grpclimit.Option, dial ...grpc.DialOption) (pb.TestServiceClient, *service) {
	unary, err := grpclimit.UnaryServerInterceptor(l, opts...)
	require.NoError(t, err)
	stream, err := grpclimit.StreamServerInterceptor(l, opts...)
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))
	s := &service{calls: make(chan time.Time, 100)}
	pb.RegisterTestServiceServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return pb.NewTestServiceClient(conn), s
}

func perKey(t *testing.T, limit tokenbucket.Limit) httplimit.Limiter {
	clients, err := keyed.New[string](limit)
	require.NoError(t, err)
	return httplimit.PerKey(clients)
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	client, _ := serve(t, perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3}), nil)
	var header, trailer metadata.MD
	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{}, grpc.Trailer(&trailer))
	require.NoError(t, err)
	require.Equal(t, []string{`"default";r=0;t=1000`}, trailer.Get("ratelimit"))
	require.Equal(t, []string{`"default";q=1;w=1000`}, trailer.Get("ratelimit-policy"))
	require.Empty(t, trailer.Get("grpc-retry-pushback-ms"))

	trailer = nil
	_, err = client.UnaryCall(t.Context(), &pb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	details := status.Convert(err).Details()
	require.Len(t, details, 2)
	delay := details[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration()
	require.InDelta(t, 1000*time.Second, delay, float64(100*time.Second))
	require.Equal(t, "default", details[1].(*errdetails.QuotaFailure).GetViolations()[0].GetSubject())
	require.Empty(t, header)
	require.Len(t, trailer.Get("grpc-retry-pushback-ms"), 1)
}
