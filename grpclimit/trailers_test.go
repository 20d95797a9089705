package grpclimit_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// Calls with the same figures share their trailers inside the interceptor. Trailers that a
// handler adds to its own call do not appear in the next call.
func TestHandlersTrailersStayApart(t *testing.T) {
	s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-3}), opts: []grpclimit.Option{free}}
	client := s.client(t, true)
	for _, extra := range []string{"first", "second"} {
		s.service.answer = func(ctx context.Context) error {
			return grpc.SetTrailer(ctx, metadata.Pairs("ratelimit", extra, "own", extra))
		}
		a := call(t.Context(), client)
		require.NoError(t, a.err)
		require.Equal(t, []string{`"default";r=10;t=10000`, extra}, a.trailer.Get("ratelimit"))
		require.Equal(t, []string{`"default";q=10;w=10000`}, a.trailer.Get("ratelimit-policy"))
		require.Equal(t, []string{extra}, a.trailer.Get("own"))
	}
}

// marking is a stream of an outer interceptor, which adds to the trailers.
type marking struct{ grpc.ServerStream }

func (m marking) SetTrailer(trailer metadata.MD) {
	trailer.Set("mark", "first")
	m.ServerStream.SetTrailer(trailer)
}

// What an outer interceptor adds to the trailers of one stream does not appear in the next.
func TestTrailersOfStreamsStayApart(t *testing.T) {
	var marked bool
	mark := func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !marked {
			stream, marked = marking{stream}, true
		}
		return handler(service, stream)
	}
	limiter := perKey(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-3})
	s := &setup{limiter: limiter, opts: []grpclimit.Option{free}, server: []grpc.ServerOption{grpc.ChainStreamInterceptor(mark)}}
	client := s.client(t, true)
	trailerOf := func() metadata.MD {
		opened, err := client.FullDuplexCall(t.Context())
		require.NoError(t, err)
		require.NoError(t, opened.CloseSend())
		_, err = opened.Recv()
		require.Equal(t, io.EOF, err)
		return opened.Trailer()
	}
	require.Equal(t, []string{"first"}, trailerOf().Get("mark"))
	second := trailerOf()
	require.Empty(t, second.Get("mark"))
	require.Equal(t, []string{`"default";r=10;t=10000`}, second.Get("ratelimit"))
}

// There are more figures than places in the cache, so calls with other figures share places.
func TestTrailersAreThoseOfTheCall(t *testing.T) {
	s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1e-9}), opts: []grpclimit.Option{grpclimit.WithPolicyNames("p")}}
	client := s.client(t, false)
	for left := 999; left >= 400; left-- {
		require.Contains(t, call(t.Context(), client).trailer.Get("ratelimit")[0], fmt.Sprintf(`"p";r=%d;`, left))
	}
}

func TestTrailersFollowTheLimits(t *testing.T) {
	buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-3})
	require.NoError(t, err)
	s := &setup{limiter: httplimit.PerKey(buckets), opts: []grpclimit.Option{grpclimit.WithKey(func(context.Context, string) string { return "k" }), free}}
	client := s.client(t, true)
	buckets.Take("k", 5)
	require.Equal(t, []string{`"default";q=10;w=10000`}, call(t.Context(), client).trailer.Get("ratelimit-policy"))
	require.NoError(t, buckets.SetLimits(tokenbucket.Limit{Capacity: 20, RefillPerSec: 1e-3}))
	a := call(t.Context(), client)
	require.Equal(t, []string{`"default";r=5;t=5000`}, a.trailer.Get("ratelimit"))
	require.Equal(t, []string{`"default";q=20;w=20000`}, a.trailer.Get("ratelimit-policy"))
}

var free = grpclimit.WithCost(func(context.Context, string, any) float64 { return 0 })
