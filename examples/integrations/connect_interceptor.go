package integrations

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"connectrpc.com/connect"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// ConnectInterceptor returns an interceptor for connect handlers that asks a limiter about
// each call and each stream. Unlike Connect it runs behind connect's own code: the cost may
// depend on the procedure, and other interceptors may come before it. By default, the key
// is made from the peer's address. opts are options of httplimit.NewGate. If the limiter
// fails, calls are admitted, unless httplimit.WithFailClosed is among the options. Even then,
// calls that cost 0 are admitted.
func ConnectInterceptor(limiter httplimit.Limiter, cost func(connect.Spec) float64, opts ...httplimit.Option) (connect.Interceptor, error) {
	gate, err := httplimit.NewGate(limiter, opts...)
	if err != nil {
		return nil, err
	}
	return &connectInterceptor{gate, cost}, nil
}

type connectInterceptor struct {
	gate *httplimit.Gate
	cost func(connect.Spec) float64
}

func (i *connectInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if r.Spec().IsClient {
			return next(ctx, r)
		}
		if err := i.ask(ctx, r.Spec(), r.Peer(), r.Header()); err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

func (i *connectInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := i.ask(ctx, conn.Spec(), conn.Peer(), conn.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

func (i *connectInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// ask returns the error of a call that does not go on. The metadata of a refusal has the
// fields of httplimit, and Retry-After unless the wait is Never.
func (i *connectInterceptor) ask(ctx context.Context, spec connect.Spec, peer connect.Peer, header http.Header) error {
	key := i.gate.Key(&http.Request{RemoteAddr: peer.Addr, Header: header})
	a := i.gate.Ask(ctx, key, i.cost(spec))
	if a.GoesOn() {
		return nil
	}
	e := a.Event()
	if e.LimiterIndex < 0 {
		return connect.NewError(connect.CodeUnavailable, errors.New("the rate limiter does not answer"))
	}
	err := retryable(connect.CodeResourceExhausted, "rate limit exceeded", e.Decision.Wait)
	if seconds, ok := tokenbucket.RetryAfter(e.Decision.Wait); ok {
		err.Meta().Set("Retry-After", strconv.FormatInt(max(1, seconds), 10))
	}
	if fields := a.AppendRateLimit(nil); len(fields) > 0 {
		err.Meta().Set("RateLimit", string(fields))
		err.Meta().Set("RateLimit-Policy", a.RateLimitPolicy())
	}
	return err
}
