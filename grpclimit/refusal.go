package grpclimit

import (
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/aa014e13/tokenbucket"
)

// The trailers.
const (
	pushback  = "grpc-retry-pushback-ms" // gRFC A6
	rateLimit = "ratelimit"
	policies  = "ratelimit-policy"
)

// The fields of httplimit, in the form in which http.Header keeps them.
const (
	rateLimitField = "Ratelimit"
	policiesField  = "Ratelimit-Policy"
)

// trailer returns the figures of a decision, nil for none.
func (s *server) trailer(c *call) metadata.MD {
	md := metadata.MD{}
	if values := c.header[rateLimitField]; len(values) > 0 {
		md[rateLimit], md[policies] = values, c.header[policiesField]
	}
	if !c.admitted {
		md[pushback] = []string{pushbackOf(s.wait(c))}
	}
	if len(md) == 0 {
		return nil
	}
	return md
}

// wait returns how long the client of a refused call is to wait.
func (s *server) wait(c *call) time.Duration {
	if isUndecided(c) {
		return s.closedFor
	}
	return c.event.Decision.Wait
}

// isUndecided reports whether no limiter could decide.
func isUndecided(c *call) bool { return c.event.LimiterIndex < 0 }

// refusal returns the error of a call, nil if it goes on.
func (s *server) refusal(c *call) error {
	if c.admitted {
		return nil
	}
	wait := s.wait(c)
	if isUndecided(c) {
		return newError(codes.Unavailable, "the rate limiter does not answer", wait, "")
	}
	return refused(wait, c.event.Policy)
}

// refused returns the error of a call that a limit refuses.
func refused(wait time.Duration, policy string) error {
	if _, ok := retryDelay(wait); !ok {
		return newError(codes.ResourceExhausted, "rate limit exceeded: this call can never be admitted; ask for less", wait, policy)
	}
	return newError(codes.ResourceExhausted, "rate limit exceeded: retry in "+wait.String(), wait, policy)
}

// newError returns a status with RetryInfo, if there is a time to retry, and a
// QuotaFailure, if a policy refused.
func newError(code codes.Code, message string, wait time.Duration, policy string) error {
	var details []protoadapt.MessageV1
	if delay, ok := retryDelay(wait); ok {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	}
	if policy != "" {
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: policy, Description: "rate limit exceeded"},
		}})
	}
	plain := status.New(code, message)
	if detailed, err := plain.WithDetails(details...); err == nil {
		plain = detailed
	}
	return plain.Err()
}

// longestPushback is the longest wait that clients read, by gRFC A6.
const longestPushback = math.MaxInt32 * time.Millisecond

// retryDelay returns the wait, and false if a client cannot be asked to wait as long.
func retryDelay(wait time.Duration) (time.Duration, bool) {
	return wait, wait != tokenbucket.Never && wait <= longestPushback
}

// pushbackOf returns a wait in milliseconds, rounded up, and -1 for one that is too long.
func pushbackOf(wait time.Duration) string {
	if _, ok := retryDelay(wait); !ok {
		return "-1"
	}
	return strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
}
