package httplimit

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// The names in their canonical form, in which http.Header keeps them: so what a
// handler sets takes the place of ours.
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
)

// maxInteger is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// fields sets fields of a header, whose values all stand in one array.
type fields struct {
	header http.Header
	values []string
}

// newFields has room for all that are set at most.
func newFields(h http.Header, told, refused bool) fields {
	switch {
	case refused:
		return fields{h, make([]string, 0, 8)}
	case told:
		return fields{h, make([]string, 0, 5)}
	default:
		return fields{header: h}
	}
}

// set sets a field to a full slice: who appends to that does not write over the next.
func (f *fields) set(name, value string) {
	n := len(f.values)
	f.values = append(f.values, value)
	f.header[name] = f.values[n : n+1 : n+1]
}

// setLimits sets the fields of a decision that tells its limit. All figures are cut
// from one text.
func (m *middleware) setLimits(f *fields, v *verdict) {
	d := &v.decision
	buf := append(make([]byte, 0, 128), v.policy.start...)
	buf = appendInteger(buf, v.remaining)
	remainingTo := len(buf)
	if t, ok := v.policies.effectiveSeconds(d, v.remaining); ok {
		buf = appendInteger(append(buf, ";t="...), max(1, t))
	}
	rateLimitTo := len(buf)
	text := string(appendInteger(buf, m.reset(d, v.remaining)))

	if m.xRateLimit {
		f.set(xLimit, v.policy.capacity)
		f.set(xRemaining, text[len(v.policy.start):remainingTo])
		f.set(xReset, text[rateLimitTo:])
	}
	if m.rateLimit {
		f.set(rateLimit, text[:rateLimitTo])
		f.set(rateLimitPolicy, v.policies.header)
	}
}

func (f *fields) setRetryAfter(wait time.Duration) {
	if seconds, ok := tokenbucket.RetryAfter(wait); ok {
		f.set(retryAfter, strconv.FormatInt(max(1, seconds), 10))
	}
}

// reset returns the seconds until the bucket is full, or the Unix time then.
func (m *middleware) reset(d *tokenbucket.Decision, remaining int64) int64 {
	missing := d.Limit.Capacity - d.Tokens
	if m.unixNow == nil && remaining > 0 { // so it is not paused, and the nanoseconds of Reset need not be known
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

// effectiveSeconds returns t: a Retry-After must not end before it, so on a refusal
// it is that one. On admission what remains is to do until as much has been refilled;
// if that is nothing, until there is one token.
func (p *policies) effectiveSeconds(d *tokenbucket.Decision, remaining int64) (t int64, ok bool) {
	if !d.OK {
		return d.RetryAfter()
	}
	if remaining > 0 {
		return refillSeconds(d.Limit, float64(remaining)), true
	}
	one := min(1, d.Limit.Capacity)
	paused := d.Reset() - refillTime(d.Limit, d.Tokens, d.Limit.Capacity)
	if paused == 0 && d.Tokens >= 1 {
		return p.oneToken, true // it is another limit that has none
	}
	wait := timeline.Later(refillTime(d.Limit, d.Tokens, one), paused)
	return wholeSeconds(wait, d.Limit, one-d.Tokens), true
}

// wholeSeconds rounds a wait up. One that is longer than a Duration can say is told
// by what it takes to refill the tokens, or not at all if a pause makes it as long.
func wholeSeconds(wait time.Duration, l tokenbucket.Limit, tokens float64) int64 {
	if seconds, ok := tokenbucket.RetryAfter(wait); ok {
		return seconds
	}
	if seconds := refillSeconds(l, tokens); seconds >= int64(tokenbucket.Never/time.Second) {
		return seconds
	}
	return maxInteger
}

// refillSeconds returns how long it takes to refill so many tokens, at most the
// capacity, rounded up. As in the bucket itself, a shortfall of 2^-50 of the capacity
// counts as none.
func refillSeconds(l tokenbucket.Limit, tokens float64) int64 {
	if seconds := math.Ceil((tokens - l.Capacity/(1<<50)) / l.RefillPerSec); seconds < maxInteger {
		return int64(max(0, seconds))
	}
	return maxInteger
}

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}

// asked is a limiter and how the answers present its limits.
type asked struct {
	Limiter
	names  []string
	labels []label // of as many limits as there are at start-up
	last   atomic.Pointer[policies]
}

func newAsked(l Limiter, names []string) *asked {
	return &asked{Limiter: l, names: names, labels: newLabels(names, max(1, len(limitsOf(l))))}
}

// policies are limits as the header tells them.
type policies struct {
	limits   []tokenbucket.Limit
	each     []policy
	header   string // RateLimit-Policy
	oneToken int64  // the seconds in which the slowest refills one
}

// policy is one of them, and what of the answers does not change.
type policy struct {
	label
	capacity string
}

// label is what of a policy comes from its name alone.
type label struct {
	quoted   string // in RateLimit-Policy
	start    string // of RateLimit, up to r
	exceeded form
}

func newLabels(names []string, n int) []label {
	labels := make([]label, n)
	for i, name := range policyNames(names, n) {
		quoted := quote(name)
		labels[i] = label{quoted, quoted + ";r=", quotaExceeded(name)}
	}
	return labels
}

// policies returns the present ones: limits may change at any time. Where there is
// only one the decision tells it. Several have to be asked for at every request.
func (a *asked) policies(binding tokenbucket.Limit) *policies {
	last := a.last.Load()
	if last != nil && len(last.limits) == 1 && last.limits[0] == binding {
		return last
	}
	limits := limitsOf(a.Limiter)
	if len(limits) == 0 {
		limits = []tokenbucket.Limit{binding}
	}
	if !slices.Contains(limits, binding) { // they changed since the decision, or are not all told
		if last != nil && slices.Contains(last.limits, binding) {
			return last
		}
		return a.newPolicies([]tokenbucket.Limit{binding})
	}
	if last == nil || !slices.Equal(last.limits, limits) {
		last = a.newPolicies(limits)
		a.last.Store(last)
	}
	return last
}

func (a *asked) newPolicies(limits []tokenbucket.Limit) *policies {
	labels := a.labels
	if len(labels) < len(limits) {
		labels = newLabels(a.names, len(limits))
	}
	p := &policies{limits: slices.Clone(limits), each: make([]policy, len(limits))} // a limiter may write over its own
	items := make([]string, len(limits))
	for i, l := range limits {
		capacity := strconv.FormatInt(wholeTokens(l.Capacity), 10)
		p.each[i] = policy{labels[i], capacity}
		p.oneToken = max(p.oneToken, refillSeconds(l, min(1, l.Capacity)))
		items[i] = fmt.Sprintf("%s;q=%s;w=%d", labels[i].quoted, capacity, refillSeconds(l, l.Capacity))
	}
	p.header = strings.Join(items, ", ")
	return p
}

// binding returns the policy of a limit, looking from start on first.
func (p *policies) binding(limit tokenbucket.Limit, start int) *policy {
	if start = min(start, len(p.limits)); start > 0 {
		if i := slices.Index(p.limits[start:], limit); i >= 0 {
			return &p.each[start+i]
		}
	}
	return &p.each[slices.Index(p.limits, limit)]
}

// policyNames returns n names: the given ones, then the last of them with "-2", "-3"
// and so on, but for those that are given.
func policyNames(given []string, n int) []string {
	names := slices.Clone(given[:min(n, len(given))])
	for number := 2; len(names) < n; number++ {
		if name := fmt.Sprintf("%s-%d", given[len(given)-1], number); !slices.Contains(given, name) {
			names = append(names, name)
		}
	}
	return names
}

// quote returns printable ASCII as a String of a structured field (RFC 9651,
// section 3.3.3).
func quote(s string) string {
	quoted := []byte{'"'}
	for _, c := range []byte(s) {
		if c == '"' || c == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, c)
	}
	return string(append(quoted, '"'))
}

func isPrintable(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(c byte) bool { return c < ' ' || c > '~' })
}
