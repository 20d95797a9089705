package integrations

import (
	"context"
	"fmt"

	"github.com/aa014e13/tokenbucket"
)

// AWSRetryQuota is a retry.RateLimiter, for RateLimiter of the SDK's retry.StandardOptions.
// A retry that finds too few tokens is not made. The SDK's own quota fills by successes
// alone; this one fills with time as well, so a service that has been down for long is
// not out of retries when it is back.
type AWSRetryQuota struct {
	Bucket *tokenbucket.Bucket // of 500 tokens by the SDK's default
}

// GetToken takes the cost of a retry, and returns what gives it back after a success.
func (q AWSRetryQuota) GetToken(_ context.Context, cost uint) (release func() error, err error) {
	if wait, ok := q.Bucket.TryAcquire(float64(cost)); !ok {
		return nil, fmt.Errorf("no retry: the quota has %d tokens in %v", cost, wait)
	}
	return func() error { return q.Bucket.Refund(float64(cost)) }, nil
}

// AddTokens gives tokens for a success at the first attempt.
func (q AWSRetryQuota) AddTokens(tokens uint) error { return q.Bucket.Refund(float64(tokens)) }
