package httplimit

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aa014e13/tokenbucket"
)

// The fields that older revisions of the RateLimit draft have.
const (
	rateLimitRemaining = "Ratelimit-Remaining"
	rateLimitReset     = "Ratelimit-Reset"
)

// quota is how many tokens a server says are left.
type quota struct {
	known     bool
	remaining int64
	reset     time.Duration // the time until there are more; 0 if the server does not say
}

// hold returns the pause that a quota demands: 0 unless nothing is left.
func (q quota) hold() time.Duration {
	if !q.known || q.remaining > 0 {
		return 0
	}
	return q.reset
}

// readQuota reads the newest kind of field that the answer has. It ignores an answer from
// a cache, because its fields are out of date.
func (t *Transport) readQuota(h http.Header, now time.Time) quota {
	age := h.Get("Age")
	if !t.readsFields || age != "" && age != "0" {
		return quota{}
	}
	if lines := h.Values(rateLimit); len(lines) > 0 {
		if q := parseRateLimit(strings.Join(lines, ",")); q.known {
			return q
		}
	}
	// The values of revision 6 are structured Items, which may have parameters.
	remaining, _, _ := strings.Cut(h.Get(rateLimitRemaining), ";")
	reset, _, _ := strings.Cut(h.Get(rateLimitReset), ";")
	if q := parseXRateLimit(remaining, reset, now); q.known {
		return q
	}
	return parseXRateLimit(h.Get(xRemaining), h.Get(xReset), now)
}

// parseRateLimit reads the RateLimit field: a List of Strings, or, in revision 7 of the
// draft, a Dictionary. As RFC 9651 demands, one malformed member makes all of the field
// invalid.
func parseRateLimit(field string) quota {
	g := rateLimitGrammar()
	if !g.isUnicode(field) {
		return quota{}
	}
	if strings.HasPrefix(strings.TrimLeft(field, " "), `"`) {
		return g.leastOf(field)
	}
	return g.quotaOfDictionary(field)
}

// leastOf returns the quota of the policy with the fewest tokens left. On a tie, it is
// the one with the latest reset.
func (g *grammar) leastOf(list string) (least quota) {
	if !g.list.MatchString(list) {
		return quota{}
	}
	for _, item := range g.item.FindAllStringSubmatch(list, -1) {
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

// quotaOf reads an item's parameters: r is required, t may be missing. If a name occurs
// more than once, the last one counts.
func (g *grammar) quotaOf(parameters string) quota {
	values := map[string]string{"t": "0"}
	for _, p := range g.parameter.FindAllStringSubmatch(parameters, -1) {
		values[p[1]] = p[2]
	}
	return newQuota(values["r"], values["t"])
}

// quotaOfDictionary reads the members of revision 7: remaining is required, reset may be
// missing. If a name occurs more than once, the last one counts.
func (g *grammar) quotaOfDictionary(field string) quota {
	if !g.dictionary.MatchString(field) {
		return quota{}
	}
	values := map[string]string{"reset": "0"}
	for _, m := range g.member.FindAllStringSubmatch(field, -1) {
		values[m[1]] = m[2]
	}
	return newQuota(values["remaining"], values["reset"])
}

// isUnicode reports whether the Display Strings of a field decode to UTF-8.
func (g *grammar) isUnicode(field string) bool {
	if !strings.Contains(field, `%"`) {
		return true
	}
	for _, quoted := range g.quoted.FindAllString(field, -1) {
		if quoted[0] != '%' {
			continue
		}
		if decoded, err := url.PathUnescape(quoted[1:]); err != nil || !utf8.ValidString(decoded) {
			return false
		}
	}
	return true
}

func newQuota(remaining, seconds string) quota {
	left, known := parseInteger(remaining)
	reset, ok := parseInteger(seconds)
	return quota{known && ok, left, inSeconds(reset)}
}

// unixTimes is the bound between resets in seconds and Unix times, which are above it. No
// reset is three years away, and a testing/synctest bubble begins in the year 2000, at 9.5e8.
const unixTimes = 100_000_000

// parseXRateLimit reads fields that are whole numbers. The reset is in seconds from now or
// a Unix time.
func parseXRateLimit(remaining, reset string, now time.Time) quota {
	left, known := parseInteger(strings.TrimSpace(remaining))
	at, _ := parseInteger(strings.TrimSpace(reset)) // if it is malformed, 0
	if at > unixTimes {
		return quota{known, left, max(0, time.Unix(at, 0).Sub(now))}
	}
	return quota{known, left, inSeconds(at)}
}

// parseInteger reads a whole number of 1 to 15 digits, as many as an Integer of a
// structured field may have.
func parseInteger(digits string) (n int64, ok bool) {
	if len(digits) > 15 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// inSeconds returns n seconds, Never if a Duration cannot be that long.
func inSeconds(n int64) time.Duration {
	if n > int64(tokenbucket.Never/time.Second) {
		return tokenbucket.Never
	}
	return time.Duration(n) * time.Second
}

// grammar is the part of structured fields (RFC 9651) that is needed here: Lists of Strings,
// and Dictionaries, with any values and parameters.
type grammar struct{ list, item, parameter, dictionary, member, quoted *regexp.Regexp }

// rateLimitGrammar compiles the grammar when it is first needed.
var rateLimitGrammar = sync.OnceValue(func() *grammar {
	const (
		text      = `"(?:[ !#-\[\]-~]|\\["\\])*"`
		number    = `-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})`
		token     = "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
		digit64   = `[A-Za-z0-9+/]`
		bytes     = `:(?:` + digit64 + `{4})*(?:` + digit64 + `{2}(?:==)?|` + digit64 + `{3}=?)?:`
		boolean   = `\?[01]`
		date      = `@-?[0-9]{1,15}`
		display   = `%"(?:[ !#-$&-~]|%[0-9a-f]{2})*"`
		value     = text + `|` + number + `|` + token + `|` + bytes + `|` + boolean + `|` + date + `|` + display
		key       = `[a-z*][a-z0-9_.*-]*`
		parameter = `; *(` + key + `)(?:=(` + value + `))?`
		any       = `(?:; *` + key + `(?:=(?:` + value + `))?)*`
		item      = text + `(` + any + `)`
		inner     = `\( *(?:(?:` + value + `)` + any + `(?: +(?:` + value + `)` + any + `)*)? *\)`
		member    = `(` + key + `)(?:=(` + inner + `|` + value + `))?` + any
		separator = `[ \t]*,[ \t]*`
	)
	return &grammar{
		list:       regexp.MustCompile(`^ *` + item + `(?:` + separator + item + `)*[ \t]*$`),
		item:       regexp.MustCompile(item),
		parameter:  regexp.MustCompile(parameter),
		dictionary: regexp.MustCompile(`^ *` + member + `(?:` + separator + member + `)*[ \t]*$`),
		member:     regexp.MustCompile(member),
		quoted:     regexp.MustCompile(text + `|` + display),
	}
})
