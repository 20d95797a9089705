package tokenbucket

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// Option configures New.
type Option func(*config)

type config struct {
	limits     Limits
	clock      Clock
	tokens     *float64 // nil: full
	resume     *resume  // nil: start anew
	latest     time.Duration
	maxWaiters int
}

type resume struct {
	origin time.Time
	states []State
}

func (c *config) validate() error {
	if err := c.limits.Validate(); err != nil {
		return err
	}
	if c.tokens != nil && !(*c.tokens >= 0 && *c.tokens <= c.largestCapacity()) {
		return fmt.Errorf("%w: WithTokens(%v): choose from 0 to the capacity of %v", ErrInvalidOption, *c.tokens, c.largestCapacity())
	}
	if c.resume != nil && !c.resume.fits(c.limits) {
		return fmt.Errorf("%w: WithState(%v): pass what State of a bucket with as many limits returned", ErrInvalidOption, c.resume.states)
	}
	if c.resume != nil && !c.resume.isNear(c.clock) {
		return fmt.Errorf("%w: WithState: the origin %v is too far away: store the one that State returned beside the states", ErrInvalidOption, c.resume.origin)
	}
	if c.maxWaiters < 0 {
		return fmt.Errorf("%w: WithMaxWaiters(%d): choose 0 or more, or leave it out for no bound", ErrInvalidOption, c.maxWaiters)
	}
	return nil
}

func (r *resume) fits(limits Limits) bool {
	return len(r.states) == len(limits) && !slices.ContainsFunc(r.states, func(s State) bool {
		return s.Validate() != nil
	})
}

// isNear reports whether time can be counted from the origin: a Duration can hold it,
// so that it passes, and by the system clock it never steps back, since package time
// keeps monotonic readings in the years 1885 to 2157.
func (r *resume) isNear(clock Clock) bool {
	t := timeline.Timeline{Clock: clock, Origin: r.origin}
	now, year := t.Now(), r.origin.UTC().Year()
	return now > math.MinInt64 && now < timeline.End && (clock != nil || 1885 <= year && year <= 2157)
}

func (c *config) largestCapacity() (largest float64) {
	for _, l := range c.limits {
		largest = max(largest, l.Capacity)
	}
	return largest
}

// WithClock sets the clock that the bucket reads and sleeps on. By default, and
// for nil, it is the system clock.
func WithClock(clock Clock) Option {
	return func(c *config) { c.clock = clock }
}

// WithTokens sets what the bucket holds at first, in tokens from 0 to the
// capacity; with several limits each is filled up to that level or its capacity.
// By default, it is full.
func WithTokens(initial float64) Option {
	return func(c *config) { c.tokens = &initial }
}

// WithState lets the bucket go on from what State of an earlier one returned, with
// as many limits: after a restart, say, so that nobody gets a second burst. It
// overrides WithTokens. By default, a bucket starts anew.
//
// The time in between counts. It is told by the wall clock if the origin was
// stored and has lost its monotonic reading. New returns ErrInvalidOption for
// another number of states, for a balance that no State has and for an origin 292
// years away or more, such as the zero time, or by the system clock not between the
// years 1885 and 2157.
func WithState(origin time.Time, states []State) Option {
	r := &resume{origin, slices.Clone(states)}
	return func(c *config) { c.resume = r }
}

// WithLatest sets the latest reading of the clock so far, as Latest of the earlier
// bucket returned it, since WithState's origin: earlier ones count as this. It is
// for clocks that may have stepped back in between. By default, and for 0 or less,
// nothing is known of one, and a state that is anchored in the future is paused.
func WithLatest(reading time.Duration) Option {
	return func(c *config) { c.latest = reading }
}

// WithMaxWaiters bounds how many waiters and reservations may be queued at once;
// with 0 nobody may wait. Whoever comes after them gets ErrTooManyWaiters. By
// default, there is no bound.
func WithMaxWaiters(n int) Option {
	return func(c *config) { c.maxWaiters = n }
}

// WithLimit adds a further limit, which every request has to meet as well: 30 a
// minute and 300 an hour, say. A refusal by one takes nothing from another. By
// default, there is only the limit given to New.
func WithLimit(limit Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}
