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
	"google.golang.org/grpc/status"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

var plenty = tokenbucket.Limit{Capacity: 1000, RefillPerSec: 1000}

// limited returns the options of a client that has a bucket for each target.
func limited(t *testing.T, limit tokenbucket.Limit, opts ...grpclimit.ClientOption) []grpc.DialOption {
	targets, err := keyed.New[string](limit)
	require.NoError(t, err)
	unary, err := grpclimit.UnaryClientInterceptor(targets, opts...)
	require.NoError(t, err)
	stream, err := grpclimit.StreamClientInterceptor(targets, opts...)
	require.NoError(t, err)
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

// once refuses the first call with a wait and admits the others, and notes the instants
// of all.
func once(wait time.Duration) (httplimit.Limiter, *notes) {
	n := &notes{}
	return limiterFunc(func(string, float64) (tokenbucket.Decision, error) {
		n.note()
		return tokenbucket.Decision{OK: len(n.all()) > 1, Wait: wait, LimitIndex: -1}, nil
	}), n
}

func TestClientWaitsBeforeEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		free := grpclimit.WithClientCosts(tokenbucket.Costs{pb.TestService_EmptyCall_FullMethodName: 0})
		s := &setup{limiter: admitting, dial: limited(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, free)}
		s.service.answer = func(context.Context) error { n.note(); return nil }
		client := s.client(t, false)
		for range 3 {
			require.NoError(t, call(t.Context(), client).err)
		}
		started := time.Now()
		_, err := client.EmptyCall(t.Context(), &pb.Empty{})
		require.Equal(t, codes.Unimplemented, status.Code(err))
		require.Zero(t, time.Since(started), "a free call does not wait")
		require.Equal(t, []time.Duration{0, sec, 2 * sec}, n.all())
		require.Equal(t, []time.Duration{0}, stream(t, client, 1, &s.service))
		require.Equal(t, sec, time.Since(started), "a stream waits")
	})
}

func TestClientRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, n := once(2*sec + 1)
		s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(1))}
		require.NoError(t, call(t.Context(), s.client(t, false)).err)
		require.Equal(t, []time.Duration{0, 2*sec + 1 + ms}, n.all()) // the pause empties the bucket
	})
	synctest.Test(t, func(t *testing.T) { // a free call's retry waits as well
		limiter, n := once(2 * sec)
		free := grpclimit.WithClientCosts(tokenbucket.Costs{anyMethod: 0})
		s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(1), free)}
		require.NoError(t, call(t.Context(), s.client(t, false)).err)
		require.Equal(t, []time.Duration{0, 2 * sec}, n.all())
	})
	overBoth(t, func(t *testing.T, overTCP bool) { // by default, there is no retry
		limiter, n := once(2 * sec)
		s := &setup{limiter: limiter, dial: limited(t, plenty)}
		require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), s.client(t, overTCP)).err))
		require.Len(t, n.all(), 1)
	})
}

func TestRetryThatDoesNotFitTheDeadline(t *testing.T) {
	overBoth(t, func(t *testing.T, overTCP bool) {
		limiter, n := once(2 * time.Minute)
		s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(3))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a busy machine has time to answer
		defer cancel()
		a := call(ctx, s.client(t, overTCP))
		require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		require.Equal(t, 2*time.Minute, a.retryInfo())
		require.NoError(t, ctx.Err(), "the error comes at once")
		require.Len(t, n.all(), 1)
	})
}

func TestPauseHoldsAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, n := once(2 * sec)
		s := &setup{limiter: limiter, dial: limited(t, plenty)}
		client := s.client(t, false)
		require.Error(t, call(t.Context(), client).err)
		started := time.Now()
		require.NoError(t, call(t.Context(), client).err)
		require.Equal(t, 2*sec+ms, time.Since(started)) // the pause empties the bucket
		require.Len(t, n.all(), 2)
	})
	synctest.Test(t, func(t *testing.T) { // a stream's refusal, too
		limiter, n := once(2 * sec)
		s := &setup{limiter: limiter, dial: limited(t, plenty)}
		client := s.client(t, false)
		opened, err := client.FullDuplexCall(t.Context())
		require.NoError(t, err)
		for range 2 {
			_, err = opened.Recv()
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			time.Sleep(sec)
		}
		require.NoError(t, call(t.Context(), client).err)
		require.Equal(t, []time.Duration{0, 2*sec + ms}, n.all())
	})
}

func TestCallsOfTwoRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // both hold
		limiter, n := once(2 * sec)
		s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(1))}
		client := s.client(t, false)
		var both sync.WaitGroup
		both.Go(func() { require.NoError(t, call(t.Context(), client).err) })
		synctest.Wait()
		time.Sleep(sec)
		both.Go(func() { require.NoError(t, call(t.Context(), client).err) })
		both.Wait()
		require.Len(t, n.all(), 3)
		for _, at := range n.all()[1:] {
			require.GreaterOrEqual(t, at, 2*sec)
		}
	})
}

// A quota or the size of a message is no reason to pause or to retry.
func TestRefusalWithoutAWait(t *testing.T) {
	for _, limiter := range []httplimit.Limiter{admitting, limiterFunc(func(string, float64) (tokenbucket.Decision, error) {
		return tokenbucket.Decision{Wait: tokenbucket.Never}, nil
	})} {
		synctest.Test(t, func(t *testing.T) {
			s := &setup{limiter: limiter, dial: limited(t, plenty, grpclimit.WithRetries(3))}
			n := &notes{}
			s.service.answer = func(context.Context) error {
				n.note()
				return status.Error(codes.ResourceExhausted, "the disk is full")
			}
			client := s.client(t, false)
			started := time.Now()
			require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), client).err))
			require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), client).err))
			require.Zero(t, time.Since(started))
			require.LessOrEqual(t, len(n.all()), 2)
		})
	}
}

func TestErrorsOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &setup{limiter: admitting, dial: limited(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 1})}
		client := s.client(t, false)
		require.NoError(t, call(t.Context(), client).err)

		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		err := call(ctx, client).err
		var deadline *tokenbucket.DeadlineError
		require.ErrorAs(t, err, &deadline)
		require.Equal(t, sec, deadline.Wait)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.NoError(t, ctx.Err(), "at once")

		canceled, stop := context.WithCancel(t.Context())
		stop()
		err = call(canceled, client).err
		require.True(t, errors.Is(err, context.Canceled))
		require.Equal(t, codes.Canceled, status.Code(err))
	})
}

// noted are buckets that note the targets, and admit nothing.
type noted struct {
	httplimit.HostBuckets
	targets map[string]bool
}

func (n noted) Wait(_ context.Context, target string, _ float64) error {
	n.targets[target] = true
	return errors.New("no")
}

func TestTargetsAreCanonical(t *testing.T) {
	n := noted{targets: map[string]bool{}}
	unary, err := grpclimit.UnaryClientInterceptor(n)
	require.NoError(t, err)
	for _, target := range []string{"api.invalid:443", "dns:///api.invalid:443"} {
		conn, err := grpc.NewClient(target, insecurely, grpc.WithUnaryInterceptor(unary))
		require.NoError(t, err)
		require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), pb.NewTestServiceClient(conn)).err))
		require.NoError(t, conn.Close())
	}
	require.Equal(t, map[string]bool{"dns:///api.invalid:443": true}, n.targets)
}

func TestClientOptions(t *testing.T) {
	bucket := httplimit.AllHosts(tokenbucket.MustNew(tokenbucket.PerSecond(5)))
	for _, test := range []struct {
		buckets httplimit.HostBuckets
		opt     grpclimit.ClientOption
		want    error
	}{
		{nil, grpclimit.WithRetries(0), tokenbucket.ErrInvalidOption},
		{bucket, nil, tokenbucket.ErrInvalidOption},
		{bucket, grpclimit.WithRetries(-1), tokenbucket.ErrInvalidOption},
		{bucket, grpclimit.WithLongestPause(0), tokenbucket.ErrInvalidOption},
		{bucket, grpclimit.WithClientCosts(tokenbucket.Costs{"a": 1}), tokenbucket.ErrInvalidOption},
		{bucket, grpclimit.WithClientCosts(tokenbucket.Costs{"/a.B/*": 6}), tokenbucket.ErrCostExceedsCapacity},
		{bucket, grpclimit.WithClientCosts(tokenbucket.Costs{"/a.B/*": 5}), nil},
	} {
		_, err := grpclimit.UnaryClientInterceptor(test.buckets, test.opt)
		require.ErrorIs(t, err, test.want)
		_, err = grpclimit.StreamClientInterceptor(test.buckets, test.opt)
		require.ErrorIs(t, err, test.want)
	}
}

func TestHundredGoroutines(t *testing.T) {
	overBoth(t, func(t *testing.T, overTCP bool) {
		s := &setup{limiter: perKey(t, tokenbucket.Limit{Capacity: 50, RefillPerSec: 1e-6}), dial: limited(t, plenty, grpclimit.WithLongestPause(ms))}
		client := s.client(t, overTCP)
		var mu sync.Mutex
		got := map[codes.Code]int{}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				code := status.Code(call(t.Context(), client).err)
				mu.Lock()
				defer mu.Unlock()
				got[code]++
			})
		}
		all.Wait()
		require.Equal(t, map[codes.Code]int{codes.OK: 50, codes.ResourceExhausted: 50}, got)
	})
}
