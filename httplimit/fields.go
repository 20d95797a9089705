package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// The canonical names: what a handler sets replaces what stands here.
const (
	xLimit     = "X-Ratelimit-Limit"
	xRemaining = "X-Ratelimit-Remaining"
	xReset     = "X-Ratelimit-Reset"
	rateLimit  = "Ratelimit"
	ratePolicy = "Ratelimit-Policy"
	retryAfter = "Retry-After"
)

const maxInteger = 999_999_999_999_999 // of a structured field (RFC 9651, section 3.3.1)

// fields writes the header fields of a decision.
type fields struct {
	*config
	policies atomic.Pointer[policies]
}

// policies are the limits as the header tells them.
type policies struct {
	limits []tokenbucket.Limit
	quoted []string // their names
	header string   // RateLimit-Policy
}

// policiesFor returns the present policies. Limits may change at any time; asking
// for them at every request would cost an allocation, so they are asked for when
// the limit that binds is not among those known.
func (f *fields) policiesFor(binding tokenbucket.Limit) *policies {
	if p := f.policies.Load(); p != nil && slices.Contains(p.limits, binding) {
		return p
	}
	limits := limitsOf(f.limiter)
	if !slices.Contains(limits, binding) { // a fallback's, or of a limiter that does not tell
		limits = []tokenbucket.Limit{binding}
	}
	p := newPolicies(limits, f.names)
	f.policies.Store(p)
	return p
}

func newPolicies(limits []tokenbucket.Limit, names []string) *policies {
	p := &policies{limits: limits}
	var header []byte
	for i, l := range limits {
		quoted, _ := quote(policyName(names, i)) // checked at start-up
		p.quoted = append(p.quoted, quoted)
		if i > 0 {
			header = append(header, ", "...)
		}
		header = append(header, quoted...)
		header = appendInteger(append(header, ";q="...), int64(l.Capacity))
		header = appendInteger(append(header, ";w="...), seconds(tokenbucket.Decision{Limit: l}.Reset()))
	}
	p.header = string(header)
	return p
}

func policyName(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s-%d", names[len(names)-1], i-len(names)+2)
}

// quote returns a structured field's String (RFC 9651, section 3.3.3).
func quote(s string) (string, error) {
	quoted := []byte{'"'}
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("%w: the policy name %q is not printable ASCII: choose another", tokenbucket.ErrInvalidOption, s)
		}
		if c == '"' || c == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, c)
	}
	return string(append(quoted, '"')), nil
}

// seconds rounds up, and saturates for Never.
func seconds(d time.Duration) int64 {
	if s, ok := tokenbucket.RetryAfter(d); ok {
		return s
	}
	return maxInteger
}

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}

// set sets the fields of a decision. All values are cut from one string and stand
// in one slice: that is two allocations, and what the map needs.
func (f *fields) set(h http.Header, d tokenbucket.Decision) {
	w := writer{text: make([]byte, 0, 128)}
	if f.xRateLimit {
		w.text = appendInteger(w.text, int64(d.Limit.Capacity))
		w.end(xLimit)
		w.text = appendInteger(w.text, d.Remaining())
		w.end(xRemaining)
		w.text = appendInteger(w.text, f.reset(d))
		w.end(xReset)
	}
	if s, ok := d.RetryAfter(); ok && !d.OK && !f.reportOnly {
		w.text = appendInteger(w.text, s)
		w.end(retryAfter)
	}
	policy := ""
	if f.rateLimit {
		p := f.policiesFor(d.Limit)
		w.text = appendRateLimit(w.text, p.quoted[slices.Index(p.limits, d.Limit)], d)
		w.end(rateLimit)
		policy = p.header
	}
	w.flush(h, policy)
}

// writer collects the values of fields in one text.
type writer struct {
	text  []byte
	names [5]string
	ends  [5]int
	len   int
}

// end ends the value of a field.
func (w *writer) end(name string) {
	w.names[w.len], w.ends[w.len] = name, len(w.text)
	w.len++
}

func (w *writer) flush(h http.Header, policy string) {
	text, values, start := string(w.text), make([]string, w.len+1), 0
	for i, name := range w.names[:w.len] {
		values[i] = text[start:w.ends[i]]
		h[name] = values[i : i+1 : i+1]
		start = w.ends[i]
	}
	if policy != "" {
		values[w.len] = policy
		h[ratePolicy] = values[w.len:]
	}
}

func (f *fields) reset(d tokenbucket.Decision) int64 {
	reset := d.Reset()
	if f.unixReset == nil || reset == tokenbucket.Never {
		return seconds(reset)
	}
	at := f.unixReset.Now().Add(reset)
	if at.Nanosecond() > 0 {
		return at.Unix() + 1
	}
	return at.Unix()
}

// appendRateLimit appends what may be used within the next t seconds, r
// (draft-ietf-httpapi-ratelimit-headers-10 and -11).
func appendRateLimit(b []byte, name string, d tokenbucket.Decision) []byte {
	b = append(b, name...)
	b = appendInteger(append(b, ";r="...), d.Remaining())
	if s, ok := tokenbucket.RetryAfter(pace(d)); ok {
		b = appendInteger(append(b, ";t="...), max(1, s))
	}
	return b
}

// pace returns for how long the remaining tokens have to do: on a refusal until
// the request is admitted, so that a Retry-After never ends before; on admission
// until as many are refilled, or with none left until there is one.
func pace(d tokenbucket.Decision) time.Duration {
	if !d.OK {
		return d.Wait
	}
	if r := d.Remaining(); r > 0 {
		_, refilled := d.Limit.Take(tokenbucket.State{}, 0, float64(r))
		return refilled.Wait
	}
	_, one := d.Limit.Take(tokenbucket.State{Balance: d.Tokens}, 0, min(1, d.Limit.Capacity))
	return one.Wait
}
