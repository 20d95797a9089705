package integrations

import (
	"context"
	"fmt"

	"github.com/aa014e13/tokenbucket"
)

// AWSRetryQuota is a retry.RateLimiter, for RateLimiter of the SDK's retry.StandardOptions.
// If there are too few tokens, the SDK does not retry. The SDK's own quota refills only by
// successes. This one also refills with time, so there are retries again after a service
// has failed for long.
type AWSRetryQuota struct {
	Bucket *tokenbucket.Bucket // the SDK's own quota has 500 tokens
}

// GetToken takes the cost of a retry, and returns a function that gives it back after a
// success.
func (q AWSRetryQuota) GetToken(_ context.Context, cost uint) (release func() error, err error) {
	if wait, ok := q.Bucket.TryAcquire(float64(cost)); !ok {
		return nil, fmt.Errorf("no retry: the quota has fewer than %d tokens, retry in %v", cost, wait)
	}
	return func() error { return q.Bucket.Refund(float64(cost)) }, nil
}

// AddTokens gives tokens for a success at the first attempt.
func (q AWSRetryQuota) AddTokens(tokens uint) error { return q.Bucket.Refund(float64(tokens)) }
