package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// BenchmarkLease compares decisions a second for 64 callers of one key, with and
// without a lease of 100 tokens. All of them are admitted.
func BenchmarkLease(b *testing.B) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: startRedis(b), PoolSize: 64})
	defer client.Close()
	limit := tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1}
	for _, mode := range []struct {
		name string
		opts []redisbucket.Option
	}{
		{"plain", nil},
		{"lease", []redisbucket.Option{redisbucket.WithLease(100, time.Second)}},
	} {
		buckets, err := redisbucket.New(client, limit, mode.opts...)
		if err != nil {
			b.Fatal(err)
		}
		defer buckets.Close()
		for name, decide := range map[string]func(key string) error{
			"Take":       func(key string) error { _, err := buckets.Take(ctx, key, 1); return err },
			"TryAcquire": func(key string) error { _, _, err := buckets.TryAcquire(ctx, key, 1); return err },
		} {
			b.Run(name+"/"+mode.name, func(b *testing.B) {
				ask(b, 64, draw(1, false), decide)
			})
		}
	}
}
