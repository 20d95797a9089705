// Package grpclimit limits gRPC services and gRPC clients with token buckets. A refusal
// says when the same call would be admitted, so that a client can retry then.
//
// # Server
//
// [UnaryServerInterceptor] and [StreamServerInterceptor] ask an httplimit.Limiter, such as
// httplimit.PerKey of keyed buckets, httplimit.Both or redisbucket. A refused call ends
// with ResourceExhausted and has these details and trailers:
//
//	RetryInfo               detail [1]   when the call would be admitted, to the nanosecond
//	QuotaFailure            detail [1]   the name of the policy that refused, never the key
//	grpc-retry-pushback-ms  trailer [2]  the wait in milliseconds, rounded up; -1 if no wait is long enough
//	ratelimit               trailer [3]  "default";r=0;t=2
//	ratelimit-policy        trailer [3]  "default";q=10;w=20
//
//	[1] google/rpc/error_details.proto
//	[2] gRFC A6, client retries
//	[3] draft-ietf-httpapi-ratelimit-headers, revision 11, as in httplimit
//
// gRPC clients with a retry policy obey the pushback, but only if the server has not sent
// a response header. So a refusal sends no header, only trailers. An admitted call has
// ratelimit and ratelimit-policy, too.
//
// A call that can never be admitted, or not within 2^31-1 milliseconds, is refused with a
// pushback of -1 and without RetryInfo.
//
// If the limiter fails, the call is admitted; see [WithFailClosed]. The cost of an admitted
// call is never given back, even if its handler panics.
//
// # Client
//
// [UnaryClientInterceptor] and [StreamClientInterceptor] wait before each call until the
// target's bucket can pay. When the server refuses a call and says how long to wait,
// they pause the target for all calls. The key of a target is its canonical name:
// "api:443" and "dns:///api:443" have the same key. Retries that gRPC itself sends,
// below the interceptor, take no tokens.
package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// UnaryServerInterceptor returns an interceptor that asks a limiter about each call before
// its handler is called. UnaryServerInterceptor returns tokenbucket.ErrInvalidOption for
// invalid options, and the errors of tokenbucket.Costs.Validate for invalid prices.
//
// The interceptor may be used by any number of servers and goroutines. If an outer interceptor
// replaces the grpc.ServerTransportStream in the context, SetTrailer of the new one must not
// change its argument: calls share it.
func UnaryServerInterceptor(l httplimit.Limiter, opts ...Option) (grpc.UnaryServerInterceptor, error) {
	s, err := newServer(l, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_, trailer, err := s.ask(ctx, info.FullMethod, request)
		if trailer != nil {
			_ = grpc.SetTrailer(ctx, trailer) // fails only outside of a call
		}
		if err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}, nil
}

// StreamServerInterceptor returns an interceptor that asks a limiter about each stream when
// it is opened, before its handler is called. With [WithMessageCost] each message that
// the handler receives waits for its turn. Sending is free. The errors are those of
// [UnaryServerInterceptor].
func StreamServerInterceptor(l httplimit.Limiter, opts ...Option) (grpc.StreamServerInterceptor, error) {
	s, err := newServer(l, opts)
	if err != nil {
		return nil, err
	}
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		key, trailer, err := s.ask(stream.Context(), info.FullMethod, nil)
		if trailer != nil {
			stream.SetTrailer(trailer.Copy()) // an outer interceptor's SetTrailer may change its argument
		}
		if err != nil {
			return err
		}
		if s.messageCost != nil {
			stream = &limitedStream{stream, s, info.FullMethod, key}
		}
		return handler(service, stream)
	}, nil
}

// server decides about calls. It uses the gate of httplimit, so that keys, fallbacks and
// figures are the same in both packages.
type server struct {
	*config
	gate        *httplimit.Gate
	prices      prices
	waiter      waiter // for messages; nil if messages are free
	addressKeys addressKeys
	trailers    trailers
}

func newServer(l httplimit.Limiter, opts []Option) (*server, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	s := &server{config: c}
	if s.gate, err = httplimit.NewGate(l, c.http...); err != nil {
		return nil, err
	}
	if s.prices, err = newPrices(c.costs, s.gate.Limits()); err != nil {
		return nil, err
	}
	if c.messageCost != nil {
		if s.waiter = waiterOf(l); s.waiter == nil {
			return nil, invalid("WithMessageCost: the limiter has no Wait(ctx, key, cost): add the method, or use a limiter of this module")
		}
	}
	return s, nil
}

// ask decides about a call, and calls the observer. The error is nil if the call goes on.
func (s *server) ask(ctx context.Context, method string, message any) (key string, trailer metadata.MD, err error) {
	key = s.keyOf(ctx, method)
	a := s.gate.Ask(ctx, key, s.costOf(ctx, method, message))
	if s.observe != nil {
		s.observe(Event{Method: method, Event: a.Event()})
	}
	if a.GoesOn() {
		return key, s.trailers.of(&a), nil
	}
	trailer, err = s.refuse(&a)
	return key, trailer, err
}

func (s *server) costOf(ctx context.Context, method string, message any) float64 {
	if s.cost != nil {
		return s.cost(ctx, method, message)
	}
	return s.prices.of(method)
}
