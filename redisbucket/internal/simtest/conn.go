package simtest

import (
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// conn is a client's end of a connection, with the state that the network and the server
// have of it. The world's mutex guards it.
type conn struct {
	world *world
	owner *process

	arrived  []chunk // not read yet
	end      error   // after what arrived
	deadline time.Time
	late     time.Duration // how long after the deadline Read gives up
	wake     chan struct{} // something changed
	closed   bool
	silent   bool // no bytes get through any more, in either direction

	partial []byte    // the beginning of a request, at the server
	there   time.Time // when the latest message arrives at the server
	back    time.Time // and at the client
}

// chunk is an answer of the server, and the run that it answers.
type chunk struct {
	data []byte
	run  *run // nil if it is not the whole answer of a run
}

// Read waits for an answer.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, left, err := c.tryRead(p)
		if n > 0 || err != nil {
			return n, err
		}
		c.await(left)
	}
}

// await waits until something changes, at most for left; 0 means for ever.
func (c *conn) await(left time.Duration) {
	if left == 0 {
		<-c.wake
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-c.wake:
	case <-timer.C:
	}
}

func (c *conn) tryRead(p []byte) (n int, left time.Duration, err error) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	if !c.deadline.IsZero() {
		left = time.Until(c.deadline) + c.late
	}
	switch {
	case c.closed:
		return 0, 0, net.ErrClosed
	case left < 0 || left == 0 && !c.deadline.IsZero():
		return 0, 0, os.ErrDeadlineExceeded
	case len(c.arrived) > 0:
		return c.consume(p), 0, nil
	default:
		return 0, left, c.end
	}
}

// consume reads the bytes that have arrived. It notes the runs whose answers have been
// read.
func (c *conn) consume(p []byte) (n int) {
	for len(c.arrived) > 0 && n < len(p) {
		first := &c.arrived[0]
		copied := copy(p[n:], first.data)
		n, first.data = n+copied, first.data[copied:]
		if len(first.data) > 0 {
			break
		}
		if first.run != nil {
			first.run.read = time.Now()
		}
		c.arrived = c.arrived[1:]
	}
	return n
}

// Write sends a request.
func (c *conn) Write(p []byte) (int, error) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.end != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	c.sendLocked(slices.Clone(p))
	return len(p), nil
}

// sendLocked lets the network carry a request.
func (c *conn) sendLocked(p []byte) {
	sent, fate := time.Now(), c.fateLocked(1, p)
	switch {
	case c.silent:
	case fate.cut:
		c.laterLocked(&c.there, fate.latency, func() { c.breakLocked(fate) })
	default:
		c.laterLocked(&c.there, fate.latency, func() {
			c.partial = append(c.partial, p...)
			for words := c.nextLocked(); words != nil; words = c.nextLocked() {
				c.world.server.receiveLocked(request{c, words, sent})
			}
		})
	}
}

// answerLocked lets the network carry an answer.
func (c *conn) answerLocked(data []byte, r *run) {
	fate := c.fateLocked(2, data)
	if c.silent {
		return
	}
	if fate.cut {
		data, r = data[:int(fate.share*float64(len(data)))], nil
	}
	c.laterLocked(&c.back, fate.latency, func() {
		if len(data) > 0 {
			c.arrived = append(c.arrived, chunk{data, r})
		}
		if fate.cut {
			c.breakLocked(fate)
		}
		c.notify()
	})
}

// fateLocked decides what becomes of a message.
func (c *conn) fateLocked(direction uint64, data []byte) fate {
	fate := c.world.fateLocked(c.owner, direction, data)
	c.silent = c.silent || fate.silent
	c.late = fate.late()
	return fate
}

// laterLocked calls do when a message arrives, but not before the message sent before it
// has arrived.
func (c *conn) laterLocked(latest *time.Time, latency time.Duration, do func()) {
	at := time.Now().Add(latency)
	if !at.After(*latest) {
		at = latest.Add(1 + latency%1000)
	}
	*latest = at
	time.AfterFunc(time.Until(at), func() {
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		if c.end == nil {
			do()
		}
	})
}

// closeLocked ends the connection as a server does when it ends.
func (c *conn) closeLocked() { c.breakLocked(fate{share: 1}) }

// breakLocked ends the connection, which the client sees at once.
func (c *conn) breakLocked(f fate) {
	if c.end != nil || c.closed {
		return
	}
	c.end = io.EOF
	if f.share < 0.5 {
		c.end = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	c.notify()
}

func (c *conn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Close ends the connection. Messages that were sent before still arrive.
func (c *conn) Close() error {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.world.connections = slices.DeleteFunc(c.world.connections, func(other *conn) bool { return other == c })
		c.notify()
	}
	return nil
}

// SetReadDeadline sets when Read gives up.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.deadline = t
	c.notify()
	return nil
}

// SetDeadline is SetReadDeadline: Write does not wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr returns the process' address.
func (c *conn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, 0, 1, byte(c.owner.id)), Port: 1}
}

// RemoteAddr returns the server's address.
func (c *conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379} }
