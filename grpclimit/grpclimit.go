// Package grpclimit puts token buckets in front of gRPC services, and behind gRPC
// clients. A refusal says when that very call would be admitted, so that a client can
// come back then.
//
// # Server
//
// [UnaryServerInterceptor] and [StreamServerInterceptor] ask an httplimit.Limiter, such as
// httplimit.PerKey of keyed buckets, httplimit.Both or redisbucket. A refused call ends
// with ResourceExhausted and, in this order of precision:
//
//	RetryInfo               detail [1]   when the call would be admitted, to the nanosecond
//	QuotaFailure            detail [1]   the name of the policy that refused, never the key
//	grpc-retry-pushback-ms  trailer [2]  the same in milliseconds, rounded up; -1 if no wait is long enough
//	ratelimit               trailer [3]  "default";r=0;t=2
//	ratelimit-policy        trailer [3]  "default";q=10;w=20
//
//	[1] google/rpc/error_details.proto
//	[2] gRFC A6, client retries
//	[3] draft-ietf-httpapi-ratelimit-headers, revision 11, as in httplimit
//
// gRPC clients with a retry policy obey the pushback, but only if the server has not
// sent a response header. So a refusal sends none: all its figures are trailers. An admitted call
// has the last two trailers, too.
//
// A call that can never be admitted, or not within 2^31-1 milliseconds, is refused with a
// pushback of -1 and without RetryInfo.
//
// If the limiter fails, the call is admitted; see [WithFailClosed]. If a handler panics,
// what its call cost stays spent.
//
// # Client
//
// [UnaryClientInterceptor] and [StreamClientInterceptor] wait before each call until the
// target's bucket can pay, and pause the target for all calls when the server refuses one.
// The key of a target is its canonical name: "api:443" and "dns:///api:443" are one. Calls
// that gRPC itself sends again, below the interceptor, pay nothing.
package grpclimit

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// UnaryServerInterceptor returns an interceptor that asks a limiter about each call before
// its handler is called. It returns tokenbucket.ErrInvalidOption for options that cannot
// work, and the errors of tokenbucket.Costs.Validate for prices.
//
// The interceptor may be used by any number of servers and goroutines.
func UnaryServerInterceptor(l httplimit.Limiter, opts ...Option) (grpc.UnaryServerInterceptor, error) {
	s, err := newServer(l, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := call{method: info.FullMethod, message: request}
		s.decide(ctx, &c)
		if trailer := s.trailer(&c); trailer != nil {
			_ = grpc.SetTrailer(ctx, trailer) // fails only outside of a call
		}
		if err := s.refusal(&c); err != nil {
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
		c := call{method: info.FullMethod}
		s.decide(stream.Context(), &c)
		if trailer := s.trailer(&c); trailer != nil {
			stream.SetTrailer(trailer)
		}
		if err := s.refusal(&c); err != nil {
			return err
		}
		if s.messageCost != nil {
			stream = &limitedStream{stream, s, info.FullMethod, c.event.Key}
		}
		return handler(service, stream)
	}, nil
}

// server decides about calls. It hands them to httplimit as requests, so that keys,
// fallbacks and fields are the same in both packages.
type server struct {
	*config
	handler http.Handler
}

func newServer(l httplimit.Limiter, opts []Option) (*server, error) {
	c, err := newConfig(l, opts)
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(l, c.httpOptions()...)
	if err != nil {
		return nil, err
	}
	return &server{c, limit(http.HandlerFunc(admit))}, nil
}

// admit is the handler behind the limiter: the call goes on.
func admit(w http.ResponseWriter, _ *http.Request) { w.(*call).admitted = true }

// call is one call, and the answer of httplimit to it.
type call struct {
	method   string
	message  any // nil for a stream
	header   http.Header
	event    httplimit.Event
	admitted bool
}

func (c *call) Header() http.Header { return c.header }

// Write is not called, since refuse and unavailable answer instead of httplimit.
func (c *call) Write(b []byte) (int, error) { return len(b), nil }

func (c *call) WriteHeader(int) {}

// callKey finds the call in the context of its request.
type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

func (s *server) decide(ctx context.Context, c *call) {
	c.header = make(http.Header, 4)
	r := &http.Request{Method: http.MethodPost}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		r.RemoteAddr = p.Addr.String()
	}
	if s.readsMetadata {
		r.Header = headerOf(ctx)
	}
	s.handler.ServeHTTP(c, r.WithContext(context.WithValue(ctx, callKey{}, c)))
}

// headerOf returns the metadata of a call as the fields of an HTTP request.
func headerOf(ctx context.Context) http.Header {
	incoming, _ := metadata.FromIncomingContext(ctx)
	header := make(http.Header, len(incoming))
	for name, values := range incoming {
		header[http.CanonicalHeaderKey(name)] = values
	}
	return header
}
