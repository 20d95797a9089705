package redisbucket_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// frail is a server behind a proxy that fails, in virtual time, and a client with
// go-redis' defaults.
type frail struct {
	*bubble
	*redistest.Proxy
	client   *redis.Client
	buckets  *redisbucket.Buckets
	failures []error
}

const frailAddr = "192.0.2.7:6379"

func withFrail(t *testing.T, run func(f *frail), opts ...redisbucket.Option) {
	inBubble(t, func(b *bubble) {
		f := &frail{bubble: b, Proxy: redistest.NewProxy(b.Miniredis.Dial)}
		defer f.Break()
		client := redis.NewClient(&redis.Options{Addr: frailAddr, Dialer: f.Proxy.Dial})
		defer client.Close()
		f.client = client
		handle := redisbucket.WithErrorHandler(func(err error) {
			f.bubble.mu.Lock()
			defer f.bubble.mu.Unlock()
			f.failures = append(f.failures, err)
		})
		opts := append([]redisbucket.Option{handle}, opts...)
		f.buckets = newHastyBuckets(t, client, []tokenbucket.Limit{limit(10, 1)}, opts...)
		run(f)
	})
}

// cluster returns a client whose commands outlast their contexts.
func (f *frail) cluster() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: frailAddr}}}}, nil
		},
		Dialer: f.Proxy.Dial,
	})
}

func (f *frail) take(ctx context.Context) error {
	d, err := f.buckets.Take(ctx, "key", 1)
	if err == nil {
		require.True(f.t, d.OK)
	}
	return err
}

// requireUnavailable checks that an error says which server and what to do.
func (f *frail) requireUnavailable(err error, details ...string) {
	f.t.Helper()
	require.ErrorIs(f.t, err, redisbucket.ErrUnavailable)
	for _, detail := range append(details, frailAddr) {
		require.ErrorContains(f.t, err, detail)
	}
	require.NotErrorIs(f.t, err, context.DeadlineExceeded, "it is not the caller's")
}

func TestCallsAreBounded(t *testing.T) {
	contexts := map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want time.Duration
		err  error
	}{
		"by the timeout": {func() (context.Context, context.CancelFunc) { return background, func() {} }, 500 * ms, redisbucket.ErrUnavailable},
		"by the deadline": {func() (context.Context, context.CancelFunc) { return context.WithTimeout(background, 70*ms) }, 70 * ms,
			context.DeadlineExceeded},
		"by the timeout, with a later deadline": {func() (context.Context, context.CancelFunc) { return context.WithTimeout(background, time.Hour) }, 500 * ms,
			redisbucket.ErrUnavailable},
	}
	for name, c := range contexts {
		for _, connected := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				withFrail(t, func(f *frail) {
					if connected {
						require.NoError(t, f.take(background))
					}
					f.Silence(true)
					for what, call := range map[string]func(ctx context.Context) error{
						"Take":       f.take,
						"TryAcquire": func(ctx context.Context) error { _, _, err := f.buckets.TryAcquire(ctx, "key", 1); return err },
						"Wait":       func(ctx context.Context) error { return f.buckets.Wait(ctx, "key", 1) },
						"Refund":     func(ctx context.Context) error { return f.buckets.Refund(ctx, "key", 1) },
						"Forget":     func(ctx context.Context) error { return f.buckets.Forget(ctx, "key") },
					} {
						ctx, cancel := c.ctx()
						begin := time.Now()
						err := call(ctx)
						require.ErrorIs(t, err, c.err, what)
						require.ErrorContains(t, err, frailAddr, what)
						took := time.Since(begin)
						require.LessOrEqual(t, took, c.want, what)
						require.GreaterOrEqual(t, took, c.want*15/16, what)
						cancel()
						time.Sleep(sec) // the break is over
					}
				})
			})
		}
	}
}

// A new connection takes several round trips before that of the script.
func TestConnectingIsBoundedToo(t *testing.T) {
	for _, delay := range []time.Duration{100 * ms, 200 * ms, 400 * ms} {
		withFrail(t, func(f *frail) {
			f.Delay(delay)
			begin := time.Now()
			f.requireUnavailable(f.take(background), "WithTimeout")
			require.LessOrEqual(t, time.Since(begin), 500*ms, delay)
			time.Sleep(sec) // the answers that are under way
		})
	}
}

func TestTimeoutIsConfigurable(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		begin := time.Now()
		f.requireUnavailable(f.take(background), "timeout", "WithTimeout")
		require.LessOrEqual(t, time.Since(begin), 20*ms)
	}, redisbucket.WithTimeout(20*ms))
}

// A cancellation without a deadline is noticed at once or, if the server is near, after
// the timeout at the latest.
func TestCallsEndWhenCancelled(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Silence(true)
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(30*ms, cancel)
		begin := time.Now()
		require.ErrorIs(t, f.take(ctx), context.Canceled)
		require.Equal(t, 30*ms, time.Since(begin))
	})
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(30*ms, cancel)
		begin := time.Now()
		require.ErrorIs(t, f.take(ctx), context.Canceled)
		require.LessOrEqual(t, time.Since(begin), 500*ms)
		require.Len(t, f.failures, 1, "the server did not answer within the timeout")
	})
}

func TestLostReplySpendsOnce(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		for range 3 {
			f.Next(redistest.LoseReply, "")
			before := f.Runs()
			f.requireUnavailable(f.take(background))
			require.Equal(t, 1, f.Runs()-before, "it is not sent again")
			f.to(f.now() + 100*ms)
		}
		require.InDelta(t, 10-4+f.now().Seconds(), f.level(f.buckets), 1e-9)
		require.Len(t, f.failures, 3)
	})
}

func TestLostReplyInABatchSpendsOnce(t *testing.T) {
	withFrail(t, func(f *frail) {
		lost := f.refundTogether(func() { f.Next(redistest.LoseBatch, "") })
		require.GreaterOrEqual(t, lost, int64(2))
		require.Equal(t, 18, f.Runs(), "the first, the refunds, and a look: none was sent twice")
	}, redisbucket.WithBreak(0))
}

// refundTogether gives back a quarter of a token 16 times at the same time, the later ones
// in one batch. Before, arm sets the fault of that batch. refundTogether returns how many
// answers were lost. It checks that each refund was carried out once, or at most once if its
// answer was lost.
func (f *frail) refundTogether(arm func()) int64 {
	f.t.Helper()
	const refunds = 16
	f.drain(f.buckets, 6)
	f.Delay(50 * ms)
	var group sync.WaitGroup
	var lost atomic.Int64
	for range refunds {
		group.Go(func() {
			if err := f.buckets.Refund(background, "key", 0.25); err != nil {
				f.requireUnavailable(err)
				lost.Add(1)
			}
		})
		synctest.Wait()
	}
	arm()
	group.Wait()
	f.Delay(0)
	f.to(f.now() + sec)
	level := f.level(f.buckets) - f.now().Seconds() - 4
	require.LessOrEqual(f.t, level, refunds/4+1e-6)
	require.GreaterOrEqual(f.t, level, float64(refunds-lost.Load())/4-1e-6)
	return lost.Load()
}

func TestGravitee19870TheNextCallWorks(t *testing.T) {
	for _, reply := range []string{
		"-READONLY You can't write against a read only replica.",
		"-ERR Error running script (call to f_1): @user_script:82: -MISCONF Errors writing to the AOF file.", // before Redis 7
		"-LOADING Redis is loading the dataset in memory",
		"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"-OOM command not allowed when used memory > 'maxmemory'.",
		"-BUSY Redis is busy running a script.",
		"-NOPERM this user has no permissions to run the 'evalsha' command",
	} {
		withFrail(t, func(f *frail) {
			require.NoError(t, f.take(background))
			f.Next(redistest.Reply, reply+"\r\n")
			before := f.Runs()
			f.requireUnavailable(f.take(background))
			require.Equal(t, 1, f.Runs()-before)
			require.NoError(t, f.take(background), "no break: it answers")
			require.Zero(t, f.now())
		})
		withFrail(t, func(f *frail) {
			require.NoError(t, f.take(background))
			f.Next(redistest.Reply, reply+"\r\n")
			require.NoError(t, f.take(background), "the fallback's")
			require.NoError(t, f.take(background))
			require.Equal(t, 8.0, f.level(f.buckets))
			require.Len(t, f.failures, 1)
		}, redisbucket.WithFallback(local(t)))
	}
}

func TestRateLimitRedis144ScriptIsReloaded(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Next(redistest.Reply, "-NOSCRIPT No matching script. Please use EVAL.\r\n")
		require.NoError(t, f.take(background))
		require.Equal(t, 8.0, f.level(f.buckets))
		require.Empty(t, f.failures)
	})
}

func TestServerThatFailedIsLeftAlone(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		f.requireUnavailable(f.take(background))
		begin, runs := time.Now(), f.Runs()
		for range 100 {
			f.requireUnavailable(f.take(background), "no request is sent", "timeout")
		}
		require.Equal(t, runs, f.Runs())
		require.Zero(t, time.Since(begin), "nobody queues")

		time.Sleep(100 * ms)
		begin = time.Now()
		var group sync.WaitGroup
		var waited atomic.Int64
		for range 50 {
			group.Go(func() {
				f.requireUnavailable(f.take(background))
				if time.Since(begin) > 0 {
					waited.Add(1)
				}
			})
		}
		group.Wait()
		require.Equal(t, int64(1), waited.Load(), "one probe")

		f.Silence(false)
		time.Sleep(100 * ms)
		require.NoError(t, f.take(background))
		require.NoError(t, f.take(background))
		require.Len(t, f.failures, 2, "those that were not sent do not count")
	})
}

func TestBreakIsConfigurable(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Next(redistest.LoseReply, "")
		f.requireUnavailable(f.take(background))
		require.NoError(t, f.take(background))
	}, redisbucket.WithBreak(0))
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		f.requireUnavailable(f.take(background))
		time.Sleep(sec - 1)
		f.Silence(false)
		f.requireUnavailable(f.take(background), "no request is sent for another 1ns", "raise WithTimeout")
		time.Sleep(time.Nanosecond)
		require.NoError(t, f.take(background))
	}, redisbucket.WithBreak(sec))
}

// In a cluster, another server may answer a trial, or none. Then another trial follows.
func TestATrialOfWhichNothingIsHeardIsFollowedByAnother(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		f.requireUnavailable(f.take(background))
		time.Sleep(100 * ms)
		redisbucket.Try(f.buckets)
		f.requireUnavailable(f.take(background), "no request is sent for another 500ms")
		time.Sleep(500 * ms)
		f.Silence(false)
		require.NoError(t, f.take(background))
	})
}

// If a caller leaves before the answer, that counts as a failure of the server only if
// the answer does not come within the timeout.
func TestImpatienceIsNotAFailure(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Delay(50 * ms)
		ctx, cancel := context.WithTimeout(background, 10*ms)
		defer cancel()
		require.ErrorIs(t, f.take(ctx), context.DeadlineExceeded)
		require.NoError(t, f.take(background))
		f.to(sec)
		require.Empty(t, f.failures)
		f.Delay(0)
		require.InDelta(t, 10-2+f.now().Seconds(), f.level(f.buckets), 1e-9, "what came too late was given back")
	})
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		ctx, cancel := context.WithTimeout(background, 10*ms)
		defer cancel()
		require.ErrorIs(t, f.take(ctx), context.DeadlineExceeded)
		f.to(510 * ms)
		f.requireUnavailable(f.take(background), "no request is sent")
		require.Len(t, f.failures, 1)
	})
}

func TestFallbackDecides(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Silence(true)
		require.NoError(t, f.take(background))
		begin := time.Now()
		for range 9 {
			require.NoError(t, f.take(background))
		}
		_, ok, err := f.buckets.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.False(t, ok, "the fallback's ten are spent")
		require.NoError(t, f.buckets.Refund(background, "key", 1))
		require.NoError(t, f.buckets.Wait(background, "key", 1))
		require.ErrorIs(t, f.buckets.Forget(background, "key"), redisbucket.ErrUnavailable)
		require.Zero(t, time.Since(begin), "at once")
		f.Silence(false)
		time.Sleep(sec)
		require.Equal(t, 10.0, f.level(f.buckets))
		require.NoError(t, f.take(background))
		require.Equal(t, 9.0, f.level(f.buckets))
	}, redisbucket.WithFallback(local(t)))
}

func TestFallbackIsNotForCallersWhoLeave(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Silence(true)
		ctx, cancel := context.WithTimeout(background, 10*ms)
		defer cancel()
		require.ErrorIs(t, f.take(ctx), context.DeadlineExceeded)
	}, redisbucket.WithFallback(local(t)))
	withFrail(t, func(f *frail) { // the server was near, so the caller waits for the answer itself
		require.NoError(t, f.take(background))
		f.Silence(true)
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(30*ms, cancel)
		require.ErrorIs(t, f.take(ctx), context.Canceled)
		f.to(2 * sec)
	}, redisbucket.WithFallback(local(t)))
}

func TestCancelledWaitWhileTheServerIsAway(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.drain(f.buckets, 10)
		ctx, cancel := context.WithCancel(background)
		f.wait(ctx, f.buckets, "one", 1)
		f.Silence(true)
		cancel()
		f.to(500 * ms)
		f.requireWithin("one", 500*ms, context.Canceled)
		f.Silence(false)
		f.to(2 * sec)
		require.Equal(t, 1.0, f.level(f.buckets), "lost, and never there twice")
	})
}

func (b *bubble) requireWithin(name string, at time.Duration, err error) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Contains(b.t, b.left, name)
	require.ErrorIs(b.t, b.left[name].err, err, name)
	require.LessOrEqual(b.t, b.left[name].at, at, name)
}

func TestClosedClient(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(1, 1))
	require.NoError(t, s.client.Close())
	_, err := b.Take(background, "key", 1)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
	require.ErrorIs(t, err, redis.ErrClosed)
	require.ErrorContains(t, err, "close the client only after the last call")
}

func TestRefusedConnection(t *testing.T) {
	b := newBuckets(t, newClient(t, "127.0.0.1:1"), []tokenbucket.Limit{limit(1, 1)}, redisbucket.WithTimeout(5*sec))
	_, err := b.Take(background, "key", 1)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "check that the server runs and can be reached")
}

// The deadline was far enough, but after a slow answer too little time is left.
func TestWaitWhoseAnswerComesTooLateTakesNothing(t *testing.T) {
	withFrail(t, func(f *frail) {
		plain := f.machine([]tokenbucket.Limit{limit(10, 1)})
		f.drain(plain, 10)
		f.connect()
		f.Delay(400 * ms)
		ctx, cancel := context.WithTimeout(background, 1200*ms)
		defer cancel()
		var late *tokenbucket.DeadlineError
		require.ErrorAs(t, f.buckets.Wait(ctx, "key", 1), &late)
		require.Equal(t, sec, late.Wait)
		f.to(3 * sec)
		require.InDelta(t, 3.0, f.level(plain), 1e-6)
	})
}
