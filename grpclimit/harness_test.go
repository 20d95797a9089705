package grpclimit_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

const (
	ms          = time.Millisecond
	sec         = time.Second
	unaryMethod = pb.TestService_UnaryCall_FullMethodName
	anyMethod   = "/grpc.testing.TestService/*"

	memoryTarget = "passthrough:///memory"
)

var insecurely = grpc.WithTransportCredentials(insecure.NewCredentials())

// service answers calls by a function, and notes when messages of streams arrive.
type service struct {
	pb.UnimplementedTestServiceServer
	answer func(context.Context) error
	notes
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.answer != nil {
		if err := s.answer(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.SimpleResponse{}, nil
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		s.note()
	}
}

// notes are instants of events, counted from the first call of since.
type notes struct {
	mu    sync.Mutex
	start time.Time
	at    []time.Duration
}

func (n *notes) note() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.start.IsZero() {
		n.start = time.Now()
	}
	n.at = append(n.at, time.Since(n.start))
}

func (n *notes) all() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

// setup is a server and a client of it.
type setup struct {
	limiter httplimit.Limiter
	opts    []grpclimit.Option
	service service
	server  []grpc.ServerOption // interceptors further out
	dial    []grpc.DialOption
}

// connect starts the server and returns a connection to it, over TCP or in memory.
func (s *setup) connect(t *testing.T, overTCP bool) *grpc.ClientConn {
	unary, err := grpclimit.UnaryServerInterceptor(s.limiter, s.opts...)
	require.NoError(t, err)
	stream, err := grpclimit.StreamServerInterceptor(s.limiter, s.opts...)
	require.NoError(t, err)
	server := grpc.NewServer(append(s.server, grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream))...)
	pb.RegisterTestServiceServer(server, &s.service)

	dial := append([]grpc.DialOption{insecurely}, s.dial...)
	var listener net.Listener
	target := memoryTarget
	if overTCP {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		target = listener.Addr().String()
	} else {
		memory := bufconn.Listen(1 << 16)
		listener = memory
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return memory.DialContext(ctx) }))
	}
	go server.Serve(listener)
	conn, err := grpc.NewClient(target, dial...)
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
	})
	return conn
}

func (s *setup) client(t *testing.T, overTCP bool) pb.TestServiceClient {
	return pb.NewTestServiceClient(s.connect(t, overTCP))
}

// overBoth runs a test over TCP, and in memory in a bubble.
func overBoth(t *testing.T, test func(t *testing.T, overTCP bool)) {
	t.Run("TCP", func(t *testing.T) { test(t, true) })
	t.Run("in memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, false) }) })
}

// answer is all that a client gets besides a response.
type answer struct {
	header, trailer metadata.MD
	err             error
}

func call(ctx context.Context, client pb.TestServiceClient) (a answer) {
	_, a.err = client.UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

// retryInfo returns the delay of RetryInfo, -1 if there is none.
func (a answer) retryInfo() time.Duration {
	for _, detail := range status.Convert(a.err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

func (a answer) violations() (subjects []string) {
	for _, detail := range status.Convert(a.err).Details() {
		if failure, ok := detail.(*errdetails.QuotaFailure); ok {
			for _, v := range failure.GetViolations() {
				subjects = append(subjects, v.GetSubject())
			}
		}
	}
	return subjects
}

func (a answer) pushback() []string { return a.trailer.Get("grpc-retry-pushback-ms") }

// limiterFunc is a limiter that decides by a function.
type limiterFunc func(key string, cost float64) (tokenbucket.Decision, error)

func (f limiterFunc) Take(_ context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return f(key, cost)
}

// refusing refuses everything with one wait, and notes when.
func refusing(wait time.Duration) (httplimit.Limiter, *notes) {
	n := &notes{}
	return limiterFunc(func(string, float64) (tokenbucket.Decision, error) {
		n.note()
		return tokenbucket.Decision{Wait: wait, Limit: tokenbucket.PerSecond(1)}, nil
	}), n
}

func perKey(t *testing.T, limit tokenbucket.Limit) httplimit.Limiter {
	clients, err := keyed.New[string](limit)
	require.NoError(t, err)
	return httplimit.PerKey(clients)
}
