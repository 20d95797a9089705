package redisbucket

import (
	"slices"
	"sync"
)

// batch gathers the requests that come while others are under way, and sends them
// together. It has no goroutines while it is empty.
//
// It is tempting to leave this to go-redis, whose AutoPipeline gathers as well as this
// does. But that (v9.23) ignores the contexts of its callers: nothing bounds the time it
// takes to connect, and no trace has a parent. And its goroutine lives as long as the client.
type batch struct {
	send func(together []*exchange)

	mu      sync.Mutex
	waiting []*exchange
	senders int
}

const (
	maxSenders = 2  // one reads while the other writes
	maxBatch   = 16 // requests; more gains little, and the server does nothing else meanwhile
)

// add lets an exchange be sent with others.
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

// take returns the exchanges to send; if there are none, the sender is to end.
func (b *batch) take() []*exchange {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(e *exchange) bool { return e.settled.Load() }) // its caller has left
	n := min(maxBatch, len(b.waiting))
	if n == 0 {
		b.senders--
		return nil
	}
	together := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return together
}
