package redisbucket

import (
	"slices"
	"sync"
)

// batch collects the requests that come while others are under way, and sends them
// together. It has no goroutine while it is empty.
//
// go-redis' AutoPipeline also collects requests, and is as fast. But AutoPipeline (v9.23)
// ignores the contexts of its callers: nothing bounds the time it takes to connect, and
// no span has a parent. Its goroutine lives as long as the client.
type batch struct {
	send func(together []*exchange)

	mu      sync.Mutex
	waiting []*exchange
	senders int
}

const (
	maxSenders = 2  // one reads while the other writes
	maxBatch   = 16 // requests; a larger batch gains little, and the server does nothing else meanwhile
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
	for together := b.take(); len(together) > 0; together = b.take() {
		b.send(together)
	}
}

// take returns the exchanges to send. If it returns none, the sender ends.
func (b *batch) take() []*exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, (*exchange).drop)
	n := min(maxBatch, len(b.waiting))
	if n == 0 {
		b.senders--
		return nil
	}
	together := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return together
}
