package fit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Trial replays arrivals through one limit. Each key has its own bucket, which is full at
// the key's first arrival. Each decision is that of tokenbucket.Limit.Take.
//
// Use NewTrial. A Trial must not be used by several goroutines at once.
type Trial struct {
	limit    tokenbucket.Limit
	buckets  map[string]*tried
	requests int
	refused  int
	waits    []time.Duration
	first    Refusal
}

type tried struct {
	state    tokenbucket.State
	latest   time.Duration // the latest instant of an arrival
	requests int
	refused  int
}

// Refusal is a request that was refused.
type Refusal struct {
	Key  string
	At   time.Duration // since the origin
	Cost float64       // tokens
	Wait time.Duration // until it would have been admitted; tokenbucket.Never if the cost is above the capacity
}

// NewTrial returns a Trial of a limit. It returns tokenbucket.ErrInvalidLimit if the limit
// is invalid.
func NewTrial(limit tokenbucket.Limit) (*Trial, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	return &Trial{limit: limit, buckets: map[string]*tried{}}, nil
}

// Add decides about an arrival and reports whether it is admitted. If the instant of the
// arrival is earlier than the key's latest one, the latest one is used. Add returns
// tokenbucket.ErrInvalidCost for a cost that is negative or NaN, and counts nothing then.
func (t *Trial) Add(key string, a Arrival) (admitted bool, err error) {
	if !(a.Cost >= 0) {
		return false, fmt.Errorf("fit: %w: %v at %v: pass a number of tokens, 0 or more", tokenbucket.ErrInvalidCost, a.Cost, a.At)
	}
	b := t.buckets[key]
	if b == nil {
		b = &tried{state: t.limit.Full(a.At), latest: a.At}
		t.buckets[key] = b
	}
	t.requests++
	b.requests++
	b.latest = max(b.latest, a.At)
	state, d := t.limit.Take(b.state, b.latest, a.Cost)
	b.state = state
	if !d.OK {
		b.refused++
		if t.refused == 0 {
			t.first = Refusal{key, b.latest, a.Cost, d.Wait}
		}
		t.refused++
		t.waits = append(t.waits, d.Wait)
	}
	return d.OK, nil
}

// Limit returns the limit given to NewTrial.
func (t *Trial) Limit() tokenbucket.Limit { return t.limit }

// Requests returns how many arrivals were added.
func (t *Trial) Requests() int { return t.requests }

// Refused returns how many of the arrivals were refused.
func (t *Trial) Refused() int { return t.refused }

// First returns the first refusal, and false if there was none.
func (t *Trial) First() (Refusal, bool) { return t.first, t.refused > 0 }

// Wait returns a quantile of the waits of all refusals, from 0 (the shortest) to 1 (the
// longest): 0.5 is the median. It is 0 if nothing was refused.
func (t *Trial) Wait(quantile float64) time.Duration {
	if len(t.waits) == 0 {
		return 0
	}
	slices.Sort(t.waits)
	if !(quantile > 0) { // NaN, too
		return t.waits[0]
	}
	last := len(t.waits) - 1
	return t.waits[int(min(1, quantile)*float64(last))]
}

// KeyRefusals counts the requests of one key, and those of them that were refused.
type KeyRefusals struct {
	Key      string
	Requests int
	Refused  int
}

// Keys returns the keys with refused requests: those with most refusals first, and those
// with equal refusals in the order of their keys.
func (t *Trial) Keys() []KeyRefusals {
	var keys []KeyRefusals
	for key, b := range t.buckets {
		if b.refused > 0 {
			keys = append(keys, KeyRefusals{key, b.requests, b.refused})
		}
	}
	slices.SortFunc(keys, func(a, b KeyRefusals) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Key, b.Key))
	})
	return keys
}
