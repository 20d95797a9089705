package redisbucket_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
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

func (b *bubble) leasing(tokens float64, limits ...tokenbucket.Limit) *redisbucket.Buckets {
	b.t.Helper()
	return b.machine(limits, redisbucket.WithLease(tokens, maxAge))
}

// requireLocal checks that do sends no request to the server.
func (b *bubble) requireLocal(do func()) {
	b.t.Helper()
	before := b.CommandCount()
	do()
	require.Equal(b.t, before, b.CommandCount(), "no round trip")
}

func (b *bubble) requireRefused(m *redisbucket.Buckets, cost float64, want time.Duration) {
	b.t.Helper()
	wait, ok, err := m.TryAcquire(background, "key", cost)
	require.NoError(b.t, err)
	require.False(b.t, ok)
	require.Equal(b.t, want, wait)
	d, err := m.Take(background, "key", cost)
	require.NoError(b.t, err)
	require.False(b.t, d.OK)
	require.Equal(b.t, want, d.Wait)
}

func (f *frail) requireRefusal(want time.Duration) {
	f.t.Helper()
	wait, ok, err := f.buckets.TryAcquire(background, "key", 1)
	require.NoError(f.t, err)
	require.False(f.t, ok)
	require.Equal(f.t, want, wait)
}

// connect makes a connection before the first request.
func (f *frail) connect() {
	f.t.Helper()
	f.level(f.buckets)
}

func TestLeaseTakesOneRoundTrip(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(100, 1))
		plain := b.machine([]tokenbucket.Limit{limit(100, 1)})
		b.drain(m, 1)
		require.Equal(t, 95.0, b.level(plain))
		b.requireLocal(func() {
			for i := range 4 {
				d, err := m.Take(background, "key", 1)
				require.NoError(t, err)
				require.True(t, d.OK)
				require.Equal(t, int64(98-i), d.Remaining(), "what is left here is part of the bucket")
				require.Equal(t, time.Duration(2+i)*sec, d.Reset())
				require.Equal(t, limit(100, 1), d.Limit)
			}
		})
		require.Equal(t, 95.0, b.level(plain))
		b.drain(m, 1)
		require.Equal(t, 90.0, b.level(plain))
	})
}

func TestLeaseThatAgesIsGivenBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(100, 1)), b.machine([]tokenbucket.Limit{limit(100, 1)})
		b.drain(m, 2)
		b.to(maxAge - us)
		require.InDelta(t, 95.1, b.level(plain), 1e-5)
		b.to(maxAge)
		require.InDelta(t, 98.1, b.level(plain), 1e-5)
		b.requireLocal(func() { b.to(time.Hour) })
	})
}

// The timer ends leases that expire at nearly the same time together. So a lease may
// still have tokens after it has expired: they must not be spent any more.
func TestLeaseIsNotSpentAfterItsTime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(10, 1e-3))
		take := func(key string) {
			_, ok, err := m.TryAcquire(background, key, 1)
			require.NoError(t, err)
			require.True(t, ok)
		}
		take("other")
		b.to(2 * ms)
		take("key")
		b.to(maxAge + 3*ms)
		before := b.CommandCount()
		take("key")
		require.Greater(t, b.CommandCount(), before)
		require.InDelta(t, 4.0, b.level(b.machine([]tokenbucket.Limit{limit(10, 1e-3)})), 1e-3)
	})
}

func TestLeaseShrinksToWhatIsThere(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1)), b.machine([]tokenbucket.Limit{limit(10, 1)})
		b.drain(plain, 6.5)
		require.Equal(t, 3.5, b.level(m), "connected")
		before := b.CommandCount()
		b.drain(m, 1)
		require.Equal(t, 4, b.CommandCount()-before, "the script, and TIME, GET and SET in it")
		require.Equal(t, 0.5, b.level(plain))
		b.requireLocal(func() {
			b.drain(m, 0.5)
			b.drain(m, 1.5)
		})
		b.requireRefused(m, 1, 500*ms)
		b.to(500 * ms)
		b.drain(m, 1)
		require.Zero(t, b.level(plain))
	})
}

// Two tokens are left in the lease and one is on the server: together they pay for three.
func TestWhatIsLeftOfALeaseCounts(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1)), b.machine([]tokenbucket.Limit{limit(10, 1)})
		b.drain(m, 3)
		b.drain(plain, 4)
		b.requireRefused(m, 4, sec)
		b.drain(m, 3)
		require.Zero(t, b.level(plain))
	})
}

func TestLeaseOfSeveralLimits(t *testing.T) {
	inBubble(t, func(b *bubble) {
		limits := []tokenbucket.Limit{limit(30, 10), limit(20, 1)}
		m, plain := b.leasing(12, limits...), b.machine(limits)
		b.drain(m, 1)
		d, err := plain.Take(background, "key", 0)
		require.NoError(t, err)
		require.Equal(t, int64(8), d.Remaining(), "from all of them")
		d, err = m.Take(background, "key", 4)
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Equal(t, int64(15), d.Remaining())
		b.drain(m, 7)
		b.drain(m, 8)
		b.requireRefused(m, 1, sec)
		b.requireLocal(func() { b.requireRefused(m, 2, 2*sec) })
		b.drain(plain, 0)
		b.to(sec)
		b.drain(m, 1)
	})
}

func TestRefusalIsRememberedUntilTheInstantItNamed(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(5, 1)), b.machine([]tokenbucket.Limit{limit(5, 1)})
		b.drain(plain, 5)
		b.requireRefused(m, 2, 2*sec)
		b.requireLocal(func() {
			b.requireRefused(m, 2, 2*sec)
			b.requireRefused(m, 3, 3*sec)
			b.to(500*ms + 300)
			b.requireRefused(m, 2, 1500*ms)
			b.to(2*sec - us)
			b.requireRefused(m, 2, us)
			b.requireRefused(m, 5, 3*sec+us)
		})
		b.drain(m, 1) // the bucket has this many
		b.to(2 * sec)
		b.requireRefused(m, 2, sec)
		b.to(3 * sec)
		b.drain(m, 2)
		require.Zero(t, b.level(plain))
	})
}

// The first refusal needs no round trip if the server's answer said how many tokens were
// left. A lower cost needs none until the tokens for it are refilled.
func TestWhatTheServerToldRefuses(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(10, 1))
		b.drain(b.machine([]tokenbucket.Limit{limit(10, 1)}), 6.5)
		b.drain(m, 1)
		b.requireLocal(func() {
			b.drain(m, 2)
			b.requireRefused(m, 2, 1500*ms)
			b.requireRefused(m, 0.75, 250*ms)
			b.to(250*ms - us)
			b.requireRefused(m, 0.75, us)
			b.to(250 * ms)
			b.requireRefused(m, 1, 250*ms)
		})
		b.drain(m, 0.75)
		b.requireLocal(func() { b.requireRefused(m, 0.75, 750*ms) })
	})
}

// A server's clock has whole microseconds: the answer does not say how much of the
// current one has passed.
func TestWaitOfARefusalSufficesBetweenMicroseconds(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := limit(10, 1/1.0000005)
		m := b.leasing(5, l)
		b.drain(b.machine([]tokenbucket.Limit{l}), 10)
		b.requireRefused(m, 1, sec+us)
		b.to(600)
		b.requireRefused(m, 1, sec+us)
		b.to(600 + sec + us)
		b.drain(m, 1)
	})
}

// The server is asked again exactly at the instant that the refusal named, although the
// answer came late. The reported wait is long enough.
func TestRefusalIsCountedFromBothEndsOfTheRoundTrip(t *testing.T) {
	withFrail(t, func(f *frail) {
		plain := f.machine([]tokenbucket.Limit{limit(10, 1)})
		f.drain(plain, 10)
		f.connect()
		f.Delay(50 * ms)
		begin := f.now()
		f.requireRefused(f.buckets, 1, sec)
		f.Delay(0)
		f.to(begin + sec - us)
		runs := f.Runs()
		f.requireRefused(f.buckets, 1, 50*ms+us)
		require.Equal(t, runs, f.Runs())
		f.to(begin + sec)
		f.drain(f.buckets, 1)
	}, redisbucket.WithLease(5, maxAge))
}

func TestRefusalIsForgottenWhenTokensAreGivenBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1)), b.machine([]tokenbucket.Limit{limit(10, 1)})
		b.drain(plain, 10)
		b.requireRefused(m, 1, sec)
		require.NoError(t, m.Refund(background, "key", 1))
		b.drain(m, 1)

		b.requireRefused(m, 1, sec)
		cancel := b.queue(m, "waiter", 2)
		b.requireRefused(m, 1, sec) // from memory; the server would say three
		require.NoError(t, plain.Refund(background, "key", 1))
		cancel()
		synctest.Wait()
		b.drain(m, 1)

		b.requireRefused(m, 1, sec)
		require.NoError(t, m.Forget(background, "key"))
		b.drain(m, 1)
		require.Equal(t, 5.0, b.level(plain))
	})
}

// Tokens that are given back after the server has refused, but before its answer arrives,
// are noticed.
func TestRefundOvertakesARefusal(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.drain(f.machine([]tokenbucket.Limit{limit(10, 1)}), 10)
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		group.Go(func() { f.requireRefusal(sec) })
		synctest.Wait()
		f.Delay(0)
		require.NoError(t, f.buckets.Refund(background, "key", 1))
		require.Zero(t, f.now())
		group.Wait()
		require.NoError(t, f.take(background))
	}, redisbucket.WithLease(5, maxAge))
}

func TestRefusalIsRememberedForAMinuteAtMost(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(5, 1e-11)), b.machine([]tokenbucket.Limit{limit(5, 1e-11)})
		b.drain(plain, 5)
		b.requireRefused(m, 1, never)
		require.NoError(t, plain.Forget(background, "key"))
		b.requireLocal(func() {
			b.to(time.Minute - us)
			b.requireRefused(m, 1, never)
		})
		b.to(time.Minute)
		b.drain(m, 1)
	})
}

// If the lease still has tokens, a refusal is not remembered for longer than a minute.
func TestRefusalBesideALeaseIsRememberedForAMinuteAtMost(t *testing.T) {
	inBubble(t, func(b *bubble) {
		l := limit(5, 1e-11)
		m := b.machine([]tokenbucket.Limit{l}, redisbucket.WithLease(3, time.Hour))
		plain := b.machine([]tokenbucket.Limit{l})
		b.drain(m, 1)
		b.drain(plain, 2)
		b.requireRefused(m, 3, never)
		require.NoError(t, plain.Forget(background, "key"))
		b.to(time.Minute - us)
		b.requireLocal(func() { b.requireRefused(m, 3, never) })
		b.to(time.Minute)
		b.drain(m, 3)
	})
}

func TestForgetDropsTheLease(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(10, 1e-3))
		b.drain(m, 1)
		require.NoError(t, m.Forget(background, "key"))
		for range 10 {
			b.drain(m, 1)
		}
		_, ok, err := m.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.False(t, ok, "ten, not fourteen")
	})
}

func TestWaitAndLargeCostsGoStraightToTheServer(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1)), b.machine([]tokenbucket.Limit{limit(10, 1)})
		b.drain(m, 1)
		require.NoError(t, m.Wait(background, "key", 2))
		require.Equal(t, 3.0, b.level(plain))
		d, err := m.Take(background, "key", 6)
		require.NoError(t, err)
		require.False(t, d.OK)
		require.Equal(t, 3*sec, d.Wait)
		b.queue(m, "first", 4)
		b.queue(plain, "second", 1)
		b.requireLocal(func() { b.drain(m, 4) }) // these tokens were taken before
		_, ok, err := m.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.False(t, ok, "no newcomer overtakes the queue")
		b.to(2 * sec)
		b.requireLeft("first", sec)
		b.requireLeft("second", 2*sec)
	})
}

// A lease grants although the bucket on the server is in debt to callers that wait.
func TestLeaseGrantsWhileTheServerOwes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1)), b.machine([]tokenbucket.Limit{limit(10, 1)})
		b.drain(m, 1)
		b.drain(plain, 5)
		b.queue(plain, "waiter", 2)
		b.requireRefused(m, 5, 3*sec)
		b.requireLocal(func() {
			d, err := m.Take(background, "key", 4)
			require.NoError(t, err)
			require.True(t, d.OK)
			require.Zero(t, d.Wait)
			require.Zero(t, d.Remaining())
			require.Equal(t, -2.0, d.Tokens)
		})
		b.to(2 * sec)
		b.requireLeft("waiter", 2*sec)
	})
}

// A limit that has been full for long gives its capacity and no more, even to many
// callers at the same time.
func TestLeaseOfALimitThatIsLongFull(t *testing.T) {
	inBubble(t, func(b *bubble) {
		limits := []tokenbucket.Limit{limit(10, 100), limit(1000, 1)}
		m := b.leasing(10, limits...)
		b.drain(b.machine(limits), 10)
		b.to(5 * sec)
		var group sync.WaitGroup
		var granted atomic.Int64
		for range 20 {
			group.Go(func() {
				_, ok, err := m.TryAcquire(background, "key", 1)
				require.NoError(t, err)
				if ok {
					granted.Add(1)
				}
			})
		}
		group.Wait()
		require.Equal(t, int64(10), granted.Load())
	})
}

func TestCostsOfLeases(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.leasing(5, limit(3, 1.5))
		for _, cost := range []float64{4, math.Inf(1), -5, math.NaN()} {
			b.requireRefused(m, cost, never)
			require.Equal(t, 3.0, b.level(m))
		}
		b.drain(m, 0)
		b.drain(m, 5e-324)
		b.drain(m, 3)
		b.drain(m, 0)
		ctx, stop := context.WithCancel(background)
		stop()
		_, err := m.Take(ctx, "key", 1)
		require.Equal(t, context.Canceled, err)
	})
}

func TestCloseGivesAllBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(10, 1e-3)), b.machine([]tokenbucket.Limit{limit(10, 1e-3)})
		require.NoError(t, plain.Close(), "nothing to do")
		b.drain(m, 1)
		require.NoError(t, m.Close())
		require.Equal(t, 9.0, b.level(plain))
		require.NoError(t, m.Close())
		b.drain(m, 2) // no lease any more
		require.Equal(t, 7.0, b.level(plain))
		require.NoError(t, m.Close())
		require.Equal(t, 7.0, b.level(plain))
	})
}

func TestCloseWhileTheServerIsAway(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.drain(f.buckets, 1)
		f.Silence(true)
		begin := time.Now()
		f.requireUnavailable(f.buckets.Close(), "lost")
		require.LessOrEqual(t, time.Since(begin), 500*ms)
		f.requireUnavailable(f.buckets.Close(), "lost")
	}, redisbucket.WithLease(5, maxAge))
}

func TestCloseServesThoseWhoWait(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { require.NoError(t, f.take(background)) })
			synctest.Wait()
		}
		require.NoError(t, f.buckets.Close())
		require.Equal(t, 50*ms, f.now(), "with the exchange that is under way")
		f.Delay(0)
		group.Wait()
		require.InDelta(t, 2+f.now().Seconds(), f.level(f.buckets), 1e-6)
	}, redisbucket.WithLease(2, maxAge))
}

func TestThoseWhoComeTogetherShareARoundTrip(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		var left []time.Duration
		var mu sync.Mutex
		for range 10 {
			group.Go(func() {
				require.NoError(t, f.take(background))
				mu.Lock()
				defer mu.Unlock()
				left = append(left, f.now())
			})
		}
		group.Wait()
		require.Equal(t, 2, f.Runs(), "connect's, and one for all")
		for _, at := range left {
			require.Equal(t, 50*ms, at)
		}
	}, redisbucket.WithLease(10, maxAge))
}

// The caller that asks the server, on behalf of all, does so in its own goroutine: if the
// answer is fast, another goroutine would double the time. The error handler may end that
// goroutine. Then no other caller waits for it.
func TestExchangeIsBrokenOff(t *testing.T) {
	for name, breakOff := range map[string]func(){
		"by a panic":         func() { panic("the handler's") },
		"with the goroutine": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			withFrail(t, func(f *frail) {
				f.connect()
				f.Silence(true)
				var group sync.WaitGroup
				group.Go(func() {
					defer func() { _ = recover() }()
					_ = f.take(background)
					t.Error("it came back: somebody else has asked")
				})
				synctest.Wait()
				for range 3 {
					group.Go(func() { require.ErrorIs(t, f.take(background), redisbucket.ErrUnavailable) })
				}
				group.Wait()
				require.LessOrEqual(t, f.now(), 500*ms)
				f.Silence(false)
				f.to(sec)
				require.NoError(t, f.take(background), "the key is not blocked")
				require.NoError(t, f.buckets.Close())
			}, redisbucket.WithLease(5, maxAge), redisbucket.WithErrorHandler(func(error) { breakOff() }))
		})
	}
}

// A handler that requests the same key waits for the exchange that it is part of.
func TestLeasedCallsEndInTimeInTheErrorHandler(t *testing.T) {
	var handle func()
	withFrail(t, func(f *frail) {
		handle = func() {
			begin := f.now()
			f.requireUnavailable(f.take(background))
			require.Equal(t, 500*ms, f.now()-begin)
		}
		f.connect()
		f.Next(redistest.Reply, "-LOADING Redis is loading the dataset in memory\r\n")
		f.requireUnavailable(f.take(background))
		require.NoError(t, f.take(background))
	}, redisbucket.WithLease(5, maxAge), redisbucket.WithErrorHandler(func(error) { handle() }))
}

// A request to the server includes the costs of all callers that wait, even if the lease
// is small. The tokens for callers that leave in the meantime are given back.
func TestThoseWhoWaitAreCounted(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { require.NoError(t, f.take(background)) })
			synctest.Wait()
		}
		for range 2 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(background, 70*ms)
				defer cancel()
				require.ErrorIs(t, f.take(ctx), context.DeadlineExceeded)
			})
		}
		group.Wait()
		require.Equal(t, 100*ms, f.now())
		f.to(200 * ms)
		require.Equal(t, 4, f.Runs(), "connect's, for the first, for all others, and to give back")
		require.InDelta(t, 5.2, f.level(f.machine([]tokenbucket.Limit{limit(10, 1)})), 1e-3)
	}, redisbucket.WithLease(1.5, sec))
}

func TestThoseWhoHaveLeftAreNotCounted(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { require.NoError(t, f.take(background)) })
			synctest.Wait()
		}
		for range 3 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(background, 20*ms)
				defer cancel()
				require.ErrorIs(t, f.take(ctx), context.DeadlineExceeded)
			})
		}
		group.Wait()
		f.to(500 * ms)
		require.Equal(t, 3, f.Runs(), "connect's, for the first, and for the second: nothing is left to give back")
	}, redisbucket.WithLease(1.5, sec))
}

// Callers that come while an exchange is under way are served in order of arrival.
func TestNobodyOvertakesWithinAKey(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.drain(f.machine([]tokenbucket.Limit{limit(10, 1)}), 5)
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		var served [10]bool
		for i := range served {
			group.Go(func() {
				_, ok, err := f.buckets.TryAcquire(background, "key", 1)
				require.NoError(t, err)
				served[i] = ok
			})
			synctest.Wait()
		}
		group.Wait()
		require.Equal(t, [10]bool{true, true, true, true, true}, served)
	}, redisbucket.WithLease(3, sec))
}

func TestCallerWhoLeavesTakesNothing(t *testing.T) {
	withFrail(t, func(f *frail) {
		plain := f.machine([]tokenbucket.Limit{limit(10, 1)})
		f.connect()
		f.Delay(50 * ms)
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(background, 10*ms)
				defer cancel()
				if i == 4 {
					ctx = background
				}
				err := f.take(ctx)
				if i == 4 {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, frailAddr)
				require.Equal(t, 10*ms, f.now(), "its own context ends its wait")
			})
			synctest.Wait() // the caller that sends the request is the first to leave
		}
		group.Wait()
		f.Delay(0)
		f.to(200 * ms)
		require.Equal(t, 3, f.Runs(), "connect's, one to take, and one to give back")
		require.InDelta(t, 9.2, f.level(plain), 1e-3)
		require.Empty(t, f.failures)
	}, redisbucket.WithLease(5, maxAge))
}

func TestLeasedCallsEndInTime(t *testing.T) {
	for name, lease := range map[string]redisbucket.Option{
		"while tokens are taken":      redisbucket.WithLease(1, maxAge),
		"while tokens are given back": redisbucket.WithLease(5, maxAge),
	} {
		t.Run(name, func(t *testing.T) {
			withFrail(t, func(f *frail) {
				require.NoError(t, f.take(background))
				f.Silence(true)
				f.to(2 * maxAge)
				begin := time.Now()
				f.requireUnavailable(f.take(background))
				require.LessOrEqual(t, time.Since(begin), 500*ms)
			}, lease)
		})
	}
}

// A caller that needs a second exchange does not wait as long as two exchanges may take.
func TestLeasedCallsEndInTimeInASecondExchange(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Delay(300 * ms)
		var group sync.WaitGroup
		group.Go(func() { require.NoError(t, f.take(background)) })
		for _, patience := range []time.Duration{400 * ms, sec, sec} {
			f.to(f.now() + 20*ms)
			group.Go(func() {
				ctx, cancel := context.WithTimeout(background, patience)
				defer cancel()
				begin := f.now()
				require.Error(t, f.take(ctx))
				require.Equal(t, min(patience, 500*ms), f.now()-begin)
			})
		}
		f.to(200 * ms)
		f.Delay(5 * sec)
		group.Wait()
		f.to(10 * sec)
	}, redisbucket.WithLease(1, sec))
}

func TestLeaseOutlastsAnOutage(t *testing.T) {
	withFrail(t, func(f *frail) {
		require.NoError(t, f.take(background))
		f.Silence(true)
		for range 4 {
			require.NoError(t, f.take(background))
		}
		for range 10 {
			require.NoError(t, f.take(background), "the fallback's")
		}
		d, err := f.buckets.Take(background, "key", 1)
		require.NoError(t, err)
		require.False(t, d.OK)
		f.Silence(false)
		f.to(f.now() + sec)
		require.NoError(t, f.take(background))
	}, redisbucket.WithLease(5, sec), redisbucket.WithFallback(local(t)))
}

func TestLostLeaseIsTakenOnce(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Next(redistest.LoseReply, "")
		f.requireUnavailable(f.take(background))
		require.Equal(t, 2, f.Runs(), "connect's, and it is not sent again")
		f.to(sec)
		require.InDelta(t, 6, f.level(f.buckets), 1e-9)
	}, redisbucket.WithLease(5, maxAge))
}

func TestLeaseThatComesTooLateIsGivenBack(t *testing.T) {
	withFrail(t, func(f *frail) {
		cluster := f.cluster()
		defer cluster.Close()
		f.buckets = newHastyBuckets(t, cluster, []tokenbucket.Limit{limit(10, 1)}, redisbucket.WithLease(5, maxAge))
		f.connect()
		f.Delay(600 * ms)
		f.requireUnavailable(f.take(background))
		f.to(2 * sec)
		f.Delay(0)
		require.Equal(t, 10.0, f.level(f.machine([]tokenbucket.Limit{limit(10, 1)})))
		f.drain(f.buckets, 1)
	})
}

// A single process that gets more requests than it can admit decides as if there were no
// lease: to the microsecond, for all costs.
func TestLeasesDecideAsTheModelDoes(t *testing.T) {
	for seed := range uint64(4) {
		inBubble(t, func(b *bubble) {
			limits := tokenbucket.Limits{limit(40, 10), limit(120, 8)} // the first binds for 40 s, then the second
			m := b.leasing([]float64{4, 7.5, 20, 1000}[seed], limits...)
			b.drain(b.machine(limits), 40)
			model := make([]tokenbucket.State, len(limits))
			limits.Fill(model, b.now())
			require.NoError(t, limits.Charge(model, b.now(), 40))
			random := rand.New(rand.NewPCG(seed, 1))
			for step := range 1300 {
				cost := []float64{0.25, 0.5, 1, 2, 4}[random.IntN(5)]
				want := limits.Take(model, b.now(), cost)
				got, err := m.Take(background, "key", cost)
				require.NoError(t, err)
				require.Equal(t, want.OK, got.OK, "step %d", step)
				require.Equal(t, roundUp(want.Wait), got.Wait, "step %d", step)
				require.InDelta(t, want.Tokens, got.Tokens, 1e-9, "step %d", step)
				require.Equal(t, want.Remaining(), got.Remaining(), "step %d", step)
				b.to(b.now() + time.Duration(random.IntN(80))*ms)
			}
		})
	}
}

// Several processes take tokens, cancel, let leases expire and close, in any order. No
// token is ever minted or lost.
func TestStormOfLeases(t *testing.T) {
	for seed := range uint64(2) {
		inBubble(t, func(b *bubble) {
			l := limit(1<<20, 1000)
			machines := make([]*redisbucket.Buckets, 4)
			for i := range machines {
				machines[i] = b.leasing([]float64{1, 10, 50, 200}[i], l)
			}
			plain := b.machine([]tokenbucket.Limit{l})
			b.drain(plain, 1<<20)
			var spent atomic.Int64
			var group sync.WaitGroup
			for i := range 16 {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				group.Go(func() {
					for range 100 {
						m := machines[random.IntN(len(machines))]
						cost := 1 + random.IntN(20)
						ctx, stop := context.WithTimeout(background, time.Duration(random.IntN(50))*ms)
						var ok bool
						switch random.IntN(20) {
						case 0:
							ok = m.Wait(ctx, "key", float64(cost)) == nil
						case 1:
							time.Sleep(2 * maxAge)
						default:
							_, ok, _ = m.TryAcquire(ctx, "key", float64(cost))
						}
						stop()
						if ok && float64(spent.Add(int64(cost))) > 1000*b.now().Seconds()+1e-6 {
							t.Errorf("%d tokens spent by %v: too many", spent.Load(), b.now())
						}
						time.Sleep(time.Duration(random.IntN(20)) * ms)
					}
				})
			}
			group.Wait()
			for _, m := range machines {
				require.NoError(t, m.Close())
			}
			require.InDelta(t, 1000*b.now().Seconds()-float64(spent.Load()), b.level(plain), 1e-6)
			require.Positive(t, spent.Load())
		})
	}
}

func TestLeasedDecisionAllocatesNothing(t *testing.T) {
	s := newScene(t)
	b := newBuckets(t, s.client, []tokenbucket.Limit{limit(1<<40, 1), limit(1<<41, 1)}, redisbucket.WithLease(1<<30, time.Hour))
	defer b.Close()
	allocates := func(cost float64) float64 {
		return testing.AllocsPerRun(100, func() { _, _ = b.Take(background, "key", cost) })
	}
	require.Zero(t, allocates(1))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = b.TryAcquire(background, "key", 1) }))
	d, err := b.Take(background, "key", 1<<40)
	require.NoError(t, err)
	require.False(t, d.OK)
	s.take(newBuckets(t, s.client, []tokenbucket.Limit{limit(1<<40, 1), limit(1<<41, 1)}), 1<<40-1<<30)
	require.False(t, s.take(b, 1<<30).OK)
	require.Zero(t, allocates(1<<30), "refused")
}

func TestLeaseConfiguration(t *testing.T) {
	client := newClient(t, "127.0.0.1:1")
	for _, opt := range []redisbucket.Option{
		redisbucket.WithLease(0, sec), redisbucket.WithLease(-1, sec), redisbucket.WithLease(math.NaN(), sec),
		redisbucket.WithLease(math.Inf(1), sec), redisbucket.WithLease(1, 0), redisbucket.WithLease(1, -sec),
	} {
		_, err := redisbucket.New(client, limit(1, 1), opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	}
}

// The first decision takes a hundred tokens on the server; the others cost no round
// trip. Close gives the rest back.
func ExampleWithLease() {
	addr, stop := exampleServer()
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	limit := tokenbucket.Limit{Capacity: 10_000, RefillPerSec: 1000}
	hot, err := redisbucket.New(client, limit, redisbucket.WithLease(100, time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	other, err := redisbucket.New(client, limit) // another machine
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, ok, err := hot.TryAcquire(context.Background(), "popular", 1)
		fmt.Println(ok, err)
	}
	d, err := other.Take(context.Background(), "popular", 0)
	fmt.Println(d.Remaining(), err)
	fmt.Println(hot.Close())
	d, err = other.Take(context.Background(), "popular", 0)
	fmt.Println(d.Remaining(), err)
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// 9900 <nil>
	// <nil>
	// 9997 <nil>
}
