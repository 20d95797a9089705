package redisbucket_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket/redisbucket"
	"github.com/aa014e13/tokenbucket/redisbucket/internal/clientsuite"
)

func TestGoRedisAsAClient(t *testing.T) {
	clientsuite.Run(t, func(t testing.TB, addr string) redisbucket.Client {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		return redisbucket.GoRedis(client)
	})
}
