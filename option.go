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
	resume     *resume  // nil: start full or with tokens
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
		return fmt.Errorf("%w: WithState(%v): pass one state for each limit, as State returned them", ErrInvalidOption, c.resume.states)
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

// isNear reports whether time can be counted from the origin. A Duration has to hold the
// time since then. With the system clock, the origin also has to be in the years 1885 to
// 2156, in which package time keeps monotonic readings. Outside of them, the clock could
// step back.
func (r *resume) isNear(clock Clock) bool {
	t := timeline.Timeline{Clock: clock, Origin: r.origin}
	now, year := t.Now(), r.origin.UTC().Year()
	return now > math.MinInt64 && now < timeline.End && (clock != nil || 1885 <= year && year <= 2156)
}

func (c *config) largestCapacity() (largest float64) {
	for _, l := range c.limits {
		largest = max(largest, l.Capacity)
	}
	return largest
}

// WithClock sets the clock that the bucket reads and on which waiters sleep. By default, and
// for nil, it is the system clock.
func WithClock(clock Clock) Option {
	return func(c *config) { c.clock = clock }
}

// WithTokens sets the number of tokens in a new bucket, from 0 to the capacity. With several
// limits, each has that number or its capacity, whichever is less. By default, the bucket is
// full.
func WithTokens(initial float64) Option {
	return func(c *config) { c.tokens = &initial }
}

// WithState lets the bucket continue where an earlier bucket stopped. Pass what State of
// that bucket returned; both must have the same number of limits. After a restart, for
// example, clients then get no second burst. WithState overrides WithTokens. By default, a
// bucket starts full.
//
// The bucket refills for the time that has passed since State was called. If the origin was
// stored, it has lost its monotonic reading, and the wall clock measures that time. New
// returns ErrInvalidOption if the number of states differs from the number of limits, or if
// a state is invalid (see [State.Validate]). New also returns ErrInvalidOption if the
// origin is 292 years away or more, as the zero time is. With the system clock, the origin
// also has to be in the years 1885 to 2156.
func WithState(origin time.Time, states []State) Option {
	r := &resume{origin, slices.Clone(states)}
	return func(c *config) { c.resume = r }
}

// WithLatest sets the latest reading of the clock so far: pass what Latest of the earlier
// bucket returned. It counts from the origin of WithState. WithLatest is for clocks that
// may have stepped back since then: while the clock reads less than this, the bucket uses
// this reading instead.
//
// By default, and for 0 or less, no earlier reading is assumed. Then a clock that has
// stepped back may read less than the Anchor of a state. If so, the bucket is paused until
// the clock reaches the Anchor.
func WithLatest(reading time.Duration) Option {
	return func(c *config) { c.latest = reading }
}

// WithMaxWaiters sets how many waiters and reservations may be queued at once. Further
// callers get ErrTooManyWaiters. With 0, no caller may wait. By default, there is no bound.
func WithMaxWaiters(n int) Option {
	return func(c *config) { c.maxWaiters = n }
}

// WithLimit adds a limit. Each request has to meet all limits at once, such as 30 a minute
// and 300 an hour. A refusal by one limit takes nothing from the others. By default, the
// limit given to New is the only one.
func WithLimit(limit Limit) Option {
	return func(c *config) { c.limits = append(c.limits, limit) }
}
