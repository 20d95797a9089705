package integrations_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestAWSRetryQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 28, RefillPerSec: 0.5})
		retryer := retry.NewStandard(func(o *retry.StandardOptions) {
			o.RateLimiter = integrations.AWSRetryQuota{Bucket: bucket}
		})
		failure := errors.New("connection reset")
		first, err := retryer.GetRetryToken(t.Context(), failure) // 14 tokens
		require.NoError(t, err)
		second, err := retryer.GetRetryToken(t.Context(), failure)
		require.NoError(t, err)
		_, err = retryer.GetRetryToken(t.Context(), failure)
		require.ErrorContains(t, err, "the quota has fewer than 14 tokens, retry in 28s")

		require.NoError(t, first(failure))
		require.Zero(t, bucket.Tokens(), "a failed retry gets nothing back")
		require.NoError(t, second(nil))
		require.Equal(t, 14.0, bucket.Tokens())
		attempt, err := retryer.GetAttemptToken(t.Context())
		require.NoError(t, err)
		require.NoError(t, attempt(nil))
		require.Equal(t, 15.0, bucket.Tokens())

		time.Sleep(26 * time.Second)
		require.Equal(t, 28.0, bucket.Tokens(), "time fills it")
	})
}
