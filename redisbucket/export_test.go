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

// Drain sends requests that wait in a batch: as many as each of ns says, with idle times in
// between. It returns how many were sent together each time. answered is called with the
// number of sends so far.
func Drain(idle time.Duration, answered func(sends int) bool, ns ...int) (sizes []int) {
	b := new(batch)
	b.send = func(together []*exchange) bool {
		sizes = append(sizes, len(together))
		return answered(len(sizes))
	}
	for _, n := range ns {
		for range n {
			b.waiting = append(b.waiting, new(exchange))
		}
		b.senders++
		b.drain()
		time.Sleep(idle)
	}
	return sizes
}
