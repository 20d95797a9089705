package waittest

import (
	"sync"
	"time"
)

// Clock is a clock that a test sets, also backwards. The channel of After fires when the
// clock is set to its instant or a later one. The clock counts the calls of After and the
// readings. The zero Clock starts at time.Time's zero. It is safe for concurrent use.
type Clock struct {
	base time.Time // what Set counts from

	mu     sync.Mutex
	now    time.Duration
	timers []timer
	afters int
	reads  int
}

type timer struct {
	at   time.Duration
	ring chan time.Time
}

// NewClock returns a clock that starts at an instant.
func NewClock(at time.Time) *Clock { return &Clock{base: at} }

// SetLate sets the time as Set does, but all timers are late: they fire at the next Set.
func (c *Clock) SetLate(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// Set sets the time since the clock's start and fires the timers that are due.
func (c *Clock) Set(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(now)
}

// Add lets d pass and fires the timers that are due.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(c.now + d)
}

func (c *Clock) setLocked(now time.Duration) {
	c.now = now
	pending := c.timers[:0]
	for _, t := range c.timers {
		if t.at > now {
			pending = append(pending, t)
			continue
		}
		t.ring <- c.base.Add(now)
	}
	c.timers = pending
}

// advance sets the time since the clock's start to each instant at which a timer is due,
// and finally to until. It calls settle after each step.
func (c *Clock) advance(until time.Duration, settle func()) {
	for due, ok := c.firstDue(until); ok; due, ok = c.firstDue(until) {
		c.Set(due)
		settle()
	}
	c.Set(until)
	settle()
}

// firstDue returns the earliest instant at which a timer is due, if that is not after by.
func (c *Clock) firstDue(by time.Duration) (due time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if t.at <= by {
			by, ok = t.at, true
		}
	}
	return max(by, c.now), ok
}

// ring fires all timers, due or not.
func (c *Clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		t.ring <- c.base.Add(c.now)
	}
	c.timers = nil
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.base.Add(c.now)
}

// Since returns the time since t.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// After returns a channel on which the time is sent once d has elapsed.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.afters++
	ring := make(chan time.Time, 1)
	c.timers = append(c.timers, timer{c.now + d, ring})
	return ring
}

// Afters returns how often After has been called.
func (c *Clock) Afters() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.afters
}

// Reads returns how often the time has been read.
func (c *Clock) Reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}
