package tokenbucket

import "time"

// Clock returns the time and makes timers. The mock clocks of
// github.com/benbjohnson/clock, github.com/jonboulle/clockwork and
// k8s.io/utils/clock/testing satisfy it as they are. Do not use a mock clock inside a
// testing/synctest bubble, where no mock is needed.
//
// The system clock, which is the default, is the monotonic one of package time.
// Inside a testing/synctest bubble it is the bubble's virtual clock.
//
// Implementations must be safe for concurrent use. Now and Since must not call a bucket that
// uses the clock, because the bucket may be locked meanwhile.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// Since returns the time elapsed since t.
	Since(t time.Time) time.Duration
	// After returns a channel on which the time is sent once d has elapsed.
	After(d time.Duration) <-chan time.Time
}
