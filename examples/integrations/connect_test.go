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
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// fixed is a limiter that always returns the same decision.
type fixed struct {
	decision tokenbucket.Decision
	err      error
}

func (f fixed) Take(context.Context, string, float64) (tokenbucket.Decision, error) {
	return f.decision, f.err
}

const procedure = "/acme.v1.Export/Run"

// call sends one request to a limited connect handler and returns the error that the
// client gets.
func call(t *testing.T, limiter httplimit.Limiter, protocol connect.ClientOption, opts ...httplimit.Option) *connect.Error {
	t.Helper()
	limit, err := integrations.Connect(limiter, opts...)
	require.NoError(t, err)
	handler := connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	})
	server := httptest.NewUnstartedServer(limit(handler))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure, protocol)
	_, err = client.CallUnary(context.Background(), connect.NewRequest(&emptypb.Empty{}))
	if err == nil {
		return nil
	}
	var answer *connect.Error
	require.True(t, errors.As(err, &answer))
	return answer
}

func retryInfos(t *testing.T, err *connect.Error) (waits []time.Duration) {
	t.Helper()
	for _, detail := range err.Details() {
		value, valueErr := detail.Value()
		require.NoError(t, valueErr)
		waits = append(waits, value.(*errdetails.RetryInfo).RetryDelay.AsDuration())
	}
	return waits
}

func TestConnect(t *testing.T) {
	const wait = 2*time.Second + 1
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			require.Nil(t, call(t, fixed{decision: tokenbucket.Decision{OK: true}}, protocol))

			refused := call(t, fixed{decision: tokenbucket.Decision{Wait: wait}}, protocol)
			require.Equal(t, connect.CodeResourceExhausted, refused.Code())
			require.Equal(t, []time.Duration{wait}, retryInfos(t, refused))
			require.Equal(t, "3", refused.Meta().Get("Retry-After"))

			never := call(t, fixed{decision: tokenbucket.Decision{Wait: tokenbucket.Never}}, protocol)
			require.Equal(t, connect.CodeResourceExhausted, never.Code())
			require.Empty(t, retryInfos(t, never))
			require.Empty(t, never.Meta().Get("Retry-After"))

			broken := call(t, fixed{err: errors.New("the store is down")}, protocol, httplimit.WithFailClosed(time.Second), integrations.Unavailable())
			require.Equal(t, connect.CodeUnavailable, broken.Code())
			require.Equal(t, "1", broken.Meta().Get("Retry-After"))
		})
	}
}

func TestConnectForOtherClients(t *testing.T) {
	limit, err := integrations.Connect(fixed{decision: tokenbucket.Decision{Wait: time.Second}})
	require.NoError(t, err)
	answer := get(limit(http.NotFoundHandler()), "/")
	require.Equal(t, http.StatusTooManyRequests, answer.Code)
	require.Contains(t, answer.Body.String(), `"resource_exhausted"`)
}
