package httplimit

import (
	"slices"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// WithPolicyNames names the limits in RateLimit and RateLimit-Policy, in the order of
// the limiter's Limits, in printable ASCII. If there are more limits than names, the rest
// are named by the last name with "-2", "-3" and so on; numbers that would repeat a given
// name are skipped. A name that is empty, not printable ASCII or given twice is an
// ErrInvalidOption. By default, the names are "default", "default-2", ...
func WithPolicyNames(names ...string) Option {
	names = slices.Clone(names)
	return serverOption(func(c *config) { c.names = names })
}

// WithoutXRateLimit turns off the X-RateLimit fields. By default, they are set.
func WithoutXRateLimit() Option {
	return serverOption(func(c *config) { c.xRateLimit = false })
}

// WithoutRateLimit turns off RateLimit and RateLimit-Policy. By default, they are set.
func WithoutRateLimit() Option {
	return serverOption(func(c *config) { c.rateLimit = false })
}

// WithUnixReset makes X-RateLimit-Reset a Unix time in seconds, as GitHub sends it, by
// the given clock; nil is the system clock. By default, it is in seconds from now.
func WithUnixReset(clock tokenbucket.Clock) Option {
	return serverOption(func(c *config) {
		c.unixNow = time.Now
		if clock != nil {
			c.unixNow = clock.Now
		}
	})
}

// WithExposedFields lists the fields of this middleware in
// Access-Control-Expose-Headers, so that pages of other origins can read them (CORS).
// Names that are already listed there stay. Put the layer that sets the other fields of
// CORS outside this middleware. Then that layer answers preflights before they cost
// anything, and refusals have its fields too. By default, Access-Control-Expose-Headers
// is not changed.
func WithExposedFields() Option {
	return serverOption(func(c *config) { c.exposes = true })
}

// exposedNames returns the names of the fields that are set.
func (c *config) exposedNames(limits, wait bool) []string {
	var names []string
	if limits && c.xRateLimit {
		names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
	}
	if limits && c.rateLimit {
		names = append(names, "RateLimit", "RateLimit-Policy")
	}
	if wait {
		names = append(names, "Retry-After")
	}
	return names
}

// expose adds to Access-Control-Expose-Headers the names that it does not have yet.
func (f *fields) expose(names []string) {
	listed := strings.Join(f.header[exposeHeaders], ", ")
	known := strings.Split(strings.ToLower(listed), ",")
	for i := range known {
		known[i] = trim(known[i])
	}
	for _, name := range names {
		switch {
		case slices.Contains(known, strings.ToLower(name)):
		case listed == "":
			listed = name
		default:
			listed += ", " + name
		}
	}
	if listed != "" {
		f.header[exposeHeaders] = []string{listed}
	}
}
