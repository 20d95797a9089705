package integrations_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
)

// requireOneASecond runs call three times, with a bucket of one token that refills one a
// second, and checks the instants at which the calls return.
func requireOneASecond(t *testing.T, newCall func(bucket *tokenbucket.Bucket) (call func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		call := newCall(tokenbucket.MustNew(tokenbucket.PerSecond(1)))
		start := time.Now()
		for i := range time.Duration(3) {
			require.NoError(t, call())
			require.Equal(t, i*time.Second, time.Since(start))
		}
	})
}

func TestGRPCMiddlewareRefuses(t *testing.T) {
	limit := ratelimit.UnaryServerInterceptor(integrations.GRPCLimiter{Bucket: tokenbucket.MustNew(tokenbucket.PerHour(1))})
	served := 0
	call := func() error {
		_, err := limit(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/acme.v1.Export/Run"}, func(context.Context, any) (any, error) {
			served++
			return nil, nil
		})
		return err
	}
	require.NoError(t, call())
	err := call()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "retry in 59m59.")
	require.Equal(t, 1, served)
}

func TestGRPCMiddlewareWaits(t *testing.T) {
	requireOneASecond(t, func(bucket *tokenbucket.Bucket) func() error {
		limit := ratelimit.UnaryClientInterceptor(integrations.GRPCWaiter{Bucket: bucket})
		return func() error {
			return limit(context.Background(), "/acme.v1.Export/Run", nil, nil, nil,
				func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
		}
	})
}
