package redisbucket_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// bubble is a server in the virtual time of a test.
type bubble struct {
	*miniredis.Miniredis
	t     *testing.T
	start time.Time

	mu   sync.Mutex
	left map[string]departure
}

type departure struct {
	at  time.Duration
	err error
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, run func(b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		b := &bubble{Miniredis: m, t: t, start: time.Now(), left: map[string]departure{}}
		run(b)
		synctest.Wait()
	})
}

func (b *bubble) now() time.Duration { return time.Since(b.start) }

// machine returns the buckets of another process.
func (b *bubble) machine(limits []tokenbucket.Limit, opts ...redisbucket.Option) *redisbucket.Buckets {
	b.t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1", // not dialled
		Dialer: func(context.Context, string, string) (net.Conn, error) { return b.Dial() },
	})
	b.t.Cleanup(func() { _ = client.Close() })
	return newHastyBuckets(b.t, client, limits, opts...)
}

// queue starts a waiter, which waits until the context ends or cancel is called.
func (b *bubble) queue(m *redisbucket.Buckets, name string, cost float64) (cancel func()) {
	ctx, cancel := context.WithCancel(background)
	b.wait(ctx, m, name, cost)
	return cancel
}

func (b *bubble) wait(ctx context.Context, m *redisbucket.Buckets, name string, cost float64) {
	go func() {
		err := m.Wait(ctx, "key", cost)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.left[name] = departure{b.now(), err}
	}()
	synctest.Wait()
}

func (b *bubble) to(at time.Duration) {
	time.Sleep(at - b.now())
	synctest.Wait()
}

func (b *bubble) requireLeft(name string, at time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Contains(b.t, b.left, name)
	require.NoError(b.t, b.left[name].err, name)
	require.Equal(b.t, at, b.left[name].at, name)
}

func (b *bubble) requireFailed(name string, at time.Duration, err error) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Contains(b.t, b.left, name)
	require.ErrorIs(b.t, b.left[name].err, err, name)
	require.Equal(b.t, at, b.left[name].at, name)
}

func (b *bubble) requireWaits(name string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NotContains(b.t, b.left, name)
}

func (b *bubble) level(m *redisbucket.Buckets) float64 {
	b.t.Helper()
	d, err := m.Take(background, "key", 0)
	require.NoError(b.t, err)
	return d.Tokens
}

func (b *bubble) drain(m *redisbucket.Buckets, cost float64) {
	b.t.Helper()
	_, ok, err := m.TryAcquire(background, "key", cost)
	require.NoError(b.t, err)
	require.True(b.t, ok)
}

func TestWaitersLeaveInOrderOverAllMachines(t *testing.T) {
	inBubble(t, func(b *bubble) {
		machines := make([]*redisbucket.Buckets, 4)
		for i := range machines {
			machines[i] = b.machine([]tokenbucket.Limit{limit(10, 2)})
		}
		b.drain(machines[0], 10)
		at, want := time.Duration(0), map[string]time.Duration{}
		for i := range 40 {
			cost := float64(1 + i*7%5)
			name := fmt.Sprint(i)
			b.queue(machines[i%4], name, cost)
			at += time.Duration(cost * float64(sec) / 2)
			want[name] = at
		}
		d, err := machines[1].Take(background, "key", 1)
		require.NoError(t, err)
		require.False(t, d.OK, "no newcomer overtakes the queue")
		require.Equal(t, at+sec/2, d.Wait)
		require.Zero(t, d.Remaining())
		require.InDelta(t, -at.Seconds()*2, d.Tokens, 1e-9)
		before := b.CommandCount()
		b.to(at)
		for name, at := range want {
			b.requireLeft(name, at)
		}
		require.Equal(t, before, b.CommandCount(), "no polling")
		require.Zero(t, b.level(machines[2]))
	})
}

func TestWaitTakesOneRoundTrip(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(1, 1)})
		b.drain(m, 1)
		before := b.CommandCount()
		require.NoError(t, m.Wait(background, "key", 1))
		// The script, and TIME, GET and SET in it.
		require.Equal(t, 4, b.CommandCount()-before)
		require.Equal(t, sec, b.now())
	})
}

func TestWaitThatOutlastsTheDeadlineTakesNothing(t *testing.T) { // golang/go#54541
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(1, 1)})
		b.drain(m, 1)
		within := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(background, d)
			defer cancel()
			return m.Wait(ctx, "key", 1)
		}
		err := within(sec - us)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var late *tokenbucket.DeadlineError
		require.ErrorAs(t, err, &late)
		require.Equal(t, sec, late.Wait)
		require.Zero(t, b.now(), "at once")
		require.Zero(t, b.level(m), "nothing was taken")
		require.NoError(t, within(sec), "due exactly at the deadline is in time")
		require.Equal(t, sec, b.now())
	})
}

func TestCancelledWaitGivesBack(t *testing.T) { // golang/go#56924
	inBubble(t, func(b *bubble) {
		one, other := b.machine([]tokenbucket.Limit{limit(1, 1)}), b.machine([]tokenbucket.Limit{limit(1, 1)})
		b.drain(one, 1)
		cancel := b.queue(one, "A", 1)
		require.Equal(t, -1.0, b.level(other))
		b.to(500 * ms)
		cancel()
		synctest.Wait()
		b.requireFailed("A", 500*ms, context.Canceled)
		require.Equal(t, 0.5, b.level(other))
		b.queue(other, "B", 1)
		b.to(sec)
		b.requireLeft("B", sec)
		b.to(2 * sec)
		require.Equal(t, 1.0, b.level(one))
	})
}

func TestManyCancelledWaitsLeaveNothingBehind(t *testing.T) { // rollout-operator#441
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(10, 10)})
		b.drain(m, 10)
		ctx, stop := context.WithCancel(background)
		for i := range 100 {
			b.wait(ctx, m, fmt.Sprint(i), 1)
		}
		b.to(50 * ms)
		stop()
		synctest.Wait()
		require.Equal(t, 0.5, b.level(m))
		b.to(sec)
		require.Equal(t, 10.0, b.level(m))
	})
}

func TestWaitWithADoneContextTakesNothing(t *testing.T) { // gkit#134
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(1, 1)})
		ctx, stop := context.WithCancel(background)
		stop()
		require.Equal(t, context.Canceled, m.Wait(ctx, "key", 1))
		_, err := m.Take(ctx, "key", 1)
		require.Equal(t, context.Canceled, err)
		require.Equal(t, 1.0, b.level(m))
	})
}

func TestNilExactlyIfTheTokensWereTaken(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(1000, 1)})
		b.drain(m, 1000)
		taken := 0.0
		for i := range 50 {
			ctx, stop := context.WithCancel(background)
			name := fmt.Sprint(i)
			b.wait(ctx, m, name, 1)
			go func() {
				time.Sleep(sec) // the instant at which it is due
				stop()
			}()
			b.to(b.now() + sec)
			synctest.Wait()
			b.mu.Lock()
			if b.left[name].err == nil {
				taken++
			}
			b.mu.Unlock()
		}
		require.InDelta(t, b.now().Seconds()-taken, b.level(m), 1e-6)
	})
}

func TestNeverBlocksUntilTheContextEnds(t *testing.T) { // golang/go#71154
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(1, 1e-11)})
		b.drain(m, 1)
		wait, ok, err := m.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, never, wait)
		cancel := b.queue(m, "one", 1)
		b.to(1000 * time.Hour)
		b.requireWaits("one")
		cancel()
		synctest.Wait()
		b.requireFailed("one", 1000*time.Hour, context.Canceled)
		ctx, stop := context.WithTimeout(background, 290*365*24*time.Hour)
		defer stop()
		require.ErrorIs(t, m.Wait(ctx, "key", 1), context.DeadlineExceeded)
	})
}

func TestWaitForSeveralLimits(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m := b.machine([]tokenbucket.Limit{limit(3, 1), limit(10, 0.25)})
		b.drain(m, 3)
		for i := range 12 {
			b.queue(m, fmt.Sprint(i), 1)
		}
		b.to(60 * sec)
		for i := range 9 { // 7 there and 2.25 refilled by 9 s
			b.requireLeft(fmt.Sprint(i), time.Duration(i+1)*sec)
		}
		b.requireLeft("9", 12*sec)
		b.requireLeft("10", 16*sec)
		b.requireLeft("11", 20*sec)
	})
}

// Many requests wait, are cancelled and are refused. No token is lost or minted.
func TestStorm(t *testing.T) {
	inBubble(t, func(b *bubble) {
		one, other := b.machine([]tokenbucket.Limit{limit(1<<20, 100)}), b.machine([]tokenbucket.Limit{limit(1<<20, 100)})
		b.drain(one, 1<<20)
		var mu sync.Mutex
		spent := 0.0
		pay := func(cost float64) {
			mu.Lock()
			defer mu.Unlock()
			spent += cost
		}
		var group sync.WaitGroup
		for i := range 300 {
			m := []*redisbucket.Buckets{one, other}[i%2]
			cost := float64(1+i*13%20) / 2
			group.Go(func() {
				ctx, stop := context.WithTimeout(background, time.Duration(i*37%200)*100*ms)
				defer stop()
				if i%5 == 0 {
					ctx, stop = context.WithCancel(background)
					time.AfterFunc(time.Duration(i*37%50)*100*ms, stop)
				}
				if m.Wait(ctx, "key", cost) == nil {
					pay(cost)
				}
			})
			time.Sleep(time.Duration(i*29%7) * 10 * ms)
		}
		group.Wait()
		require.InDelta(t, 100*b.now().Seconds()-spent, b.level(one), 1e-6)
	})
}
