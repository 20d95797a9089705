package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// heldClient is a client whose server answers once it is released. It admits every request.
type heldClient struct {
	release chan struct{}

	mu   sync.Mutex
	runs int
}

func (c *heldClient) RunAll(_ context.Context, runs []redisbucket.Run) []redisbucket.Answer {
	c.mu.Lock()
	c.runs += len(runs)
	c.mu.Unlock()
	<-c.release
	answers := make([]redisbucket.Answer, len(runs))
	for i := range answers {
		now := time.Now().UnixMicro()
		answers[i].Text = fmt.Sprintf("1 %d %d ", now/1e6, now%1e6)
	}
	return answers
}

func (c *heldClient) Run(ctx context.Context, run redisbucket.Run) (string, error) {
	a := c.RunAll(ctx, []redisbucket.Run{run})[0]
	return a.Text, a.Err
}

func (*heldClient) Server(string) string { return "held" }

func (*heldClient) Kind(error) redisbucket.ErrorKind { return redisbucket.KindSilent }

// A caller leaves while its request waits to be sent with others. Nothing was sent, so the
// server has not failed. Earlier versions reported "no answer".
func TestRequestThatWasNeverSentIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &heldClient{release: make(chan struct{})}
		b, err := redisbucket.NewWithClient(client, limit(10, 1), redisbucket.WithErrorHandler(func(err error) { t.Error(err) }),
			redisbucket.WithInstrument(func(redis.UniversalClient) { t.Error("called") })) // ignored: requests are still sent together
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		for range 2 { // they keep both senders busy
			go func() { require.NoError(t, b.Refund(ctx, "key", 1)) }()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(background)
		go func() { require.ErrorIs(t, b.Refund(leaving, "key", 1), context.Canceled) }()
		synctest.Wait()
		leave()
		time.Sleep(ms)
		close(client.release)
		time.Sleep(sec)
		require.Equal(t, 2, client.runs)
	})
}

// lateClient is a client whose first answer comes when it is released. It notes the costs.
type lateClient struct {
	entered, release chan struct{}
	costs            chan string
}

func (c *lateClient) Run(_ context.Context, run redisbucket.Run) (string, error) {
	c.costs <- run.Args[1]
	if !strings.HasPrefix(run.Args[1], "-") {
		close(c.entered)
		<-c.release
	}
	return "1 1796040000 0 ", nil
}

func (*lateClient) Server(string) string { return "late" }

func (*lateClient) Kind(error) redisbucket.ErrorKind { return redisbucket.KindReply }

// A call that has returned does not use the slice of its costs any more: what a late answer
// took is given back, and no other numbers.
func TestCostsBelongToTheCallerAfterTheCall(t *testing.T) {
	c := &lateClient{make(chan struct{}), make(chan struct{}), make(chan string, 2)}
	b, err := redisbucket.NewWithClient(c, limit(10, 1), redisbucket.WithLimit(limit(1000, 1)), redisbucket.WithTimeout(time.Minute))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(background)
	costs := []float64{1, 2}
	done := make(chan error)
	go func() {
		_, err := b.TakeEach(ctx, "key", costs...)
		done <- err
	}()
	<-c.entered
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	costs[0], costs[1] = 50, 900
	close(c.release)
	require.Equal(t, "1 2", <-c.costs)
	require.Equal(t, "-1 -2", <-c.costs)
}

// refusingClient is a client whose server answers with errors as long as it fails.
type refusingClient struct{ fails atomic.Bool }

func (c *refusingClient) RunAll(_ context.Context, runs []redisbucket.Run) []redisbucket.Answer {
	time.Sleep(ms) // so that callers do not wait for the answers themselves
	answer := redisbucket.Answer{Text: "1 1796040000 0 "}
	if c.fails.Load() {
		answer = redisbucket.Answer{Err: errors.New("LOADING")}
	}
	return slices.Repeat([]redisbucket.Answer{answer}, len(runs))
}

func (c *refusingClient) Run(ctx context.Context, run redisbucket.Run) (string, error) {
	a := c.RunAll(ctx, []redisbucket.Run{run})[0]
	return a.Text, a.Err
}

func (*refusingClient) Server(string) string { return "refusing" }

func (*refusingClient) Kind(error) redisbucket.ErrorKind { return redisbucket.KindReply }

// An error handler that ends its goroutine, as require does in a test, does not end the sending
// of later requests.
func TestErrorHandlerThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := new(refusingClient)
		b, err := redisbucket.NewWithClient(client, limit(10, 1), redisbucket.WithErrorHandler(func(error) { runtime.Goexit() }))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		client.fails.Store(true)
		for range 4 { // twice as many as there are senders
			require.ErrorIs(t, b.Refund(ctx, "key", 1), redisbucket.ErrUnavailable)
		}
		client.fails.Store(false)
		require.NoError(t, b.Refund(ctx, "key", 1))
	})
}

// The instants at which a lease expires and a caller is late must not overflow.
func TestLongestTimes(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.to(sec)
		f.connect()
		before := f.Runs()
		for range 5 {
			require.NoError(t, f.take(background))
		}
		require.Equal(t, 1, f.Runs()-before, "one lease serves all")
		f.Delay(50 * ms)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() { require.NoError(t, f.take(background)) })
			synctest.Wait()
		}
		group.Wait()
		require.NoError(t, f.buckets.Close())
	}, redisbucket.WithLease(5, math.MaxInt64), redisbucket.WithTimeout(math.MaxInt64))
}

// A decision with an error describes no limit, also with a lease.
func TestErrorOfALeaseDescribesNoLimit(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Silence(true)
		for _, cost := range []float64{1, 8} {
			d, err := f.buckets.Take(background, "key", cost)
			require.True(t, errors.Is(err, redisbucket.ErrUnavailable))
			require.Equal(t, tokenbucket.Decision{LimitIndex: -1}, d)
		}
	}, redisbucket.WithLease(5, maxAge))
}
