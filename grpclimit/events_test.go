package grpclimit_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// events are the events that an observer got.
type events struct {
	mu   sync.Mutex
	seen []grpclimit.Event
}

func (e *events) observe() grpclimit.Option {
	return grpclimit.WithObserver(func(event grpclimit.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, event)
	})
}

func (e *events) all() []grpclimit.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// messages returns the events of messages, without their keys.
func (e *events) messages() (of []grpclimit.Event) {
	for _, event := range e.all() {
		if event.Message {
			event.Key = ""
			of = append(of, event)
		}
	}
	return of
}

func TestObserverSeesEveryMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		limiter := perKey(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1})
		s := &setup{limiter: limiter, opts: []grpclimit.Option{grpclimit.WithMessageCost(one), seen.observe()}}
		stream(t, s.client(t, false), 4, &s.service)
		require.Len(t, seen.all(), 5)
		require.False(t, seen.all()[0].Message, "the stream")
		require.NotEmpty(t, seen.all()[1].Key)
		require.Equal(t, seen.all()[0].Key, seen.all()[1].Key)
		admitted := httplimit.Event{Cost: 1, LimiterIndex: -1, Decision: tokenbucket.Decision{OK: true, LimitIndex: -1}}
		for i, waited := range []time.Duration{0, 0, sec, sec} {
			require.Equal(t, grpclimit.Event{Method: pb.TestService_FullDuplexCall_FullMethodName, Event: admitted, Message: true, Waited: waited}, seen.messages()[i])
		}
	})
}

// With WithReportOnly, the event of a message is that of a decision, as for a call.
func TestObserverSeesEveryReportedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		limiter := perKey(t, tokenbucket.Limit{Capacity: 2, RefillPerSec: 1})
		s := &setup{limiter: limiter, opts: []grpclimit.Option{grpclimit.WithMessageCost(one), grpclimit.WithReportOnly(), seen.observe()}}
		stream(t, s.client(t, false), 2, &s.service)
		require.Len(t, seen.messages(), 2)
		for i, e := range seen.messages() {
			require.Equal(t, []any{i > 0, 0, "default", time.Duration(0)}, []any{e.Refused, e.LimiterIndex, e.Policy, e.Waited})
		}
		require.Equal(t, sec, seen.messages()[1].Decision.Wait)
	})
}

// waitless is a limiter whose Wait fails.
type waitless struct {
	httplimit.Limiter
	err error
}

func (w waitless) Wait(context.Context, string, float64) error { return w.err }

// The decision of a message is zero if there was none, like that of a call.
func TestObserverSeesMessagesWhoseWaitFails(t *testing.T) {
	late := &tokenbucket.DeadlineError{Wait: sec}
	never := tokenbucket.Decision{Wait: tokenbucket.Never, LimitIndex: -1}
	for _, test := range []struct {
		opts []grpclimit.Option
		want httplimit.Event
	}{
		{nil, httplimit.Event{Cost: 1, Err: errDown}}, // the message goes on
		{[]grpclimit.Option{grpclimit.WithFailClosed(sec)}, httplimit.Event{Cost: 1, Err: errDown, Refused: true}},
		{[]grpclimit.Option{grpclimit.WithFailClosed(sec)}, httplimit.Event{Cost: 0, Err: errDown}},
		{[]grpclimit.Option{grpclimit.WithFailClosed(sec)}, httplimit.Event{Cost: -1, Err: errDown, Refused: true}},
		{nil, httplimit.Event{Cost: 1, Err: tokenbucket.ErrTooManyWaiters, Refused: true, Decision: never}},
		{nil, httplimit.Event{Cost: 1, Err: tokenbucket.ErrCostExceedsCapacity, Refused: true, Decision: never}},
		{nil, httplimit.Event{Cost: 1, Err: tokenbucket.ErrInvalidCost, Refused: true, Decision: never}},
		{nil, httplimit.Event{Cost: 1, Err: late, Refused: true, Decision: tokenbucket.Decision{Wait: sec, LimitIndex: -1}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var seen events
			want := test.want
			cost := func(context.Context, string, any) float64 { return want.Cost }
			opts := append(test.opts, grpclimit.WithMessageCost(cost), seen.observe())
			s := &setup{limiter: waitless{admitting, want.Err}, opts: opts}
			opened, err := s.client(t, false).FullDuplexCall(t.Context())
			require.NoError(t, err)
			require.NoError(t, opened.Send(&pb.StreamingOutputCallRequest{}))
			require.NoError(t, opened.CloseSend())
			_, err = opened.Recv()
			require.Equal(t, want.Refused, err != io.EOF)
			want.LimiterIndex = -1
			require.Equal(t, []grpclimit.Event{{Method: pb.TestService_FullDuplexCall_FullMethodName, Message: true, Event: want}}, seen.messages())
		})
	}
}

// A message whose stream ends while it waits has no decision.
func TestObserverSeesAMessageWhoseStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-3}), opts: []grpclimit.Option{
			grpclimit.WithMessageCost(one), grpclimit.WithFailClosed(sec), seen.observe()}}
		ctx, stop := context.WithCancel(t.Context())
		opened, err := s.client(t, false).FullDuplexCall(ctx)
		require.NoError(t, err)
		require.NoError(t, opened.Send(&pb.StreamingOutputCallRequest{}))
		time.Sleep(2 * sec)
		stop()
		synctest.Wait()
		require.Equal(t, []grpclimit.Event{{
			Method: pb.TestService_FullDuplexCall_FullMethodName, Message: true, Waited: 2 * sec,
			Event: httplimit.Event{Cost: 1, LimiterIndex: -1, Refused: true, Err: context.Canceled},
		}}, seen.messages())
	})
}
