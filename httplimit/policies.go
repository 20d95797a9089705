package httplimit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/aa014e13/tokenbucket"
)

// unlimited stands for no limit, so it is not reported to clients.
var unlimited = tokenbucket.Unlimited()

// asked is a limiter, with texts about its limits for the answers to requests.
type asked struct {
	Limiter
	names  []string
	labels []label                  // one for each limit that the limiter had at start-up
	last   atomic.Pointer[policies] // those of the latest limits
}

func newAsked(l Limiter, names []string) *asked {
	return &asked{Limiter: l, names: names, labels: newLabels(names, max(1, len(limitsOf(l))))}
}

// policies are the limits of a limiter as texts and numbers for the answers to requests. They
// do not change.
type policies struct {
	limits   []tokenbucket.Limit
	each     []policy
	header   string // RateLimit-Policy
	oneToken int64  // the seconds in which the slowest limit refills one token
}

// policy is the part of an answer that is the same for all decisions by one limit.
type policy struct {
	label
	capacity string
}

// label is the part of a policy that depends only on its name.
type label struct {
	name     string
	quoted   string // the name in RateLimit-Policy
	start    string // the item of RateLimit up to the value of r
	exceeded form   // the body of a refusal
}

func newLabels(names []string, n int) []label {
	labels := make([]label, n)
	for i, name := range policyNames(names, n) {
		quoted := quote(name)
		labels[i] = label{name, quoted, quoted + ";r=", quotaExceeded(name)}
	}
	return labels
}

// policies returns the policies of the present limits, which may change at any time. If the
// limiter has one limit, that is the limit of the decision, and Limits is called only if it is
// new. If the limiter has several limits, Limits is called at every request.
func (a *asked) policies(binding tokenbucket.Limit) *policies {
	last := a.last.Load()
	if last != nil && len(last.limits) == 1 && last.limits[0] == binding {
		return last
	}
	limits := limitsOf(a.Limiter)
	if len(limits) == 0 {
		limits = []tokenbucket.Limit{binding}
	}
	if !slices.Contains(limits, binding) { // the limits have changed since the decision, or Limits leaves some out
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
	p := &policies{limits: slices.Clone(limits), each: make([]policy, len(limits))} // a limiter may overwrite its own
	items := make([]string, 0, len(limits))
	for i, l := range limits {
		capacity := strconv.FormatInt(wholeTokens(l.Capacity), 10)
		p.each[i] = policy{labels[i], capacity}
		p.oneToken = max(p.oneToken, refillSeconds(l, min(1, l.Capacity)))
		if l != unlimited {
			items = append(items, fmt.Sprintf("%s;q=%s;w=%d", labels[i].quoted, capacity, refillSeconds(l, l.Capacity)))
		}
	}
	p.header = strings.Join(items, ", ")
	return p
}

// binding returns the policy of a decision's limit: the one with the decision's LimitIndex,
// counted from start. If a limiter does not set LimitIndex, it is the first equal limit
// from start on, or else the first of all.
func (p *policies) binding(d *tokenbucket.Decision, start int) *policy {
	limit := d.Limit
	if i := start + d.LimitIndex; i >= 0 && i < len(p.limits) && p.limits[i] == limit {
		return &p.each[i]
	}
	if start = min(start, len(p.limits)); start > 0 {
		if i := slices.Index(p.limits[start:], limit); i >= 0 {
			return &p.each[start+i]
		}
	}
	return &p.each[slices.Index(p.limits, limit)]
}

// policyNames returns n names: the given ones, then the last of them with "-2", "-3" and
// so on, without repeating a given one.
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
