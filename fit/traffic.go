package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// Traffic holds the arrivals of many keys, where each key has a bucket of its own and all
// buckets have the same limit. It stores a summary of each key, about 100 bytes for a
// rare key. After one pass over the arrivals, it returns results for every refill that
// NewTraffic allows. Capacity needs Keep if its share of refused requests is above 0.
//
// Use NewTraffic. A Traffic must not be used by several goroutines at once.
type Traffic struct {
	least   float64
	keeps   bool
	ids     map[string]int32
	keys    []string
	demands []demand
	traces  []trace // by key, if it keeps them
	count   int     // arrivals
}

// trace holds the arrivals of one key, in the order of time.
type trace []Arrival

// NewTraffic returns an empty Traffic. Its methods accept refills from leastRefill
// upwards, in tokens per second; 0 means all refills.
func NewTraffic(leastRefill float64) *Traffic {
	return &Traffic{least: max(0, leastRefill), ids: map[string]int32{}}
}

// Keep makes t store every arrival with a cost above 0, in 16 bytes each. Capacity needs that
// for a share above 0. Call Keep before Add: after an Add it does nothing. By default, t does
// not store arrivals.
func (t *Traffic) Keep() { t.keeps = t.keeps || t.count == 0 }

// Add adds an arrival. If the instant of the arrival is earlier than the key's latest
// one, the latest one is used. Add returns tokenbucket.ErrInvalidCost or
// tokenbucket.ErrCostExceedsCapacity as [Capacity] does, and adds nothing then.
func (t *Traffic) Add(key string, a Arrival) error {
	if err := a.validate(); err != nil {
		return err
	}
	id := t.id(key)
	d := &t.demands[id]
	d.latest = max(d.latest, a.At)
	t.count++
	if a.Cost > 0 {
		d.add(a.Cost, t.least)
		if t.keeps {
			t.traces[id] = append(t.traces[id], Arrival{d.latest, a.Cost})
		}
	}
	return nil
}

func (t *Traffic) id(key string) int32 {
	id, ok := t.ids[key]
	if !ok {
		id = int32(len(t.demands))
		t.ids[key] = id
		t.keys = append(t.keys, key)
		t.demands = append(t.demands, demand{latest: math.MinInt64})
		if t.keeps {
			t.traces = append(t.traces, nil)
		}
	}
	return id
}

// Len returns the number of keys.
func (t *Traffic) Len() int { return len(t.keys) }

// Count returns the number of arrivals.
func (t *Traffic) Count() int { return t.count }

// Capacity returns the least capacity, in tokens, such that buckets with this refill
// and this or any larger capacity refuse at most a given share of all arrivals. The
// share is the argument refused. The errors are those of the function [Capacity], and
// tokenbucket.ErrInvalidOption for a refill below the least or for a share above 0
// without Keep.
func (t *Traffic) Capacity(refillPerSec, refused float64) (float64, error) {
	if err := t.check(refillPerSec, refused); err != nil {
		return 0, err
	}
	capacity := 0.0
	for i := range t.demands {
		capacity = max(capacity, t.demands[i].capacity(refillPerSec, t.least))
	}
	if refused > 0 {
		if !t.keeps {
			return 0, fmt.Errorf("fit: %w: share %v: call Keep before Add", tokenbucket.ErrInvalidOption, refused)
		}
		capacity = t.search(refillPerSec, refused, capacity)
	}
	return checkCapacity(capacity)
}

// CapacityOfKeys returns the least capacity, in tokens, such that requests are refused for at
// most a given share of the keys. The share is the argument refusedKeys: with 0.01, requests
// of one key in a hundred may be refused. Every key has a bucket with this refill. The errors
// are those of [Traffic.Capacity]. CapacityOfKeys does not need Keep.
func (t *Traffic) CapacityOfKeys(refillPerSec, refusedKeys float64) (float64, error) {
	if err := t.check(refillPerSec, refusedKeys); err != nil {
		return 0, err
	}
	needs := make([]float64, len(t.demands))
	for i := range t.demands {
		needs[i] = t.demands[i].capacity(refillPerSec, t.least)
	}
	slices.Sort(needs)
	return checkCapacity(needs[len(needs)-1-allowed(refusedKeys, len(needs))])
}

// Need is the least capacity with which no request of one key is refused.
type Need struct {
	Key      string
	Capacity float64 // tokens
}

// Neediest returns the n keys that need the largest capacities with this refill, the
// largest first, and equal ones in the order of their keys. If the capacity is lowered,
// requests of these keys are the first to be refused.
func (t *Traffic) Neediest(refillPerSec float64, n int) []Need {
	needs := make([]Need, len(t.keys))
	for i, key := range t.keys {
		needs[i] = Need{key, t.demands[i].capacity(refillPerSec, t.least)}
	}
	slices.SortFunc(needs, func(a, b Need) int {
		return cmp.Or(cmp.Compare(b.Capacity, a.Capacity), cmp.Compare(a.Key, b.Key))
	})
	return needs[:min(max(0, n), len(needs))]
}

// NeedOf returns the least capacity, in tokens, with which a bucket with this refill
// refuses no request of the key: 0 for an unknown key.
func (t *Traffic) NeedOf(key string, refillPerSec float64) float64 {
	id, ok := t.ids[key]
	if !ok {
		return 0
	}
	return t.demands[id].capacity(refillPerSec, t.least)
}

func (t *Traffic) check(refillPerSec, share float64) error {
	if err := checkQuestion(refillPerSec, share); err != nil {
		return err
	}
	if refillPerSec < t.least {
		return fmt.Errorf("fit: %w: refill %v: pass a least refill of at most that to NewTraffic, not %v", tokenbucket.ErrInvalidOption, refillPerSec, t.least)
	}
	if !slices.ContainsFunc(t.demands, func(d demand) bool { return len(d.windows) > 0 }) {
		return ErrNoArrivals
	}
	return nil
}

func checkCapacity(tokens float64) (float64, error) {
	if tokens > maxCapacity {
		return 0, fmt.Errorf("fit: %w: %v tokens are needed, above 2^42: choose a higher refill", tokenbucket.ErrInvalidLimit, tokens)
	}
	return tokens, nil
}

// allowed returns how many of n may be refused: never all. A share counts as the decimal
// fraction that it is closest to: 0.29 of 100 is 29.
func allowed(share float64, n int) int {
	return min(n-1, int(math.Floor(share*float64(n)*(1+1e-12))))
}
