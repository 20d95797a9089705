package grpclimit

import (
	"context"
	"errors"
	"time"

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

// waiterOf returns a limiter as a waiter, nil if it has no Wait. httplimit.Both always has the
// method; its method CanWait reports whether both of its limiters have it.
func waiterOf(l httplimit.Limiter) waiter {
	w, _ := l.(waiter)
	if both, ok := l.(interface{ CanWait() bool }); ok && !both.CanWait() {
		return nil
	}
	return w
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

// watch takes the cost of a message. The message does not wait.
func (l *limitedStream) watch(cost float64) {
	a := l.server.gate.Ask(l.Context(), l.key, cost)
	if l.server.observe != nil {
		l.server.observe(Event{Method: l.method, Event: a.Event(), Message: true})
	}
}

// wait waits until the limiter has the cost of a message, and calls the observer. It returns
// an error if the message must not be delivered.
func (l *limitedStream) wait(cost float64) error {
	e := Event{Method: l.method, Message: true, Event: httplimit.Event{Key: l.key, Cost: cost, LimiterIndex: -1}}
	if l.server.observe == nil {
		return l.take(&e)
	}
	since := time.Now()
	err := l.take(&e)
	e.Waited = time.Since(since)
	l.server.observe(e)
	return err
}

// take takes the cost of a message, and notes the decision.
func (l *limitedStream) take(e *Event) error {
	if e.Err = l.server.waiter.Wait(l.Context(), e.Key, e.Cost); e.Err == nil {
		e.Decision = tokenbucket.Decision{OK: true, LimitIndex: -1}
		return nil
	}
	refused := l.refuse(e)
	e.Refused = refused != nil
	return refused
}

// refuse returns the error for a message whose wait failed with e.Err, nil if the message is
// delivered anyway. It sets the decision if the limiter decided.
func (l *limitedStream) refuse(e *Event) error {
	var deadline *tokenbucket.DeadlineError
	r := refusal{code: codes.ResourceExhausted, about: exceeded, wait: tokenbucket.Never}
	switch {
	case l.Context().Err() != nil:
		return status.FromContextError(l.Context().Err()).Err()
	case errors.As(e.Err, &deadline):
		r.wait = deadline.Wait
	case errors.Is(e.Err, tokenbucket.ErrCostExceedsCapacity), errors.Is(e.Err, tokenbucket.ErrInvalidCost):
	case errors.Is(e.Err, tokenbucket.ErrTooManyWaiters):
		e.Decision = tokenbucket.Decision{Wait: tokenbucket.Never, LimitIndex: -1} // Never, because the wait is not known
		return status.Error(codes.ResourceExhausted, exceeded+"too many messages wait already: retry later")
	case l.server.closed && e.Cost != 0:
		return l.end(l.server.undecided())
	default:
		return nil // the limiter failed
	}
	e.Decision.Wait, e.Decision.LimitIndex = r.wait, -1
	return l.end(r)
}

// end sets the trailer of a refusal, and returns its error.
func (l *limitedStream) end(r refusal) error {
	trailer, err := r.err()
	l.SetTrailer(trailer)
	return err
}
