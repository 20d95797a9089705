package tokenbucket

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// RetryAfter returns a wait in whole seconds, for the Retry-After header field
// (RFC 9110, section 10.2.3). It rounds up, so that a client that obeys it does not come too
// early: a wait above 0 is at least 1 second. A wait of 0 or less is 0 seconds. For Never,
// ok is false: send no Retry-After, because no later request will be admitted either.
func RetryAfter(wait time.Duration) (seconds int64, ok bool) {
	switch {
	case wait == Never:
		return 0, false
	case wait <= 0:
		return 0, true
	default:
		return int64((wait-1)/time.Second) + 1, true
	}
}

// The three forms of an HTTP-date (RFC 9110, section 5.6.7).
const (
	imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850Date = "Monday, 02-Jan-06 15:04:05 GMT"
	asctime    = time.ANSIC
	asctime2   = "Mon Jan 02 15:04:05 2006" // asctime with a zero before a day below 10, which the RFC also allows
)

// ParseRetryAfter parses the value of a Retry-After header field: a whole number of
// seconds, or any of the three forms of an HTTP-date (RFC 9110, sections 10.2.3 and 5.6.7).
// White space around the value is ignored. It returns the wait from now: 0 for a date in
// the past, Never for a wait that a Duration cannot hold. For any other value it returns an
// error; treat the field as absent then.
func ParseRetryAfter(value string, now time.Time) (time.Duration, error) {
	value = strings.TrimSpace(value)
	if isDigits(value) {
		return parseSeconds(value), nil
	}
	date, leap := value, time.Duration(0)
	if early := strings.Replace(value, " 23:59:60 ", " 23:59:59 ", 1); early != value { // a leap second, which package time rejects
		date, leap = early, time.Second
	}
	for _, layout := range []string{imfFixdate, rfc850Date, asctime, asctime2} {
		if at, ok := parseDate(layout, date, now); ok {
			return max(0, at.Add(leap).Sub(now)), nil
		}
	}
	return 0, fmt.Errorf("tokenbucket: Retry-After %q is neither a whole number of seconds nor an HTTP-date: treat it as absent", value)
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func parseSeconds(digits string) time.Duration {
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) || seconds > int64(Never/time.Second) {
		return Never
	}
	return time.Duration(seconds) * time.Second
}

// parseDate parses a value in exactly one layout. time.Parse alone would also accept fractions
// of a second and hours of one digit. parseDate accepts a wrong weekday.
func parseDate(layout, value string, now time.Time) (time.Time, bool) {
	date, err := time.Parse(layout, value)
	if err != nil {
		return time.Time{}, false
	}
	_, parsed, _ := strings.Cut(date.Format(layout), " ")
	if _, given, _ := strings.Cut(value, " "); given != parsed {
		return time.Time{}, false
	}
	if layout == rfc850Date {
		date = nearestCentury(date, now)
	}
	return date, true
}

// nearestCentury corrects the century of a date whose year had two digits: a date that
// appears to be more than 50 years in the future is in the past (RFC 9110, section 5.6.7).
func nearestCentury(date, now time.Time) time.Time {
	switch {
	case date.After(now.AddDate(50, 0, 0)):
		return date.AddDate(-100, 0, 0)
	case !date.After(now.AddDate(-50, 0, 0)):
		return date.AddDate(100, 0, 0)
	default:
		return date
	}
}
