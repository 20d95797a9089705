package integrations_test

import (
	"context"
	"testing"

	"github.com/go-kit/kit/endpoint"
	"github.com/go-kit/kit/ratelimit"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestGoKitRefuses(t *testing.T) {
	bucket := tokenbucket.MustNew(tokenbucket.PerHour(1))
	limited := ratelimit.NewErroringLimiter(integrations.GoKitAllower(bucket))(endpoint.Nop)
	_, err := limited(t.Context(), nil)
	require.NoError(t, err)
	_, err = limited(t.Context(), nil)
	require.ErrorIs(t, err, ratelimit.ErrLimited)
}

func TestGoKitWaits(t *testing.T) {
	requireOneASecond(t, func(bucket *tokenbucket.Bucket) func() error {
		limited := ratelimit.NewDelayingLimiter(integrations.GoKitWaiter(bucket))(endpoint.Nop)
		return func() error {
			_, err := limited(context.Background(), nil)
			return err
		}
	})
}
