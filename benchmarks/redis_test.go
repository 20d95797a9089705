package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// shared is a peer that keeps its buckets in Redis.
type shared struct {
	name string
	open func(testing.TB, redis.UniversalClient, tokenbucket.Limit) (admit func(key string) bool)
}

var shareds = []shared{
	{"(PING)", sharePing},
	{"redis_rate", shareRedisRate},
	{ours, shareBuckets()},
	{ours + "-leased", shareBuckets(redisbucket.WithLease(100, time.Second), redisbucket.WithPrefix("leased:"))},
	{"throttled", shareThrottled},
}

// sharePing measures how much connections and server can do at most.
func sharePing(_ testing.TB, client redis.UniversalClient, _ tokenbucket.Limit) func(string) bool {
	return func(string) bool { return client.Ping(context.Background()).Err() == nil }
}

func shareRedisRate(_ testing.TB, client redis.UniversalClient, l tokenbucket.Limit) func(string) bool {
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1, Burst: int(l.Capacity), Period: interval(l)}
	return func(key string) bool {
		answer, err := limiter.Allow(context.Background(), key, limit)
		return err == nil && answer.Allowed == 1
	}
}

func shareBuckets(opts ...redisbucket.Option) func(testing.TB, redis.UniversalClient, tokenbucket.Limit) func(string) bool {
	opts = append(opts, redisbucket.WithTimeout(patience))
	return func(tb testing.TB, client redis.UniversalClient, l tokenbucket.Limit) func(string) bool {
		buckets := must[*redisbucket.Buckets](tb)(redisbucket.New(client, l, opts...))
		tb.Cleanup(func() { require.NoError(tb, buckets.Close()) })
		return func(key string) bool {
			_, ok, err := buckets.TryAcquire(context.Background(), key, 1)
			return err == nil && ok
		}
	}
}

func shareThrottled(tb testing.TB, client redis.UniversalClient, l tokenbucket.Limit) func(string) bool {
	limiter := throttledLimiter(tb, l, must[*goredisstore.GoRedisStore](tb)(goredisstore.NewCtx(client, "throttled:")))
	return func(key string) bool {
		limited, _, err := limiter.RateLimitCtx(context.Background(), key, 1)
		return err == nil && !limited
	}
}

// patience is how long a busy machine may take to answer before that is an error.
const patience = 10 * time.Second

// trips is a hook that counts round trips.
type trips struct{ atomic.Int64 }

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.Add(1)
		return next(ctx, cmds)
	}
}

// startRedis starts a server, and returns a client that counts its round trips.
func startRedis(tb testing.TB) (redis.UniversalClient, *trips) {
	options := redis.Options{Addr: redistest.Start(tb).Addr, PoolSize: 64, ReadTimeout: patience, ContextTimeoutEnabled: true}
	client, counted := redis.NewClient(&options), new(trips)
	client.AddHook(counted)
	tb.Cleanup(func() { _ = client.Close() })
	for range 1000 { // the first ones are slow
		require.NoError(tb, client.Ping(context.Background()).Err())
	}
	return client, counted
}

// BenchmarkRedis measures decisions on one server. All of them must be admitted, and all
// but the leased ones write to the server.
func BenchmarkRedis(b *testing.B) {
	client, counted := startRedis(b)
	admits := map[string]func(string) bool{}
	for _, p := range shareds {
		admits[p.name] = p.open(b, client, slow)
	}
	for _, o := range []order{{"1_key", uniform(1)}, {"10k_keys", uniform(10_000)}, {"10k_in_turn", inTurn(10_000)}, {"10k_zipf", zipf(10_000)}} {
		for _, clients := range []int{1, 64} {
			column := map[int]string{1: "1_client", 64: "64_clients"}[clients]
			for _, p := range shareds {
				b.Run(p.name+"/"+o.name+"/"+column, func(b *testing.B) {
					askAll(b, p.name, clients, o.draw(), admits[p.name], counted)
				})
			}
		}
	}
}

// inTurn returns a sequence in which each of n keys comes in turn.
func inTurn(n int) func() []string {
	next := 0
	return draw(func(*rand.Rand) uint64 {
		next = (next + 1) % n
		return uint64(next)
	})
}

// askAll lets n clients request the keys in turn, and reports the round trips per decision.
func askAll(b *testing.B, peer string, n int, keys []string, admit func(string) bool, counted *trips) {
	var wrong atomic.Int64
	before := counted.Load()
	b.ResetTimer()
	share(b, n, func(i int) error {
		if !admit(keys[i%accesses]) {
			wrong.Add(1)
		}
		return nil
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(counted.Load()-before)/float64(b.N), "trips/decision")
	reportWrong(b, peer, int(wrong.Load()))
}

func TestRedisPeersAdmitAndRefuse(t *testing.T) {
	client, _ := startRedis(t)
	for _, p := range shareds[1:] {
		admit := p.open(t, client, slow)
		for range 10 {
			require.True(t, admit("wide"), p.name)
		}
		admit = p.open(t, client, tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.001})
		require.True(t, admit("narrow"), p.name)
		require.False(t, admit("narrow"), p.name)
	}
}
