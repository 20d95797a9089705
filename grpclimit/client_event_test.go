package grpclimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
)

// clientEvents are the events that a client's observer got.
type clientEvents struct {
	mu   sync.Mutex
	seen []grpclimit.ClientEvent
}

func (c *clientEvents) observe() grpclimit.ClientOption {
	return grpclimit.WithClientObserver(func(e grpclimit.ClientEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, e)
	})
}

// codes removes the errors from the events, and returns their codes.
func (c *clientEvents) codes() (all []codes.Code) {
	for i, e := range c.seen {
		all = append(all, status.Code(e.Err))
		c.seen[i].Err = nil
	}
	return all
}

func TestClientObserverSeesEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events clientEvents
		limiter, _ := once(2 * sec)
		costs := grpclimit.WithClientCosts(tokenbucket.Costs{unaryMethod: 3, pb.TestService_EmptyCall_FullMethodName: 0})
		s := &setup{limiter: limiter, dial: limited(t, tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, grpclimit.WithRetries(1), costs, events.observe())}
		client := s.client(t, false)
		require.NoError(t, call(t.Context(), client).err)
		_, err := client.EmptyCall(t.Context(), &pb.Empty{})
		require.Error(t, err, "the service does not have it")
		require.Equal(t, []codes.Code{codes.ResourceExhausted, codes.OK, codes.Unimplemented}, events.codes())
		require.Equal(t, []grpclimit.ClientEvent{
			{Target: memoryTarget, Method: unaryMethod, Cost: 3, Attempt: 1, Pause: 2 * sec},
			{Target: memoryTarget, Method: unaryMethod, Cost: 3, Attempt: 2, Waited: 5 * sec}, // the pause empties the bucket
			{Target: memoryTarget, Method: pb.TestService_EmptyCall_FullMethodName, Attempt: 1},
		}, events.seen)
	})
}

func TestClientObserverSeesTheLongestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events clientEvents
		limiter, _ := once(10 * time.Minute)
		s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(1), events.observe())}
		require.Error(t, call(t.Context(), s.client(t, false)).err)
		require.Equal(t, []codes.Code{codes.ResourceExhausted}, events.codes())
		require.Equal(t, []grpclimit.ClientEvent{{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 1, Pause: 5 * time.Minute}}, events.seen)
	})
}

// A refusal whose pushback is not a wait begins no pause.
func TestClientObserverSeesNoPauseWithoutAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pushback := range []string{"-1", "2147483648", "-2147483649", "soon", ""} {
			var events clientEvents
			refuse := grpc.UnaryInterceptor(func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
				_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", pushback))
				return nil, status.Error(codes.ResourceExhausted, "no")
			})
			s := &setup{limiter: perKey(t, plenty), server: []grpc.ServerOption{refuse}, dial: limited(t, plenty, grpclimit.WithRetries(1), events.observe())}
			require.Error(t, call(t.Context(), s.client(t, false)).err)
			require.Equal(t, []codes.Code{codes.ResourceExhausted}, events.codes(), pushback)
			require.Equal(t, []grpclimit.ClientEvent{{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 1}}, events.seen, pushback)
		}
	})
}

// A wait fails at once because of its deadline, or later if its context is cancelled.
func TestClientObserverSeesWaitsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events clientEvents
		s := &setup{limiter: admitting, dial: limited(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.1}, events.observe())}
		client := s.client(t, false)
		require.NoError(t, call(t.Context(), client).err)

		hurried, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		require.Error(t, call(hurried, client).err)
		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(3*sec, stop)
		require.Error(t, call(canceled, client).err)
		_, err := client.FullDuplexCall(hurried)
		require.Error(t, err)

		require.Len(t, events.seen, 4)
		var deadline *tokenbucket.DeadlineError
		require.ErrorAs(t, events.seen[1].Err, &deadline)
		require.ErrorIs(t, events.seen[2].Err, context.Canceled)
		require.Equal(t, []codes.Code{codes.OK, codes.DeadlineExceeded, codes.Canceled, codes.DeadlineExceeded}, events.codes())
		require.Equal(t, []grpclimit.ClientEvent{
			{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 1},
			{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 1, Unsent: true},
			{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 1, Unsent: true, Waited: 3 * sec},
			{Target: memoryTarget, Method: pb.TestService_FullDuplexCall_FullMethodName, Cost: 1, Attempt: 1, Unsent: true},
		}, events.seen)
	})
}

// The retry waits until the context is cancelled: two attempts, one sent.
func TestClientObserverSeesTheRetryThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events clientEvents
		limiter, n := once(10 * sec)
		s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(1), events.observe())}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(3*sec, stop)
		require.True(t, errors.Is(call(ctx, s.client(t, false)).err, context.Canceled))
		require.Len(t, n.all(), 1)
		require.Equal(t, []codes.Code{codes.ResourceExhausted, codes.Canceled}, events.codes())
		require.Equal(t, []grpclimit.ClientEvent{
			{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 1, Pause: 10 * sec},
			{Target: memoryTarget, Method: unaryMethod, Cost: 1, Attempt: 2, Unsent: true, Waited: 3 * sec},
		}, events.seen)
	})
}

// A stream is one attempt, reported when it is open. Its later refusal is not a second
// attempt.
func TestClientObserverSeesStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events clientEvents
		limiter, _ := once(2 * sec)
		s := &setup{limiter: limiter, dial: limited(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, events.observe())}
		client := s.client(t, false)
		for range 2 {
			opened, err := client.FullDuplexCall(t.Context())
			require.NoError(t, err)
			require.NoError(t, opened.CloseSend())
			for range 2 {
				_, err = opened.Recv()
				require.Error(t, err)
			}
		}
		const method = pb.TestService_FullDuplexCall_FullMethodName
		require.Equal(t, []codes.Code{codes.OK, codes.ResourceExhausted, codes.OK}, events.codes())
		require.Equal(t, []grpclimit.ClientEvent{
			{Target: memoryTarget, Method: method, Cost: 1, Attempt: 1},
			{Target: memoryTarget, Method: method, Attempt: 1, Ended: true, Pause: 2 * sec},
			{Target: memoryTarget, Method: method, Cost: 1, Attempt: 1, Waited: 3 * sec}, // the pause empties the bucket
		}, events.seen)
	})
}
