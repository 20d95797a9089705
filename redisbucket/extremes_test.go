package redisbucket_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
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
