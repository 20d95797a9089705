// Package fit finds limits from recorded traffic. It returns the capacity that a token
// bucket needs, at a given refill, to refuse nothing or at most a given share of the
// requests. It also returns the requests that a limit would have refused.
//
// [Capacity] serves one bucket. [Traffic] holds the arrivals of many keys, each with a
// bucket of its own. [Trial] replays arrivals through one limit, request by request.
// The command fit/cmd/fitlimit reads access logs and draws the capacities.
//
// Instants count from an origin that the caller chooses. Costs are in tokens, refills in
// tokens per second. Pass arrivals in the order of time. If the instant of an arrival is
// earlier than the latest one for the same bucket, the latest one is used.
package fit

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// ErrNoArrivals is returned if there are no arrivals or all of them cost 0, so that every
// capacity would do. Check that the log is the right one.
var ErrNoArrivals = errors.New("fit: no arrivals that cost anything")

// maxCapacity is the largest capacity that a tokenbucket.Limit may have, in tokens.
const maxCapacity = 1 << 42

// Arrival is one request.
type Arrival struct {
	At   time.Duration // since the origin
	Cost float64       // tokens, 0 or more
}

func (a Arrival) validate() error {
	switch {
	case a.Cost > maxCapacity:
		return fmt.Errorf("fit: %w: cost %v at %v: no capacity is above 2^42 tokens: split the request", tokenbucket.ErrCostExceedsCapacity, a.Cost, a.At)
	case !(a.Cost >= 0):
		return fmt.Errorf("fit: %w: %v at %v: pass a number of tokens, 0 or more", tokenbucket.ErrInvalidCost, a.Cost, a.At)
	default:
		return nil
	}
}

// Capacity returns the least capacity, in tokens, such that a bucket with this or any
// larger capacity refuses at most a given share of the arrivals. The refill is in
// tokens per second. The share is the argument refused, at least 0 and less than 1. If
// it is 0, Capacity does not store the arrivals; otherwise it stores each in 16 bytes.
//
// With a share of 0 the capacity is
//
//	max over s <= t of arrivals(s, t) - refill * (t - s)
//
// where arrivals(s, t) is the sum of the costs from s to t, both included.
//
// All larger capacities are checked as well. If costs differ, a larger capacity may
// refuse more requests: it may admit one large request, which leaves no tokens for
// several small ones. The returned capacity is at least the least cost above 0.
//
// Sums of whole numbers, halves and quarters are exact. Other costs and refills are rounded,
// as in [tokenbucket.Limit.Take]. Take may then need a capacity that is larger by a rounding
// error.
//
// Capacity returns ErrNoArrivals if no arrival costs anything. It returns
// tokenbucket.ErrInvalidLimit for a refill that is infinite, NaN, or not above 0, or if more than
// 2^42 tokens are needed. It returns tokenbucket.ErrInvalidOption for a share out of range. It
// returns tokenbucket.ErrInvalidCost for a cost that is negative or NaN, and
// tokenbucket.ErrCostExceedsCapacity for a cost above 2^42 tokens.
func Capacity(arrivals iter.Seq[Arrival], refillPerSec, refused float64) (float64, error) {
	if err := checkQuestion(refillPerSec, refused); err != nil {
		return 0, err
	}
	t := NewTraffic(refillPerSec)
	if refused > 0 {
		t.Keep()
	}
	for a := range arrivals {
		if err := t.Add("", a); err != nil {
			return 0, err
		}
	}
	return t.Capacity(refillPerSec, refused)
}

func checkQuestion(refillPerSec, share float64) error {
	if !(refillPerSec > 0 && refillPerSec <= math.MaxFloat64) {
		return fmt.Errorf("fit: %w: refill %v: choose a finite one above 0 tokens per second", tokenbucket.ErrInvalidLimit, refillPerSec)
	}
	if !(share >= 0 && share < 1) {
		return fmt.Errorf("fit: %w: share %v: choose one from 0 to below 1", tokenbucket.ErrInvalidOption, share)
	}
	return nil
}

// elapsed returns the nanoseconds from one instant to a later one.
func elapsed(from, to time.Duration) float64 { return float64(uint64(to) - uint64(from)) }
