package simtest

import (
	"context"
	"hash/fnv"
	"net"
	"slices"
	"syscall"
	"time"
)

// weather holds the probabilities of the network's faults, for messages in either
// direction.
type weather struct {
	least, most time.Duration // latency
	slow        float64       // probability that a message was lost and is sent again, which takes up to 0.6 s
	silent      float64       // probability that a connection is dead from this message on
	cut         float64       // probability that a message is cut, and the connection with it
}

var fair = weather{least: 50 * time.Microsecond, most: 2 * time.Millisecond}

// fate is what the network does to a message.
type fate struct {
	latency time.Duration
	silent  bool
	cut     bool
	share   float64 // of it that arrives if it is cut, from 0 to below 1
}

// late returns a delay, of at most a microsecond, with which a goroutine wakes up. Without it,
// goroutines that wake at the same instant, such as those that share a context, would continue
// in any order.
func (f fate) late() time.Duration { return 1 + f.latency%1000 }

// fateLocked decides about a message. The result depends only on the sender, the content and
// the instant, not on the order of messages that are sent at the same instant.
func (w *world) fateLocked(owner *process, direction uint64, data []byte) fate {
	sum := fnv.New64a()
	_, _ = sum.Write(data)
	r := w.random(1, uint64(owner.id), direction, uint64(time.Since(w.origin)), sum.Sum64())
	f := fate{
		latency: between(r, w.weather.least, w.weather.most),
		silent:  owner.severed || r.Float64() < w.weather.silent,
		cut:     r.Float64() < w.weather.cut,
		share:   r.Float64(),
	}
	if r.Float64() < w.weather.slow {
		f.latency += between(r, 200*time.Millisecond, 600*time.Millisecond)
	}
	return f
}

// dial connects a process with the server.
func (w *world) dial(ctx context.Context, p *process) (net.Conn, error) {
	w.mu.Lock()
	fate := w.fateLocked(p, 0, nil)
	w.mu.Unlock()
	wait, failure := fate.latency, error(nil)
	if fate.silent {
		wait, failure = 5*time.Second, syscall.ETIMEDOUT
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		time.Sleep(fate.late())
		failure = ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if failure == nil && w.server.down {
		failure = syscall.ECONNREFUSED
	}
	if failure != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: failure}
	}
	c := &conn{world: w, owner: p, wake: make(chan struct{}, 1)}
	w.connections = append(w.connections, c)
	return c, nil
}

// eachLocked calls a function with each connection of a process or, if owner is nil, of
// all processes.
func (w *world) eachLocked(owner *process, do func(c *conn)) {
	for _, c := range slices.Clone(w.connections) {
		if owner == nil || c.owner == owner {
			do(c)
		}
	}
}

// deadLocked counts the dead connections of a process that its client has not noticed.
func (w *world) deadLocked(p *process) (n int) {
	w.eachLocked(p, func(c *conn) {
		if c.silent || c.end != nil {
			n++
		}
	})
	return n
}
