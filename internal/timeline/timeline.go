// Package timeline counts the time of a clock in nanoseconds since an origin, for the
// buckets, keyed buckets and transports of this module.
package timeline

import (
	"math"
	"time"
)

// Never is an instant that does not come. A sum of an instant and a wait is at most Never.
const Never time.Duration = math.MaxInt64

// End is the latest reading of a Timeline, 292 years after the origin. It is before Never, so
// a waiter that is due at Never is never served.
const End = Never - 1

// Clock is tokenbucket.Clock.
type Clock interface {
	Now() time.Time
	Since(t time.Time) time.Duration
	After(d time.Duration) <-chan time.Time
}

// Timeline is a clock and an origin. If Clock is nil, it is the system clock, which is called
// directly: reading the clock takes most of the time of a decision.
type Timeline struct {
	Clock  Clock
	Origin time.Time
}

// Watched is the system clock for tests that need its readings. Since calls Saw with each
// reading, in the goroutine that called Since. That goroutine continues when Saw returns. Now
// does not call Saw.
type Watched struct {
	Saw func(reading time.Duration)
}

// Now returns the current time.
func (Watched) Now() time.Time { return time.Now() }

// Since returns the time elapsed since t.
func (w Watched) Since(t time.Time) time.Duration {
	reading := time.Since(t)
	w.Saw(reading)
	return reading
}

// After returns a channel on which the time is sent once d has elapsed.
func (Watched) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Start returns a timeline whose origin is now. If clock is nil, it is the system clock.
func Start(clock Clock) Timeline {
	if clock == nil {
		return Timeline{Origin: time.Now()}
	}
	return Timeline{clock, clock.Now()}
}

// Resume returns a timeline with an earlier origin. With the system clock, it counts
// monotonic time from now on, even if the origin has lost its monotonic reading.
func Resume(clock Clock, origin time.Time) Timeline {
	if clock == nil {
		now := time.Now()
		origin = now.Add(origin.Sub(now))
	}
	return Timeline{clock, origin}
}

// Now returns the time since the origin, at most End.
func (t *Timeline) Now() time.Duration {
	if t.Clock == nil {
		return min(time.Since(t.Origin), End)
	}
	return min(t.Clock.Since(t.Origin), End)
}

// IsSteady reports whether the clock is the system clock, which never steps back.
func (t *Timeline) IsSteady() bool {
	if t.Clock == nil {
		return true
	}
	_, isWatched := t.Clock.(Watched)
	return isWatched
}

// After returns a channel on which the time is sent once d has elapsed. With the system
// clock, that is the channel of the timer in kept. After makes the timer if it is nil, and
// sets it.
func (t *Timeline) After(d time.Duration, kept **time.Timer) <-chan time.Time {
	switch {
	case t.Clock != nil:
		return t.Clock.After(d)
	case *kept == nil:
		*kept = time.NewTimer(d)
	default:
		(*kept).Reset(d)
	}
	return (*kept).C
}

// Left returns the time until the deadline of a context. The deadline may be in the time
// of this clock or in real time: Left returns the larger of the two results.
func (t *Timeline) Left(deadline time.Time) time.Duration {
	left := time.Until(deadline)
	if t.Clock != nil {
		left = max(left, deadline.Sub(t.Clock.Now()))
	}
	return left
}

// Later returns at + wait, at most Never. wait is 0 or more.
func Later(at, wait time.Duration) time.Duration {
	if end := at + wait; end >= at {
		return end
	}
	return Never
}

// Until returns the time from now to an instant, 0 for one in the past.
func Until(now, at time.Duration) time.Duration {
	switch left := at - now; {
	case at <= now:
		return 0
	case at == Never || left < 0:
		return Never
	default:
		return left
	}
}
