package simtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// method is the name of the method that a call calls.
type method string

const (
	take   method = "Take"
	try    method = "TryAcquire"
	wait   method = "Wait"
	refund method = "Refund"
	charge method = "Charge"
)

// call is one call of a process, with its result.
type call struct {
	id       int
	service  int
	method   method
	key      string
	cost     float64
	patience time.Duration // until the context ends; 0 if it does not
	cancels  bool          // the context is cancelled then; it has no deadline

	process    *process
	start, end time.Time
	granted    bool
	died       bool // the process had died by then, so no caller got the outcome
	wait       time.Duration
	err        error
}

// coded returns a cost that no other call has, so that the runs of the call can be found
// by it.
func coded(tokens, id int) float64 { return float64(tokens) + float64(id)*0x1p-32 }

// decoded returns the id of the call that a cost belongs to, 0 for none.
func decoded(cost float64) int {
	_, fraction := math.Modf(math.Abs(cost))
	return int(fraction * 0x1p32)
}

// do makes the call.
func (c *call) do() {
	ctx, cancel := c.context()
	defer cancel()
	c.start = time.Now()
	b := c.process.buckets[c.service]
	switch c.method {
	case take:
		var d tokenbucket.Decision
		d, c.err = b.Take(ctx, c.key, c.cost)
		c.granted, c.wait = d.OK, d.Wait
	case try:
		c.wait, c.granted, c.err = b.TryAcquire(ctx, c.key, c.cost)
	case wait:
		c.err = b.Wait(ctx, c.key, c.cost)
		c.granted = c.err == nil
	case refund:
		c.err = b.Refund(ctx, c.key, c.cost)
	case charge:
		c.err = b.Charge(ctx, c.key, c.cost)
	}
	c.end = time.Now()
	c.process.world.mu.Lock()
	defer c.process.world.mu.Unlock()
	c.died = c.process.died
}

func (c *call) context() (context.Context, context.CancelFunc) {
	switch {
	case c.patience == 0:
		return context.Background(), func() {} // the caller waits for the answer itself
	case !c.cancels:
		return context.WithTimeout(c.process.alive, c.patience)
	}
	ctx, cancel := context.WithCancel(c.process.alive)
	timer := time.AfterFunc(c.patience, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// failed reports whether the server did not decide in time.
func (c *call) failed() bool { return errors.Is(c.err, redisbucket.ErrUnavailable) }

// took reports whether the caller got its tokens.
func (c *call) took() bool {
	return c.err == nil && !c.died && (c.granted || c.method == charge)
}

// outcome returns the result of the call in one word.
func (c *call) outcome() string {
	var late *tokenbucket.DeadlineError
	switch {
	case c.failed():
		return "unavailable"
	case errors.As(c.err, &late):
		return fmt.Sprintf("too late %v", late.Wait)
	case errors.Is(c.err, context.Canceled):
		return "cancelled"
	case errors.Is(c.err, context.DeadlineExceeded):
		return "deadline"
	case c.err != nil:
		return c.err.Error()
	case c.granted || c.method == refund || c.method == charge:
		return "ok"
	default:
		return fmt.Sprintf("refused %v", c.wait)
	}
}

func (c *call) String() string {
	origin := c.process.world.origin
	return fmt.Sprintf("call %d: process %d: %s %s %.10f: %v to %v: %s", c.id, c.process.id, c.method, c.key, c.cost, c.start.Sub(origin), c.end.Sub(origin), c.outcome())
}
