package redisbucket

import (
	"slices"
	"sync"
	"time"
)

// batch collects the requests that come while others are under way, and sends them
// together. It has no goroutine while it is empty.
//
// go-redis' AutoPipeline also collects requests, and made a tenth more decisions with 64
// callers. But AutoPipeline (v9.23) ignores the contexts of its callers: nothing bounds the
// time it takes to connect, and no span has a parent. Its goroutine lives as long as the
// client.
//
// A dead connection fails all requests that are sent on it together, so a connection that
// may have been idle should get a single request first. But the client chooses the
// connection. go-redis has a pool for pipelines and takes the connection that was returned
// last. So sends that do not overlap use one connection, and sends that overlap use two. A
// send that begins alone has a single request, unless an earlier one that began alone was
// answered less than proofLasts ago. Likewise, a send that begins beside another one has a
// single request, unless an earlier one that also began beside another was answered less
// than proofLasts ago.
//
// So a batch is likely to get a new connection, or one that has been idle for little longer
// than proofLasts at most. That is not certain: two senders that begin together may get
// their connections in the other order, and the application may use the same pool. What is
// certain is that one failure fails at most maxBatch requests, and that after it each send
// has a single request, until one of its kind is answered.
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
		b.sendOnce(together, others)
	}
}

// sendOnce sends exchanges. If send ends the goroutine, as an error handler can with
// runtime.Goexit, another sender takes its place. Callers of this send that have no answer yet
// wait for their timeouts then.
func (b *batch) sendOnce(together []*exchange, others int) {
	answered, returned := false, false
	defer func() {
		b.end(others, answered)
		if !returned {
			go b.drain()
		}
	}()
	answered = b.send(together)
	returned = true
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
