package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// waiter is a limiter whose requests can wait for their turn.
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
	ctx := l.Context()
	cost := l.server.messageCost(ctx, l.method, message)
	err := l.server.waiter.Wait(ctx, l.key, cost)
	refusal := l.refusal(ctx, err)
	if err != nil && l.server.observe != nil {
		l.server.observe(Event{Method: l.method, Event: httplimit.Event{
			Key: l.key, Cost: cost, LimiterIndex: -1, Refused: refusal != nil, Err: err,
			Decision: tokenbucket.Decision{LimitIndex: -1, Wait: waitOf(err)},
		}})
	}
	return refusal
}

// waitOf returns how long a message would have had to wait.
func waitOf(err error) time.Duration {
	var deadline *tokenbucket.DeadlineError
	if errors.As(err, &deadline) {
		return deadline.Wait
	}
	return tokenbucket.Never
}

// refusal returns the error of a message whose wait failed, nil if it passes all the same.
func (l *limitedStream) refusal(ctx context.Context, err error) error {
	var deadline *tokenbucket.DeadlineError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.As(err, &deadline):
		return l.refuse(deadline.Wait)
	case errors.Is(err, tokenbucket.ErrCostExceedsCapacity), errors.Is(err, tokenbucket.ErrInvalidCost):
		return l.refuse(tokenbucket.Never)
	case errors.Is(err, tokenbucket.ErrTooManyWaiters):
		return newError(codes.ResourceExhausted, "too many messages wait already: retry later", tokenbucket.Never, "")
	case l.server.closed:
		l.SetTrailer(metadata.Pairs(pushback, pushbackOf(l.server.closedFor)))
		return newError(codes.Unavailable, "the rate limiter does not answer", l.server.closedFor, "")
	default: // the limiter failed
		return nil
	}
}

func (l *limitedStream) refuse(wait time.Duration) error {
	l.SetTrailer(metadata.Pairs(pushback, pushbackOf(wait)))
	return refused(wait, "")
}
