package redisbucket

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Source is the script, for tests that run it with a clock of their own.
var Source = source

// Try lets a trial go to a server that has failed, of which nothing is heard any more.
func Try(b *Buckets) { _, _ = b.server.circuits.enter(b.server.client.Server("")) }

// GoRedis returns the Client that New makes.
func GoRedis(client *redis.Client) Client {
	made, _ := newGoRedis(client, time.Second)
	return made
}
