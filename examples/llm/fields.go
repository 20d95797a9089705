package main

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// remaining returns the level that a header reports for requests or tokens, or +Inf if
// the field is missing or malformed.
func remaining(header http.Header, unit string) float64 {
	n, err := strconv.ParseUint(header.Get("X-Ratelimit-Remaining-"+unit), 10, 53)
	if err != nil {
		return math.Inf(1)
	}
	return float64(n)
}

// reset returns the time until a limit is full again, such as "6m0s". It returns 0 if
// that is in the past, or if the field is missing or malformed.
func reset(header http.Header, unit string) time.Duration {
	d, err := time.ParseDuration(header.Get("X-Ratelimit-Reset-" + unit))
	if err != nil {
		return 0
	}
	return max(0, d)
}
