package redisbucket

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// circuits keep requests from queueing on servers that do not answer. After a
// failure a server is left alone for a while, then one request is let through as a
// probe; the others follow once it has been answered. A probe of which nothing is
// heard any more, since the server's part of a cluster moved, say, is followed by
// another.
type circuits struct {
	pause   time.Duration
	timeout time.Duration // that a probe may take
	open    atomic.Int64  // how many servers have failed: while none has, nothing is locked

	mu     sync.Mutex
	failed map[string]*circuit // by server
}

type circuit struct {
	until time.Time // no request before, unless a probe is answered
	cause error
}

// enter returns nil if a request may be sent to the server.
func (c *circuits) enter(server string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.failed[server]
	if f == nil {
		return nil
	}
	if left := time.Until(f.until); left > 0 {
		return fmt.Errorf("left alone for another %v after: %w", left, f.cause)
	}
	f.until = time.Now().Add(c.timeout)
	return nil
}

// fail notes that the server did not answer.
func (c *circuits) fail(server string, cause error) {
	if c.pause <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = map[string]*circuit{}
	}
	c.failed[server] = &circuit{until: time.Now().Add(c.pause), cause: cause}
	c.open.Store(int64(len(c.failed)))
}

// succeed notes that the server answered.
func (c *circuits) succeed(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.failed, server)
	c.open.Store(int64(len(c.failed)))
}
