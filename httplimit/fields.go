package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// The names are in canonical form, as http.Header.Set writes them, so that a field that a
// handler sets replaces the one set here.
const (
	xLimit          = "X-Ratelimit-Limit"
	xRemaining      = "X-Ratelimit-Remaining"
	xReset          = "X-Ratelimit-Reset"
	rateLimit       = "Ratelimit"
	rateLimitPolicy = "Ratelimit-Policy"
	retryAfter      = "Retry-After"
	contentType     = "Content-Type"
	contentLength   = "Content-Length"
	cacheControl    = "Cache-Control"
	exposeHeaders   = "Access-Control-Expose-Headers"
)

// maxInteger is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// fields sets fields of a header.
type fields struct {
	header   http.Header
	isNested bool // outer layers have set fields
	limits   *limitValues
	refusal  *refusalValues
	wait     string // the value of Retry-After, if it is known
}

// limitValues is the memory of the fields that describe a limit. Each value has an array of
// its own. The strings of remaining, reset and rateLimit are parts of text. One allocation is
// faster than one for each value.
type limitValues struct {
	capacity, remaining, reset, rateLimit, policies value
	text                                            [48]byte // enough for most policy names
}

// refusalValues is the memory of all fields of a refusal.
type refusalValues struct {
	limits                                limitValues
	retryAfter, contentType, cacheControl value
}

// value is the value of a field. A slice of it has no spare capacity, so appending to the
// slice does not overwrite another value.
type value [1]string

// makeRoom allocates the values that an answer may have.
func (f *fields) makeRoom(limits, refused bool) {
	switch {
	case refused:
		f.refusal = new(refusalValues)
		f.limits = &f.refusal.limits
	case limits:
		f.limits = new(limitValues)
	}
}

// set sets a field.
func (f *fields) set(name string, v *value, text string) {
	v[0] = text
	f.header[name] = v[:]
}

// add adds an item to a list field, after the items that outer layers have set.
func (f *fields) add(name string, v *value, item string) {
	if f.isNested {
		if lines := f.header[name]; len(lines) > 0 {
			item = strings.Join(lines, ", ") + ", " + item
		}
	}
	f.set(name, v, item)
}

// hasTighter reports whether the X-RateLimit fields of an outer layer must stay. They stay if
// they report less remaining. If they report the same, they stay if this request is admitted.
func (f *fields) hasTighter(v *verdict) bool {
	lines := f.header[xRemaining]
	if len(lines) != 1 {
		return false
	}
	outer, err := strconv.ParseInt(lines[0], 10, 64)
	return err == nil && (outer < v.remaining || outer == v.remaining && !v.refused)
}

// setLimits sets the fields of a decision that has a valid limit. All numbers that it formats
// are parts of one text.
func (m *middleware) setLimits(f *fields, v *verdict) {
	values := f.limits
	buf, remainingTo := v.appendRateLimit(values.text[:0])
	rateLimitTo := len(buf)
	buf = appendInteger(buf, m.reset(&v.decision, v.remaining))
	text := unsafe.String(unsafe.SliceData(buf), len(buf)) // nothing writes to it any more
	if !v.decision.OK {
		// The parameter t of RateLimit is the same number as Retry-After.
		f.wait = strings.TrimPrefix(text[remainingTo:rateLimitTo], parameterT)
	}

	if m.xRateLimit && !(f.isNested && f.hasTighter(v)) {
		f.set(xLimit, &values.capacity, v.policy.capacity)
		f.set(xRemaining, &values.remaining, text[len(v.policy.start):remainingTo])
		f.set(xReset, &values.reset, text[rateLimitTo:])
	}
	if m.rateLimit {
		f.add(rateLimit, &values.rateLimit, text[:rateLimitTo])
		f.add(rateLimitPolicy, &values.policies, v.policies.header)
	}
}

// parameterT begins the parameter t of RateLimit.
const parameterT = ";t="

// appendRateLimit appends the item of RateLimit. It also returns the index at which the
// value of r ends.
func (v *verdict) appendRateLimit(b []byte) (_ []byte, remainingTo int) {
	b = appendInteger(append(b, v.policy.start...), v.remaining)
	remainingTo = len(b)
	if t, ok := v.policies.effectiveSeconds(&v.decision, v.remaining); ok {
		b = appendInteger(append(b, parameterT...), max(1, t))
	}
	return b, remainingTo
}

// setRetryAfter sets Retry-After, unless the wait is Never. It reports whether it did.
func (f *fields) setRetryAfter(wait time.Duration) bool {
	seconds, ok := tokenbucket.RetryAfter(wait)
	if !ok {
		return false
	}
	if f.wait == "" {
		f.wait = strconv.FormatInt(max(1, seconds), 10)
	}
	f.set(retryAfter, &f.refusal.retryAfter, f.wait)
	return true
}

// reset returns the seconds until the bucket is full, or the Unix time then.
func (m *middleware) reset(d *tokenbucket.Decision, remaining int64) int64 {
	missing := d.Limit.Capacity - d.Tokens
	if m.unixNow == nil && remaining > 0 { // a paused bucket has no tokens, so the refill alone decides
		return refillSeconds(d.Limit, missing)
	}
	wait := d.Reset()
	if m.unixNow == nil {
		return wholeSeconds(wait, d.Limit, missing)
	}
	now := m.unixNow()
	if wait == tokenbucket.Never {
		return now.Unix() + wholeSeconds(wait, d.Limit, missing)
	}
	return now.Add(timeline.Later(wait, time.Second-1)).Unix()
}

// effectiveSeconds returns the parameter t of RateLimit. On a refusal, it is the Retry-After.
// On admission, it is the time in which as many tokens are refilled as remain, so that the
// client spends no more than is refilled. If none remain, it is the time until there is one
// token.
func (p *policies) effectiveSeconds(d *tokenbucket.Decision, remaining int64) (t int64, ok bool) {
	if !d.OK {
		return d.RetryAfter()
	}
	if remaining > 0 {
		return refillSeconds(d.Limit, float64(remaining)), true
	}
	one := min(1, d.Limit.Capacity)
	paused := max(0, d.Reset()-refillTime(d.Limit, d.Tokens, d.Limit.Capacity)) // both are rounded
	if paused == 0 && d.Tokens >= 1 {
		return p.oneToken, true // another limit is empty, but the decision does not say which
	}
	wait := timeline.Later(refillTime(d.Limit, d.Tokens, one), paused)
	return wholeSeconds(wait, d.Limit, one-d.Tokens), true
}

// wholeSeconds returns a wait in seconds, rounded up. A wait of Never is longer than a
// Duration can be. If refilling the tokens takes that long, wholeSeconds returns the time
// of the refill. Otherwise a pause is the cause, and wholeSeconds returns maxInteger.
func wholeSeconds(wait time.Duration, l tokenbucket.Limit, tokens float64) int64 {
	if seconds, ok := tokenbucket.RetryAfter(wait); ok {
		return seconds
	}
	if seconds := refillSeconds(l, tokens); seconds >= int64(tokenbucket.Never/time.Second) {
		return seconds
	}
	return maxInteger
}

// refillSeconds returns the seconds, rounded up, in which a number of tokens is refilled.
// The number is at most the capacity. As in the bucket itself, a shortfall of 2^-50 of
// the capacity counts as none.
func refillSeconds(l tokenbucket.Limit, tokens float64) int64 {
	if seconds := math.Ceil((tokens - l.Capacity/(1<<50)) / l.RefillPerSec); seconds < maxInteger {
		return int64(max(0, seconds))
	}
	return maxInteger
}

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}
