package grpclimit

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// UnaryClientInterceptor returns an interceptor that waits before each call until the bucket
// of its target can pay. When the server refuses a call with ResourceExhausted and says how
// long to wait, the interceptor pauses the target for all calls. UnaryClientInterceptor
// returns tokenbucket.ErrInvalidOption for invalid options, and the errors of
// tokenbucket.Costs.Validate for invalid prices.
//
// If the wait before the first attempt fails, as tokenbucket.Bucket.Wait can, the call is not
// sent and returns the error. Its status is DeadlineExceeded, Canceled or ResourceExhausted,
// or InvalidArgument for an invalid cost, and errors.Is and errors.As find the original
// error. If the wait before a retry fails, the call returns the server's refusal, or the
// error of its context if that is done.
//
// The interceptor may be used by any number of connections and goroutines.
func UnaryClientInterceptor(b httplimit.HostBuckets, opts ...ClientOption) (grpc.UnaryClientInterceptor, error) {
	c, err := newClient(b, opts)
	if err != nil {
		return nil, err
	}
	return c.invoke, nil
}

// StreamClientInterceptor returns an interceptor that waits before each stream is opened,
// as [UnaryClientInterceptor] does before each call. It does not open a stream
// again after a refusal: messages may have been sent.
func StreamClientInterceptor(b httplimit.HostBuckets, opts ...ClientOption) (grpc.StreamClientInterceptor, error) {
	c, err := newClient(b, opts)
	if err != nil {
		return nil, err
	}
	return c.open, nil
}

type client struct {
	*clientConfig
	buckets httplimit.HostBuckets
}

func newClient(b httplimit.HostBuckets, opts []ClientOption) (*client, error) {
	config, err := newClientConfig(b, opts)
	if err != nil {
		return nil, err
	}
	return &client{config, b}, nil
}

func (c *client) invoke(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	e := c.begin(cc, method)
	if err := c.wait(ctx, &e); err != nil {
		return err
	}
	var trailer metadata.MD
	opts = append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))
	for {
		trailer = nil
		refusal := invoker(ctx, method, request, reply, cc, opts...)
		wait, again := c.heed(&e, trailer, refusal)
		if !again || e.Attempt > c.retries || !fits(ctx, wait) {
			return refusal
		}
		e = ClientEvent{Target: e.Target, Method: e.Method, Cost: e.Cost, Attempt: e.Attempt + 1}
		if err := c.wait(ctx, &e); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return refusal // for example, the wait is longer than the deadline
		}
	}
}

// begin returns the event of a first attempt.
func (c *client) begin(cc *grpc.ClientConn, method string) ClientEvent {
	return ClientEvent{Target: cc.CanonicalTarget(), Method: method, Cost: c.prices.of(method), Attempt: 1}
}

// fits reports whether a wait ends before the deadline of the context.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || wait <= time.Until(deadline)
}

func (c *client) open(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	e := c.begin(cc, method)
	if err := c.wait(ctx, &e); err != nil {
		return nil, err
	}
	stream, err := streamer(ctx, desc, cc, method, opts...)
	c.heed(&e, nil, err)
	if err != nil {
		return nil, err
	}
	return &heedingStream{ClientStream: stream, client: c, target: e.Target, method: method}, nil
}

// heedingStream makes the client heed the error that ends a stream.
type heedingStream struct {
	grpc.ClientStream
	client         *client
	target, method string
	ended          bool
}

func (s *heedingStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err != nil && !s.ended && status.Code(err) == codes.ResourceExhausted {
		s.client.heed(&ClientEvent{Target: s.target, Method: s.method, Attempt: 1, Ended: true}, s.Trailer(), err)
	}
	s.ended = s.ended || err != nil
	return err
}

// wait waits until the bucket of the target can pay for an attempt, and reports the attempt
// if that fails. A cost of 0 does not wait. But the retry of a free call must wait for the
// end of the pause. So a retry costs at least 1e-300 tokens, too little to change a bucket.
func (c *client) wait(ctx context.Context, e *ClientEvent) error {
	cost := e.Cost
	if e.Attempt > 1 {
		cost = max(cost, 1e-300)
	}
	if cost == 0 {
		return nil
	}
	if err := c.take(ctx, e, cost); err != nil {
		e.Unsent, e.Err = true, &waitError{err}
		c.report(e)
		return e.Err
	}
	return nil
}

// take waits for tokens, and notes for how long if that is going to be reported.
func (c *client) take(ctx context.Context, e *ClientEvent, cost float64) error {
	if c.observe == nil {
		return c.buckets.Wait(ctx, e.Target, cost)
	}
	since := time.Now()
	err := c.buckets.Wait(ctx, e.Target, cost)
	e.Waited = time.Since(since)
	return err
}

// heed pauses the target if the server refused a call and says how long to wait, and reports
// the call. It returns that wait, and whether the call may be sent again after it.
//
// ResourceExhausted without such a wait means a quota, or a message that is too large: a
// pause would not help.
func (c *client) heed(e *ClientEvent, trailer metadata.MD, err error) (wait time.Duration, again bool) {
	ordered, ok := retryIn(trailer, err)
	e.Err, e.Pause = err, min(ordered, c.longestPause)
	if ok {
		c.buckets.Pause(e.Target, e.Pause)
	}
	c.report(e)
	return ordered, ok && ordered <= c.longestPause
}

// retryIn returns the wait that a refusal orders, by RetryInfo, which is exact, or else by the
// pushback. It returns 0 and false if there is none.
func retryIn(trailer metadata.MD, err error) (time.Duration, bool) {
	refusal := status.Convert(err)
	if refusal.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range refusal.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			if wait := info.GetRetryDelay().AsDuration(); wait >= 0 {
				return wait, true
			}
		}
	}
	if values := trailer.Get(pushback); len(values) == 1 {
		if ms, err := strconv.ParseInt(values[0], 10, 32); err == nil && ms >= 0 {
			return time.Duration(ms) * time.Millisecond, true
		}
	}
	return 0, false
}

// waitError gives the error of a wait a status.
type waitError struct{ err error }

func (e *waitError) Error() string { return e.err.Error() }

func (e *waitError) Unwrap() error { return e.err }

// GRPCStatus lets status.FromError find the code.
func (e *waitError) GRPCStatus() *status.Status {
	code := codes.ResourceExhausted
	switch {
	case errors.Is(e.err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(e.err, context.Canceled):
		code = codes.Canceled
	case errors.Is(e.err, tokenbucket.ErrInvalidCost):
		code = codes.InvalidArgument
	}
	return status.New(code, e.err.Error())
}
