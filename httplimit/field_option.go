package httplimit

import (
	"slices"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// WithPolicyNames names the limits in RateLimit and RateLimit-Policy, in the order of
// the limiter's Limits, in printable ASCII. Limits beyond the last name have that name
// with "-2", "-3" and so on, without those that are given. A name that is empty, not
// printable ASCII or given twice is an ErrInvalidOption. By default, they are "default",
// "default-2", ...
func WithPolicyNames(names ...string) Option {
	return serverOption(func(c *config) { c.names = slices.Clone(names) })
}

// WithoutXRateLimit leaves the X-RateLimit fields out. By default, they are set.
func WithoutXRateLimit() Option {
	return serverOption(func(c *config) { c.xRateLimit = false })
}

// WithoutRateLimit leaves RateLimit and RateLimit-Policy out. By default, they are set.
func WithoutRateLimit() Option {
	return serverOption(func(c *config) { c.rateLimit = false })
}

// WithUnixReset makes X-RateLimit-Reset a Unix time in seconds, as GitHub has it,
// by the given clock; nil is the system's. By default, it is in seconds from now.
func WithUnixReset(clock tokenbucket.Clock) Option {
	return serverOption(func(c *config) {
		c.unixNow = time.Now
		if clock != nil {
			c.unixNow = clock.Now
		}
	})
}

// WithExposedFields adds the names of the fields that are set to
// Access-Control-Expose-Headers, so that pages of other origins can read them (CORS).
// The layer that sets the other fields of CORS must stand outside this one: then
// preflights are answered before they cost anything, and refusals have its fields as
// well. By default, the field is not set.
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

// expose adds names to Access-Control-Expose-Headers that are not in it yet.
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
		f.set(exposeHeaders, listed)
	}
}
