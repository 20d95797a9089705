package httplimit

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// heed makes the host's bucket follow what an answer says, and reports whether the
// request was refused and may be sent again once the pause is over.
func (t *Transport) heed(host string, resp *http.Response) (again bool) {
	now := t.now()
	left := t.readQuota(resp.Header, now)
	hold, told := left.hold(), readRetryAfter(resp.Header, now)
	if told > 0 {
		hold = told
	}
	if !t.isRefusal(resp.StatusCode, told) {
		t.slowDown(host, left, hold)
		return false
	}
	if hold == 0 {
		hold = min(t.defaultPause, t.longestPause)
	}
	if hold > t.longestPause {
		t.buckets.Pause(host, t.longestPause)
		return false
	}
	t.buckets.Pause(host, timeline.Later(hold, t.jitter(host, now, hold)))
	return true
}

// isRefusal reports whether a status says "too fast", told being the pause that
// Retry-After demands, 0 for none.
func (t *Transport) isRefusal(status int, told time.Duration) bool {
	return slices.Contains(t.tooFast, status) || status == http.StatusServiceUnavailable && told > 0
}

// slowDown keeps the host's bucket to what the server says is left, less what is on
// its way there: that was spent here already, but perhaps not there.
//
// It is tempting to spread what is left over the time to the reset. But that takes
// away the bursts that both sides allow, and punishes whoever reads an hourly quota.
func (t *Transport) slowDown(host string, left quota, hold time.Duration) {
	if !left.known {
		return
	}
	if left.remaining == 0 {
		t.buckets.Pause(host, min(hold, t.longestPause))
	}
	t.mu.Lock() // or two goroutines would both charge the same surplus
	defer t.mu.Unlock()
	free := max(0, float64(left.remaining)-t.onTheWay[host].cost)
	if surplus := t.buckets.Tokens(host) - free; surplus > 0 {
		_ = t.buckets.Charge(host, surplus) // a finite amount above 0 is never refused
	}
}

// jitter returns by how much a pause is longer that ends in some second, so that
// many processes told that second spread. All requests of one Transport that were
// told it get the same: a pause lasts as long as the longest demanded, and of many
// draws the longest is always near the end, where the processes would meet again.
func (t *Transport) jitter(host string, now time.Time, pause time.Duration) time.Duration {
	if t.retries == 0 {
		return 0
	}
	told := fnv.New64a()
	told.Write([]byte(host))
	second := uint64(now.Add(pause).Unix())
	draw := rand.New(rand.NewPCG(t.seed, told.Sum64()^second))
	return time.Duration(draw.Float64() * float64(min(pause, max(time.Second, pause/10))))
}

// readRetryAfter returns the wait that Retry-After demands, 0 for none, for a
// malformed one and for one that has passed already.
func readRetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get(retryAfter)
	if value == "" { // as on almost every answer: making an error of it takes time
		return 0
	}
	wait, err := tokenbucket.ParseRetryAfter(value, now)
	if err != nil {
		return 0
	}
	return wait
}

// quota is what a server says is left.
type quota struct {
	known     bool
	remaining int64
	reset     time.Duration // until there is more; 0 if that is not told
}

// hold returns the pause that a quota asks for: none unless nothing is left.
func (q quota) hold() time.Duration {
	if !q.known || q.remaining > 0 {
		return 0
	}
	return q.reset
}

// readQuota reads the RateLimit field, or else the X-RateLimit ones. What a cache
// tells is out of date.
func (t *Transport) readQuota(h http.Header, now time.Time) quota {
	age := h.Get("Age")
	if !t.readsFields || age != "" && age != "0" {
		return quota{}
	}
	if q := parseRateLimit(strings.Join(h.Values(rateLimit), ",")); q.known {
		return q
	}
	return parseXRateLimit(h.Get(xRemaining), h.Get(xReset), now)
}

// parseRateLimit returns the quota of the policy with the least left, of several
// the one with the latest reset. As the draft and RFC 9651 have it, one
// malformed item spoils the whole field.
func parseRateLimit(field string) (least quota) {
	g := rateLimitGrammar()
	if !g.list.MatchString(field) {
		return quota{}
	}
	for _, item := range g.item.FindAllStringSubmatch(field, -1) {
		q := g.quotaOf(item[1])
		if !q.known {
			return quota{}
		}
		if !least.known || q.remaining < least.remaining || q.remaining == least.remaining && q.reset > least.reset {
			least = q
		}
	}
	return least
}

// quotaOf reads an item's parameters: r is required, t may be missing. Of several
// with one name the last counts.
func (g *grammar) quotaOf(parameters string) quota {
	values := map[string]string{"t": "0"}
	for _, p := range g.parameter.FindAllStringSubmatch(parameters, -1) {
		values[p[1]] = p[2]
	}
	remaining, known := parseInteger(values["r"])
	seconds, ok := parseInteger(values["t"])
	return quota{known && ok, remaining, inSeconds(seconds)}
}

// unixTimes are above it: no reset is 31 years away.
const unixTimes = 1_000_000_000

// parseXRateLimit reads fields that everybody writes in whole numbers, but the
// reset either in seconds from now or as a Unix time.
func parseXRateLimit(remaining, reset string, now time.Time) quota {
	left, known := parseInteger(strings.TrimSpace(remaining))
	at, _ := parseInteger(strings.TrimSpace(reset)) // if it is malformed, 0
	if at > unixTimes {
		return quota{known, left, max(0, time.Unix(at, 0).Sub(now))}
	}
	return quota{known, left, inSeconds(at)}
}

// parseInteger reads a whole number of 1 to 15 digits, as an Integer of a
// structured field has them.
func parseInteger(digits string) (n int64, ok bool) {
	if len(digits) > 15 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// inSeconds returns n seconds, Never if that is more than a Duration can say.
func inSeconds(n int64) time.Duration {
	if n > int64(tokenbucket.Never/time.Second) {
		return tokenbucket.Never
	}
	return time.Duration(n) * time.Second
}

// grammar is what we need of structured fields (RFC 9651): Lists of Strings whose
// parameters may have any value.
type grammar struct{ list, item, parameter *regexp.Regexp }

// rateLimitGrammar compiles the grammar for those who need it.
var rateLimitGrammar = sync.OnceValue(func() *grammar {
	const (
		text      = `"(?:[ !#-\[\]-~]|\\["\\])*"`
		number    = `-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})`
		token     = "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
		bytes     = `:[A-Za-z0-9+/=]*:`
		boolean   = `\?[01]`
		date      = `@-?[0-9]{1,15}`
		display   = `%"(?:[ !#-$&-~]|%[0-9a-f]{2})*"`
		value     = text + `|` + number + `|` + token + `|` + bytes + `|` + boolean + `|` + date + `|` + display
		key       = `[a-z*][a-z0-9_.*-]*`
		parameter = `; *(` + key + `)(?:=(` + value + `))?`
		item      = text + `((?:` + parameter + `)*)`
	)
	return &grammar{
		list:      regexp.MustCompile(`^ *` + item + `(?:[ \t]*,[ \t]*` + item + `)*[ \t]*$`),
		item:      regexp.MustCompile(item),
		parameter: regexp.MustCompile(parameter),
	}
})
