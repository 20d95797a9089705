package redisbucket

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Source is the script, for tests that run it with their own clock.
var Source = source

// Try begins a trial request to a server that has failed. The trial never gets a result.
func Try(b *Buckets) { _, _ = b.server.circuits.enter(b.server.client.Server("")) }

// GoRedis returns the Client that New makes.
func GoRedis(client *redis.Client) Client {
	made, _ := newGoRedis(client, time.Second)
	return made
}
