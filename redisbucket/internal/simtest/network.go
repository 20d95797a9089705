package simtest

import (
	"context"
	"hash/fnv"
	"net"
	"slices"
	"syscall"
	"time"
)

// weather is how the network treats each message, in either direction.
type weather struct {
	least, most time.Duration // latency
	slow        float64       // probability that a message was lost and is sent again, which takes up to 0.6 s
	silent      float64       // probability that a connection carries nothing more from here on
	cut         float64       // probability that a message is cut, and the connection with it
}

var fair = weather{least: 50 * time.Microsecond, most: 2 * time.Millisecond}

// fate is what becomes of a message.
type fate struct {
	latency time.Duration
	silent  bool
	cut     bool
	share   float64 // of it that arrives if it is cut, from 0 to below 1
}

// late returns how much later than it should a goroutine wakes up: less than a microsecond. What
// ends at the same instant otherwise, such as all that share a context, would go on in any order.
func (f fate) late() time.Duration { return 1 + f.latency%1000 }

// fateLocked decides what becomes of a message, by nothing but its sender, its content and the
// instant. What several goroutines do at the same instant, in any order, has the same fate.
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

// eachLocked calls a function with each connection that one of the processes has, or all.
func (w *world) eachLocked(owner *process, do func(c *conn)) {
	for _, c := range slices.Clone(w.connections) {
		if owner == nil || c.owner == owner {
			do(c)
		}
	}
}

// deadLocked counts the connections of a process that are dead without its client knowing.
func (w *world) deadLocked(p *process) (n int) {
	w.eachLocked(p, func(c *conn) {
		if c.silent || c.end != nil {
			n++
		}
	})
	return n
}
