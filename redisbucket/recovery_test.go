package redisbucket_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
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

// calls are all calls that read an answer.
var calls = map[string]func(b *redisbucket.Buckets) error{
	"Take":       func(b *redisbucket.Buckets) error { _, err := b.Take(background, "key", 1); return err },
	"refused":    func(b *redisbucket.Buckets) error { _, err := b.Take(background, "key", 10); return err },
	"TryAcquire": func(b *redisbucket.Buckets) error { _, _, err := b.TryAcquire(background, "key", 1); return err },
	"Wait":       func(b *redisbucket.Buckets) error { return b.Wait(background, "key", 1) },
	"Refund":     func(b *redisbucket.Buckets) error { return b.Refund(background, "key", 1) },
	"Forget":     func(b *redisbucket.Buckets) error { return b.Forget(background, "key") },
}

// cutEverywhere cuts the answer to a call at every length, until it is complete.
func cutEverywhere(f *frail, call func() error, check func(err error)) {
	for n := 0; ; n++ {
		f.drain(f.buckets, 1) // now there is a connection, and the bucket is not full
		f.Cut(redistest.CutReply, n)
		err := call()
		f.to(f.now() + time.Minute)
		if err == nil {
			require.Greater(f.t, n, 20, "the whole answer")
			return
		}
		check(err)
	}
}

func TestACutAnswerIsNoAnswer(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			withFrail(t, func(f *frail) {
				cuts := 0
				cutEverywhere(f, func() error { return call(f.buckets) }, func(err error) {
					cuts++
					f.requireUnavailable(err)
					require.NotErrorIs(t, err, redisbucket.ErrForeignKey)
					require.NotContains(t, err.Error(), "delete")
				})
				require.Len(t, f.failures, cuts)
			})
		})
	}
}

func TestACutAnswerIsForTheFallback(t *testing.T) {
	withFrail(t, func(f *frail) {
		for n := range 20 {
			f.connect()
			f.Cut(redistest.CutReply, n)
			d, err := f.buckets.Take(background, "key", 1)
			require.NoError(t, err)
			require.Equal(t, int64(99-n), d.Remaining(), "the fallback's")
			f.Cut(redistest.CutReply, n)
			require.ErrorIs(t, f.buckets.Forget(background, "key"), redisbucket.ErrUnavailable)
		}
		require.Len(t, f.failures, 40)
	}, redisbucket.WithFallback(localOf(t, 100)))
}

func TestACutAnswerOfALease(t *testing.T) {
	withFrail(t, func(f *frail) {
		for n := 0; ; n++ {
			f.drain(f.machine([]tokenbucket.Limit{limit(10, 1)}), 1)
			f.connect()
			f.Cut(redistest.CutReply, n)
			err := f.take(background)
			f.to(f.now() + time.Minute)
			if err == nil {
				break
			}
			f.requireUnavailable(err)
			require.NotContains(t, err.Error(), "delete")
		}
	}, redisbucket.WithLease(5, maxAge))
}

// The answers of a batch that were read before it was cut count.
func TestACutBatch(t *testing.T) {
	for _, n := range []int{0, 1, 40, 60, 100, 200} {
		withFrail(t, func(f *frail) {
			require.Positive(t, f.refundTogether(func() { f.Cut(redistest.CutBatch, n) }))
		})
	}
}

// askUntil lets callers send requests all the time. It returns when the last call failed,
// and how many failed.
func (f *frail) askUntil(callers int, end time.Duration) (last time.Duration, failed int) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for range callers {
		group.Go(func() {
			for f.now() < end {
				if _, err := f.buckets.Take(background, "key", 0); err != nil {
					mu.Lock()
					last, failed = max(last, f.now()), failed+1
					mu.Unlock()
				}
				time.Sleep(10 * ms)
			}
		})
	}
	group.Wait()
	return last, failed
}

// fillPool makes n connections.
func (f *frail) fillPool(n int) {
	f.Delay(50 * ms)
	var group sync.WaitGroup
	ready := make(chan struct{})
	for range n {
		group.Go(func() { <-ready; _ = f.client.Ping(background).Err() })
	}
	close(ready)
	group.Wait()
	f.Delay(0)
	require.Equal(f.t, n, int(f.client.PoolStats().IdleConns))
}

func TestSilentlyDeadConnections(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.fillPool(20)
		require.NoError(t, f.take(background))
		f.Forget()
		begin := f.now()
		last, failed := f.askUntil(8, begin+4*sec)
		t.Logf("%d calls failed, the last after %v", failed, last-begin)
		require.LessOrEqual(t, last-begin, 1600*ms, "as soon as the client alone, which needs three timeouts")
		require.LessOrEqual(t, failed, 20, "one for each connection")
	})
}

// One dead connection among many does not break the circuit.
func TestADeadConnectionIsNoDeadServer(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.fillPool(1)
		f.Forget()
		_, failed := f.askUntil(8, 2*sec)
		require.Equal(t, 1, failed)
	})
}

func TestConnectionsThatBreakDoNotBreakTheCircuit(t *testing.T) {
	withFrail(t, func(f *frail) {
		for range 5 {
			require.NoError(t, f.take(background))
			f.Next(redistest.LoseReply, "")
			begin := f.now()
			f.requireUnavailable(f.take(background), "closed")
			require.NoError(t, f.take(background))
			require.Equal(t, begin, f.now())
			require.NoError(t, f.buckets.Refund(background, "key", 3))
		}
	})
}

// A TLS client notices only with its next request that a server has closed a connection.
func TestTLSConnectionsThatTheServerClosed(t *testing.T) {
	server := redistest.Start(t)
	config := testTLS(t)
	proxy := redistest.NewProxy(func() (net.Conn, error) { return net.Dial("tcp", server.Addr) })
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close(); proxy.Break() })
	go proxy.Serve(listener)
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), TLSConfig: &tls.Config{InsecureSkipVerify: true}})
	t.Cleanup(func() { _ = client.Close() })
	var failures atomic.Int64
	b := newBuckets(t, client, []tokenbucket.Limit{limit(1e6, 1)}, redisbucket.WithErrorHandler(func(error) { failures.Add(1) }))
	ask := func() (failed int64) {
		var group sync.WaitGroup
		var count atomic.Int64
		for range 8 {
			group.Go(func() {
				for range 50 {
					if _, _, err := b.TryAcquire(background, "key", 1); err != nil {
						count.Add(1)
						require.NotContains(t, err.Error(), "no request is sent")
					}
				}
			})
		}
		group.Wait()
		return count.Load()
	}
	require.Zero(t, ask())
	idle := int64(proxy.Connections())
	proxy.Break()
	require.LessOrEqual(t, ask(), idle, "at most one for each connection")
}

func testTLS(t *testing.T) *tls.Config {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates}
}

const oldServer = "-ERR Error running script (call to f_1): @user_script:87: @user_script: 87: Write commands not allowed after non deterministic commands. Call redis.replicate_commands() at the start of your script.\r\n"

func TestAServerThatIsTooOld(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.connect()
		f.Next(redistest.Reply, oldServer)
		f.requireUnavailable(f.take(background), "Redis 5 or Valkey 7.2, or newer")
	})
	withFrail(t, func(f *frail) {
		f.connect()
		for range 600 { // five minutes
			f.Next(redistest.Reply, oldServer)
			_, err := f.buckets.Take(background, "key", 1)
			require.NoError(t, err, "the fallback's")
			f.to(f.now() + 500*ms)
		}
		require.Len(t, f.failures, 5, "once a minute")
		require.ErrorContains(t, f.failures[4], "Redis 5 or Valkey 7.2, or newer")
	}, redisbucket.WithFallback(localOf(t, 1000)))
}

func TestARingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	_, err := redisbucket.New(ring, limit(1, 1))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	require.ErrorContains(t, err, "Cluster")
}

// contexts notes the names that the contexts of commands and pipelines carry.
type contexts struct {
	mu    sync.Mutex
	names []any
}

type nameKey struct{}

func (c *contexts) note(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := redisbucket.Callers(ctx)
	if all == nil {
		all = []context.Context{ctx}
	}
	for _, ctx := range all {
		c.names = append(c.names, ctx.Value(nameKey{}))
	}
}

func (c *contexts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *contexts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			c.note(ctx)
		}
		return next(ctx, cmd)
	}
}

func (c *contexts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			c.note(ctx)
		}
		return next(ctx, cmds)
	}
}

// Each request has its caller's context, alone or in a batch, with the hooks of
// WithInstrument as well as with the client's own hooks.
func TestHooksSeeEveryCaller(t *testing.T) {
	server := redistest.Start(t)
	for name, prompt := range map[string]bool{"WithInstrument": false, "the client's": true} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: prompt})
			defer client.Close()
			hook := new(contexts)
			var opts []redisbucket.Option
			if prompt {
				client.AddHook(hook)
			} else {
				opts = append(opts, redisbucket.WithInstrument(func(c redis.UniversalClient) { c.AddHook(hook) }))
			}
			b := newBuckets(t, client, []tokenbucket.Limit{limit(1e6, 1)}, opts...)
			const callers, each = 32, 20
			var group sync.WaitGroup
			for i := range callers {
				group.Go(func() {
					for range each {
						_, _, err := b.TryAcquire(context.WithValue(background, nameKey{}, i), "key", 1)
						require.NoError(t, err)
					}
				})
			}
			group.Wait()
			seen := map[any]int{}
			for _, name := range hook.names {
				seen[name]++
			}
			for i := range callers {
				require.Equal(t, each, seen[i])
			}
		})
	}
}
