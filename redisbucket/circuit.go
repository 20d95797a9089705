package redisbucket

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// circuits keep requests from waiting for servers that do not answer. The circuit to a
// server that failed is broken: no request is sent for the time of a pause. Then one
// request is sent as a trial. All requests are sent again once the server has answered.
// If a trial has no result within the timeout, for example because its part of the
// cluster moved, another trial follows.
type circuits struct {
	pause   time.Duration
	timeout time.Duration // after which another trial may follow
	broken  atomic.Int64  // the number of broken circuits; while it is 0, nothing is locked

	mu       sync.Mutex
	byServer map[string]*circuit // the broken ones
}

type circuit struct {
	until   time.Time // no request is sent before, unless the server answers
	cause   error
	probing bool // a probe on a new connection is under way
}

// enter returns nil if a request may be sent to the server, and whether it is a trial.
func (c *circuits) enter(server string) (trial bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	broken := c.byServer[server]
	if broken == nil {
		return false, nil
	}
	if left := time.Until(broken.until); left > 0 {
		return false, fmt.Errorf("no request is sent for another %v, since the server failed: %w", left, broken.cause)
	}
	broken.until = time.Now().Add(c.timeout)
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
	broken := c.byServer[server]
	if broken == nil {
		broken = new(circuit)
		c.byServer[server] = broken
		c.broken.Store(int64(len(c.byServer)))
	}
	broken.until, broken.cause = time.Now().Add(c.pause), cause
}

// succeed notes that the server answered.
func (c *circuits) succeed(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byServer, server)
	c.broken.Store(int64(len(c.byServer)))
}

// beginProbe reports whether the caller should probe: the circuit is broken, and no other
// probe is under way.
func (c *circuits) beginProbe(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	broken := c.byServer[server]
	if broken == nil || broken.probing {
		return false
	}
	broken.probing = true
	return true
}

// endProbe notes that a probe is over, answered or not.
func (c *circuits) endProbe(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if broken := c.byServer[server]; broken != nil {
		broken.probing = false
	}
}
