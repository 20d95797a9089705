package redisbucket

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
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

// Batch is a batch of requests without callers.
type Batch struct{ batch batch }

// NewBatch returns a batch. send gets how many requests are sent together, and returns
// whether they were answered.
func NewBatch(send func(n int) (answered bool)) *Batch {
	return &Batch{batch{send: func(together []*exchange) bool { return send(len(together)) }}}
}

// Add adds n requests.
func (b *Batch) Add(n int) {
	for range n {
		b.batch.add(new(exchange))
	}
}

// SendTogether sends n requests in one batch, without WithBreak and WithErrorHandler. It
// returns the error that each caller gets, and whether the server answered all.
func SendTogether(client Batcher, n int) (errs []error, answered bool) {
	c, _ := newConfig(tokenbucket.PerSecond(1), nil)
	together := make([]*exchange, n)
	for i := range together {
		together[i] = &exchange{ctx: context.Background(), request: request{key: "key", price: price{cost: 1}}}
	}
	answered = newServer(client, c).sendTogether(client, together)
	for _, e := range together {
		errs = append(errs, e.err)
	}
	return errs, answered
}
