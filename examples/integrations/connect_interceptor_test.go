package integrations_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// connectServer serves a unary call and a stream behind the interceptor.
func connectServer(t *testing.T, limiter httplimit.Limiter, opts ...httplimit.Option) *httptest.Server {
	t.Helper()
	interceptor, err := integrations.ConnectInterceptor(limiter, func(connect.Spec) float64 { return 1 }, opts...)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, connect.WithInterceptors(interceptor)))
	mux.Handle(streamed, connect.NewServerStreamHandler(streamed, func(context.Context, *connect.Request[emptypb.Empty], *connect.ServerStream[emptypb.Empty]) error {
		return nil
	}, connect.WithInterceptors(interceptor)))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

const streamed = "/acme.v1.Export/Watch"

func TestConnectInterceptor(t *testing.T) {
	const wait = 2*time.Second + 1
	limit := tokenbucket.PerSecond(1)
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(limiter httplimit.Limiter, opts ...httplimit.Option) (unary, stream *connect.Error) {
				server := connectServer(t, limiter, opts...)
				call := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure, protocol)
				_, err := call.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
				errors.As(err, &unary)
				watch := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+streamed, protocol)
				messages, err := watch.CallServerStream(t.Context(), connect.NewRequest(&emptypb.Empty{}))
				if err == nil {
					messages.Receive()
					err = messages.Err()
					_ = messages.Close()
				}
				errors.As(err, &stream)
				return unary, stream
			}
			unary, stream := ask(fixed{decision: tokenbucket.Decision{OK: true}})
			require.Nil(t, unary)
			require.Nil(t, stream)

			unary, stream = ask(fixed{decision: tokenbucket.Decision{Wait: wait, Limit: limit}})
			for _, refused := range []*connect.Error{unary, stream} {
				require.Equal(t, connect.CodeResourceExhausted, refused.Code())
				require.Equal(t, []time.Duration{wait}, retryInfos(t, refused))
				require.Equal(t, "3", refused.Meta().Get("Retry-After"))
				require.Equal(t, `"default";r=0;t=3`, refused.Meta().Get("RateLimit"))
			}
			unary, _ = ask(fixed{decision: tokenbucket.Decision{Wait: tokenbucket.Never, Limit: limit}})
			require.Empty(t, retryInfos(t, unary))

			unary, stream = ask(fixed{err: errors.New("the store is down")}, httplimit.WithFailClosed(time.Second))
			require.Equal(t, connect.CodeUnavailable, unary.Code())
			require.Equal(t, connect.CodeUnavailable, stream.Code())
		})
	}
}
