package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// transport is a call without a network. The allocations of gRPC for its trailers do not
// count.
type transport struct{}

func (transport) Method() string               { return "" }
func (transport) SetHeader(metadata.MD) error  { return nil }
func (transport) SendHeader(metadata.MD) error { return nil }
func (transport) SetTrailer(metadata.MD) error { return nil }

func countAllocations(t *testing.T, limit tokenbucket.Limit, opts ...grpclimit.Option) float64 {
	interceptor, err := grpclimit.UnaryServerInterceptor(perKey(t, limit), opts...)
	require.NoError(t, err)
	ctx := grpc.NewContextWithServerTransportStream(t.Context(), transport{})
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000}})
	info := &grpc.UnaryServerInfo{FullMethod: "/package.Service/Method"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	call := func() { _, _ = interceptor(ctx, nil, info, handler) }
	call() // the first call takes the tokens, so that the next ones are refused
	return testing.AllocsPerRun(1000, call)
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	plenty := tokenbucket.Limit{Capacity: 1 << 30, RefillPerSec: 1}
	require.Zero(t, countAllocations(t, plenty, grpclimit.WithoutRateLimit()), "an admission")
	require.LessOrEqual(t, countAllocations(t, plenty), 4.0, "an admission with its trailers")
	alike := tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e12} // full again at the next call
	require.Zero(t, countAllocations(t, alike), "an admission with the trailers of a recent one")
	costs := tokenbucket.Costs{"/package.Service/*": 2}
	require.Zero(t, countAllocations(t, plenty, grpclimit.WithoutRateLimit(), grpclimit.WithCosts(costs)), "an admission by price")
	require.LessOrEqual(t, countAllocations(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3}), 12.0, "a refusal")
}

// Without an observer, events must not allocate.
func TestClientAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 1 << 30, RefillPerSec: 1})
	require.NoError(t, err)
	intercept, err := grpclimit.UnaryClientInterceptor(buckets)
	require.NoError(t, err)
	conn, err := grpc.NewClient(memoryTarget, insecurely)
	require.NoError(t, err)
	defer conn.Close()
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	ctx := t.Context()
	call := func() { _ = intercept(ctx, unaryMethod, nil, nil, conn, invoke) }
	require.LessOrEqual(t, testing.AllocsPerRun(1000, call), 3.0)
}
