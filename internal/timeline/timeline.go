// Package timeline counts a clock's time in nanoseconds from an origin, the way
// the packages of this module keep it: buckets, keyed buckets and transports.
package timeline

import (
	"math"
	"time"
)

// Never is the end of time. Sums of instants and waits that would pass it stay there.
const Never time.Duration = math.MaxInt64

// End is the latest instant there is: 292 years after the origin time stands still, so
// that what is due at Never never is.
const End = Never - 1

// Clock is tokenbucket.Clock.
type Clock interface {
	Now() time.Time
	Since(t time.Time) time.Duration
	After(d time.Duration) <-chan time.Time
}

// Timeline is a clock and an origin. Without a clock it is the system's, called
// directly: reading it is most of what a decision costs.
type Timeline struct {
	Clock  Clock
	Origin time.Time
}

// Watched is the system clock for tests that need to know its readings. It calls Saw after
// each reading, in the goroutine that reads the clock, which goes on when Saw returns.
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

// Start returns a timeline whose origin is the present, by the system clock if clock is nil.
func Start(clock Clock) Timeline {
	if clock == nil {
		return Timeline{Origin: time.Now()}
	}
	return Timeline{clock, clock.Now()}
}

// Resume returns a timeline with an origin of before. By the system clock it counts
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

// IsSteady reports whether the clock is known to never step back: the system clock.
func (t *Timeline) IsSteady() bool {
	if t.Clock == nil {
		return true
	}
	_, isWatched := t.Clock.(Watched)
	return isWatched
}

// After returns a channel on which the time is sent once d has elapsed.
func (t *Timeline) After(d time.Duration) <-chan time.Time {
	if t.Clock == nil {
		return time.After(d)
	}
	return t.Clock.After(d)
}

// Left returns the time until the deadline of a context, which may count in this
// clock's time or in real time: whichever leaves more.
func (t *Timeline) Left(deadline time.Time) time.Duration {
	left := time.Until(deadline)
	if t.Clock != nil {
		left = max(left, deadline.Sub(t.Clock.Now()))
	}
	return left
}

// Later returns the instant at which a wait of 0 or more ends that begins at an instant.
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
