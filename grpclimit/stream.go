package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// waiter is the optional method of a limiter that WithMessageCost needs.
type waiter interface {
	Wait(ctx context.Context, key string, cost float64) error
}

// limitedStream makes each received message wait for its turn.
type limitedStream struct {
	grpc.ServerStream
	server *server
	method string
	key    string
}

func (l *limitedStream) RecvMsg(message any) error {
	if err := l.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	cost := l.server.messageCost(l.Context(), l.method, message)
	if l.server.reportOnly {
		l.watch(cost)
		return nil
	}
	return l.wait(cost)
}

// watch takes the cost of a message, and reports the message if it would have waited.
func (l *limitedStream) watch(cost float64) {
	a := l.server.gate.Ask(l.Context(), l.key, cost)
	if e := a.Event(); e.Refused || e.Err != nil {
		l.report(e)
	}
}

// wait waits until the limiter has the cost of a message. It returns an error if the message
// must not be delivered.
func (l *limitedStream) wait(cost float64) error {
	err := l.server.waiter.Wait(l.Context(), l.key, cost)
	if err == nil {
		return nil
	}
	e := httplimit.Event{Key: l.key, Cost: cost, LimiterIndex: -1, Err: err}
	refused := l.refuse(err, &e.Decision)
	e.Refused = refused != nil
	l.report(e)
	return refused
}

func (l *limitedStream) report(e httplimit.Event) {
	if l.server.observe != nil {
		l.server.observe(Event{l.method, e})
	}
}

// refuse returns the error for a message whose wait failed, nil if the message is delivered
// anyway.
func (l *limitedStream) refuse(err error, d *tokenbucket.Decision) error {
	var deadline *tokenbucket.DeadlineError
	r := refusal{code: codes.ResourceExhausted, about: exceeded, wait: tokenbucket.Never}
	switch {
	case l.Context().Err() != nil:
		return status.FromContextError(l.Context().Err()).Err()
	case errors.As(err, &deadline):
		r.wait = deadline.Wait
	case errors.Is(err, tokenbucket.ErrCostExceedsCapacity), errors.Is(err, tokenbucket.ErrInvalidCost):
	case errors.Is(err, tokenbucket.ErrTooManyWaiters):
		return status.Error(codes.ResourceExhausted, exceeded+"too many messages wait already: retry later")
	case l.server.closed:
		r = l.server.undecided()
	default:
		return nil // the limiter failed
	}
	d.Wait, d.LimitIndex = r.wait, -1
	trailer, refused := r.err()
	l.SetTrailer(trailer)
	return refused
}
