package redisbucket

import (
	"slices"
	"sync"
	"time"
)

// batch collects the requests that come while others are under way, and sends them
// together. It has no goroutine while it is empty.
//
// go-redis' AutoPipeline also collects requests, and is as fast. But AutoPipeline (v9.23)
// ignores the contexts of its callers: nothing bounds the time it takes to connect, and
// no span has a parent. Its goroutine lives as long as the client.
//
// A dead connection fails all requests that are sent on it together, so a connection that
// may have been idle gets a single request first. The client chooses the connection:
// go-redis takes the one that was returned last. So a send that begins while another one is
// under way gets the connection of the last send that began so. An answer to such a send
// proves this connection for the next one. The same holds for sends that begin alone.
type batch struct {
	send func(together []*exchange) (answered bool)

	mu      sync.Mutex
	waiting []*exchange
	senders int
	sending int                   // sends under way
	proven  [maxSenders]time.Time // when a send was answered last, by the number of other sends at its beginning
}

const (
	maxSenders = 2           // one reads while the other writes
	maxBatch   = 16          // requests; a larger batch gains little, and the server does nothing else meanwhile
	proofLasts = time.Second // servers and firewalls close connections that are idle for longer
)

// add queues an exchange. It starts a sender unless there are maxSenders.
func (b *batch) add(e *exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, e)
	if b.senders < maxSenders {
		b.senders++
		go b.drain()
	}
}

func (b *batch) drain() {
	for {
		together, others := b.begin()
		if len(together) == 0 {
			return
		}
		b.end(others, b.send(together))
	}
}

// begin returns the exchanges to send, and how many other sends are under way. If it
// returns no exchanges, the sender ends.
func (b *batch) begin() (together []*exchange, others int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, (*exchange).drop)
	if len(b.waiting) == 0 {
		b.senders--
		return nil, 0
	}
	others, n := b.sending, 1
	if time.Since(b.proven[others]) < proofLasts {
		n = min(maxBatch, len(b.waiting))
	}
	b.sending++
	together = slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return together, others
}

// end notes that a send is over. If it was not answered, no connection is proven any more.
func (b *batch) end(others int, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending--
	if answered {
		b.proven[others] = time.Now()
	} else {
		b.proven = [maxSenders]time.Time{}
	}
}
