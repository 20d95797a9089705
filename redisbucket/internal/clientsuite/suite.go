// Package clientsuite tests implementations of redisbucket.Client, on servers of its own.
package clientsuite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// Open returns a client of the server at an address. It closes the client at the end of the
// test.
type Open func(t testing.TB, addr string) redisbucket.Client

var background = context.Background()

// fixture is a server, a proxy in front of it, and buckets of 10 tokens with almost no
// refill.
type fixture struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *redistest.Proxy
	admin   *redis.Client
	buckets *redisbucket.Buckets
}

func newFixture(t *testing.T, open Open, opts ...redisbucket.Option) *fixture {
	t.Helper()
	f := &fixture{t: t, server: redistest.Start(t)}
	f.proxy = redistest.StartProxy(t, f.server.Addr)
	f.admin = redis.NewClient(&redis.Options{Addr: f.server.Addr})
	t.Cleanup(func() { _ = f.admin.Close() })
	opts = append([]redisbucket.Option{redisbucket.WithTimeout(10 * time.Second)}, opts...)
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e-6}
	buckets, err := redisbucket.NewWithClient(open(t, f.proxy.Addr), limit, opts...)
	require.NoError(t, err)
	f.buckets = buckets
	return f
}

func (f *fixture) take(cost float64) (bool, error) {
	_, ok, err := f.buckets.TryAcquire(background, "key", cost)
	return ok, err
}

func (f *fixture) requireTaken(cost float64) {
	f.t.Helper()
	ok, err := f.take(cost)
	require.NoError(f.t, err)
	require.True(f.t, ok)
}

// requireTakenSoon takes a token, after as many failures as there may be.
func (f *fixture) requireTakenSoon() {
	f.t.Helper()
	require.Eventually(f.t, func() bool { ok, err := f.take(1); return ok && err == nil }, 30*time.Second, 20*time.Millisecond)
}

func (f *fixture) requireLevel(want float64) {
	f.t.Helper()
	d, err := f.buckets.Peek(background, "key", 0)
	require.NoError(f.t, err)
	require.InDelta(f.t, want, d.Tokens, 0.01)
}

// Run runs all tests.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, open Open)
	}{
		{"decisions", testDecisions},
		{"many callers", testManyCallers},
		{"unknown script", testUnknownScript},
		{"foreign key", testForeignKey},
		{"replica", testReplica},
		{"cut answers", testCutAnswers},
		{"lost answers", testLostAnswers},
		{"silent server", testSilentServer},
		{"server that is gone", testGone},
		{"waiting", testWaiting},
		{"leases", testLeases},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

func testDecisions(t *testing.T, open Open) {
	f := newFixture(t, open)
	f.requireTaken(4)
	d, err := f.buckets.Take(background, "key", 7)
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, int64(6), d.Remaining())
	require.NoError(t, f.buckets.Refund(background, "key", 1))
	d, err = f.buckets.TakeEach(background, "key", 7)
	require.NoError(t, err)
	require.True(t, d.OK)
	require.NoError(t, f.buckets.Charge(background, "key", 2.5))
	f.requireLevel(-2.5)
	require.NoError(t, f.buckets.Forget(background, "key"))
	f.requireTaken(10)
	_, ok, err := f.buckets.TryAcquire(background, "\x00\r\n *3", 10)
	require.NoError(t, err)
	require.True(t, ok, "any bytes are a key")
}

func testManyCallers(t *testing.T, open Open) {
	f := newFixture(t, open)
	var group sync.WaitGroup
	var admitted atomic.Int64
	for range 50 {
		group.Go(func() {
			for range 4 {
				ok, err := f.take(0.5)
				if err != nil {
					t.Error(err)
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, int64(20), admitted.Load())
}

func testUnknownScript(t *testing.T, open Open) {
	f := newFixture(t, open)
	for range 3 {
		f.requireTaken(1)
		require.NoError(t, f.admin.ScriptFlush(background).Err())
	}
	f.requireLevel(7)
}

func testForeignKey(t *testing.T, open Open) {
	f := newFixture(t, open)
	require.NoError(t, f.admin.LPush(background, "tokenbucket:key", 1).Err())
	_, err := f.take(1)
	require.ErrorIs(t, err, redisbucket.ErrForeignKey)
	require.NoError(t, f.admin.Del(background, "tokenbucket:key").Err())
	f.requireTaken(1)
}

func testReplica(t *testing.T, open Open) {
	f := newFixture(t, open)
	f.requireTaken(1)
	require.NoError(t, f.admin.Do(background, "REPLICAOF", "127.0.0.1", "1").Err())
	_, err := f.take(1)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
	require.ErrorContains(t, err, "connect to the master")
	require.NoError(t, f.admin.Do(background, "REPLICAOF", "NO", "ONE").Err())
	f.requireTaken(1)
}

func testCutAnswers(t *testing.T, open Open) {
	f := newFixture(t, open)
	f.requireTaken(1)
	for n := 0; n < 24; n += 3 {
		runs := f.proxy.Runs()
		f.proxy.Cut(redistest.CutReply, n)
		_, err := f.take(0.1)
		require.ErrorIs(t, err, redisbucket.ErrUnavailable, n)
		require.NotContains(t, err.Error(), "delete")
		require.Equal(t, runs+1, f.proxy.Runs(), "it is not sent again")
	}
	f.requireLevel(9 - 0.8)
}

func testLostAnswers(t *testing.T, open Open) {
	f := newFixture(t, open)
	f.requireTaken(1)
	for range 3 {
		runs := f.proxy.Runs()
		f.proxy.Next(redistest.LoseReply, "")
		_, err := f.take(1)
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		require.Equal(t, runs+1, f.proxy.Runs(), "it is not sent again")
		f.requireTaken(1)
	}
	f.requireLevel(3)
}

func testSilentServer(t *testing.T, open Open) {
	f := newFixture(t, open, redisbucket.WithTimeout(300*time.Millisecond))
	f.requireTakenSoon()
	f.proxy.Silence(true)
	for range 2 {
		begin := time.Now()
		_, err := f.take(1)
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		require.Less(t, time.Since(begin), 5*time.Second)
	}
	f.proxy.Silence(false)
	f.proxy.Break()
	require.Eventually(t, func() bool { _, err := f.buckets.Peek(background, "key", 0); return err == nil }, 30*time.Second, 20*time.Millisecond)
	f.requireTakenSoon()
}

func testGone(t *testing.T, open Open) {
	f := newFixture(t, open, redisbucket.WithTimeout(2*time.Second))
	f.requireTaken(1)
	f.server.Kill()
	_, err := f.take(1)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
	f.server.Restart()
	f.requireTakenSoon()
	var d tokenbucket.Decision
	require.Eventually(t, func() (ok bool) { // the client may have several connections that ended
		var err error
		d, err = f.buckets.Peek(background, "key", 0)
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
	require.InDelta(t, 9, d.Tokens, 0.01)
}

func testWaiting(t *testing.T, open Open) {
	f := newFixture(t, open)
	require.NoError(t, f.buckets.Wait(background, "key", 10))
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	var late *tokenbucket.DeadlineError
	require.ErrorAs(t, f.buckets.Wait(ctx, "key", 1), &late)
	free, stop := context.WithCancel(background)
	time.AfterFunc(100*time.Millisecond, stop)
	require.ErrorIs(t, f.buckets.Wait(free, "key", 1), context.Canceled)
	require.Eventually(t, func() bool { // if the context ended before the answer, the cost is given back after the answer
		d, err := f.buckets.Peek(background, "key", 0)
		return err == nil && d.Tokens > -0.01
	}, 30*time.Second, 20*time.Millisecond)
	f.requireLevel(0)
}

func testLeases(t *testing.T, open Open) {
	f := newFixture(t, open, redisbucket.WithLease(5, time.Minute))
	f.requireTaken(1)
	runs := f.proxy.Runs()
	for range 4 {
		f.requireTaken(1)
	}
	require.Equal(t, runs, f.proxy.Runs(), "no round trip")
	require.NoError(t, f.buckets.Refund(background, "key", 2))
	f.requireTaken(1)
	require.NoError(t, f.buckets.Close())
	f.requireLevel(6)
}
