package benchmarks

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// startRedis returns the address of a server of our own that keeps nothing on disk.
func startRedis(b *testing.B) string {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("no redis-server: apt-get install redis-server")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := free.Addr().(*net.TCPAddr)
	_ = free.Close()
	server := exec.Command(path, "--bind", "127.0.0.1", "--port", fmt.Sprint(addr.Port), "--save", "", "--appendonly", "no")
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for range 100 {
		if conn, err := net.Dial("tcp", addr.String()); err == nil {
			_ = conn.Close()
			return addr.String()
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Fatal("redis-server does not answer")
	return ""
}

// BenchmarkRedis compares decisions a second on one server. All of them are admitted,
// and all write; ping is what connections and server can do at most.
func BenchmarkRedis(b *testing.B) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: startRedis(b), PoolSize: 64})
	defer client.Close()
	buckets, err := redisbucket.New(client, tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1})
	if err != nil {
		b.Fatal(err)
	}
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1_000_000, Burst: 1 << 30, Period: time.Second}
	peers := []struct {
		name   string
		decide func(key string) error
	}{
		{"ping", func(string) error { return client.Ping(ctx).Err() }},
		{"redis_rate", func(key string) error { _, err := limiter.Allow(ctx, key, limit); return err }},
		{"redisbucket", func(key string) error { _, err := buckets.Take(ctx, key, 1); return err }},
	}
	for _, n := range []int{1, 10_000} {
		order := draw(n, false)
		for _, clients := range []int{1, 64} {
			for _, peer := range peers {
				b.Run(fmt.Sprintf("keys=%d/clients=%d/%s", n, clients, peer.name), func(b *testing.B) {
					ask(b, clients, order, peer.decide)
				})
			}
		}
	}
}

// ask lets so many clients share the work.
func ask(b *testing.B, clients int, order []string, decide func(key string) error) {
	var next atomic.Int64
	done := make(chan error, clients)
	b.ResetTimer()
	for range clients {
		go func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := decide(order[i%accesses]); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
