package redisbucket

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// circuits keep requests from waiting for servers that do not answer. The circuit to a
// server that has failed is broken: no request is sent for a while, then one as a trial,
// and the others once the server has answered. If nothing is heard of a trial any more,
// since the server's part of a cluster moved, say, another one follows.
type circuits struct {
	pause   time.Duration
	timeout time.Duration // that a trial may take
	broken  atomic.Int64  // how many there are: while there are none, nothing is locked

	mu       sync.Mutex
	byServer map[string]*circuit // the broken ones
}

type circuit struct {
	until   time.Time // no request before, unless the server answers
	cause   error
	probing bool // a probe on a new connection is under way
}

// enter returns nil if a request may be sent to the server, and whether it is a trial.
func (c *circuits) enter(server string) (trial bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.byServer[server]
	if f == nil {
		return false, nil
	}
	if left := time.Until(f.until); left > 0 {
		return false, fmt.Errorf("left alone for another %v after: %w", left, f.cause)
	}
	f.until = time.Now().Add(c.timeout)
	return true, nil
}

// fail notes that the server did not answer.
func (c *circuits) fail(server string, cause error) {
	if c.pause <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byServer == nil {
		c.byServer = map[string]*circuit{}
	}
	f := c.byServer[server]
	if f == nil {
		f = new(circuit)
		c.byServer[server] = f
		c.broken.Store(int64(len(c.byServer)))
	}
	f.until, f.cause = time.Now().Add(c.pause), cause
}

// succeed notes that the server answered.
func (c *circuits) succeed(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byServer, server)
	c.broken.Store(int64(len(c.byServer)))
}

// beginProbe reports whether a broken circuit is to be probed: none is under way.
func (c *circuits) beginProbe(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.byServer[server]
	if f == nil || f.probing {
		return false
	}
	f.probing = true
	return true
}

// endProbe notes that a probe was not answered.
func (c *circuits) endProbe(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.byServer[server]; f != nil {
		f.probing = false
	}
}
