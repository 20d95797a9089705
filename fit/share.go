package fit

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// searcher finds the least capacity such that it and every larger one refuse at most a
// number of requests.
//
// In this file, the debt of a bucket is what it lacks to be full: the costs of the requests
// that it admitted, less the refill since. The capacity matters only in one comparison:
//
//	admitted if debt + cost <= capacity
//
// So a replay at one capacity has the same results for every capacity up to the least
// debt + cost that was refused, and down to the largest debt + cost that was admitted.
// The searches jump between these bounds, and end at an exact number.
//
// A bucket that refuses nothing has the largest debt. When even this bucket is full, a
// new busy period begins, and no earlier refusal affects it. At any capacity, only the
// busy periods that need a larger capacity are replayed.
//
// Amounts are in billionths of a token: the gain of whole nanoseconds is then a product.
type searcher struct {
	periods []period // those that need the largest capacity first
	refill  float64  // tokens per second
	allowed int      // refusals
}

// period is a busy period of one key: its bucket is full before it.
type period struct {
	need     float64 // the capacity that refuses nothing
	arrivals trace
}

const billion = 1e9

// search returns the least capacity, in tokens, such that it and every larger one refuse
// at most the share. The capacity enough refuses nothing.
func (t *Traffic) search(refillPerSec, share, enough float64) float64 {
	s := searcher{nil, refillPerSec, allowed(share, t.count)}
	if s.allowed == 0 {
		return enough
	}
	least, largest := math.Inf(1), 0.0
	for _, trace := range t.traces {
		for _, a := range trace {
			least, largest = min(least, a.Cost), max(largest, a.Cost)
		}
	}
	for _, trace := range t.traces {
		s.split(trace, least*billion)
	}
	slices.SortFunc(s.periods, func(a, b period) int { return cmp.Compare(b.need, a.need) })
	if least == largest {
		return max(least, s.bisect(enough*billion)/billion)
	}
	return max(least, s.descend(0, enough*billion)/billion)
}

// split adds the busy periods of a trace that need more than the least cost. The others
// refuse nothing at any capacity that search may return. Nearly all busy periods of a
// rare key are such.
func (s *searcher) split(t trace, least float64) {
	var d debt
	start, need := 0, 0.0
	for i, a := range t {
		owed := d.at(a.At, s.refill)
		if owed == 0 && i > start {
			if need > least {
				s.periods = append(s.periods, period{need, t[start:i]})
			}
			start, need = i, 0
		}
		d.spent += a.Cost * billion
		need = max(need, owed+a.Cost*billion)
	}
	if need > least {
		s.periods = append(s.periods, period{need, t[start:]})
	}
}

// debt is the debt of one bucket. As tokenbucket.State does, it stores the sum spent since
// the anchor, not the level, so that rounding errors do not add up.
type debt struct {
	spent  float64
	anchor time.Duration
}

// at returns the debt at an instant. If it is 0, at moves the anchor there.
func (d *debt) at(now time.Duration, refill float64) float64 {
	owed := d.spent - float64(elapsed(d.anchor, now)*refill) // float64 keeps the product from being fused with the subtraction
	if owed <= 0 {
		d.spent, d.anchor = 0, now
		return 0
	}
	return owed
}

// outcome is the result of a replay. It holds for all capacities c with from <= c < to. If
// good, they have the same refusals. Otherwise they all have more refusals than allowed.
type outcome struct {
	good     bool
	from, to float64
}

func (s *searcher) replay(capacity float64) outcome {
	o, refused := outcome{true, 0, math.Inf(1)}, 0
	for _, p := range s.periods {
		if p.need <= capacity { // all that follow need as little or less
			o.from = max(o.from, p.need)
			break
		}
		var d debt
		for _, a := range p.arrivals {
			cost := a.Cost * billion
			need := d.at(a.At, s.refill) + cost
			if need <= capacity {
				d.spent += cost
				o.from = max(o.from, need)
				continue
			}
			o.to = min(o.to, need)
			if refused++; refused > s.allowed {
				o.good = false
				return o
			}
		}
	}
	return o
}

// bisect searches if all costs are equal: then refusals only fall as the capacity grows.
// The capacity enough refuses nothing.
func (s *searcher) bisect(enough float64) float64 {
	bad, good := 0.0, enough // every capacity below bad is bad
	for bad < good {
		o := s.replay(bad + (good-bad)/2)
		if o.good {
			good = o.from
		} else {
			bad = o.to
		}
	}
	return good
}

// descend searches from enough downwards and returns the end of the highest range of bad
// capacities between low and enough, or low if there is none. It does not search a range
// in which no capacity is bad, or one in which all are.
func (s *searcher) descend(low, enough float64) float64 {
	if low >= enough {
		return low
	}
	fewest, most := s.bounds(low, enough)
	switch {
	case most <= s.allowed:
		return low
	case fewest > s.allowed:
		return enough
	}
	middle := low + (enough-low)/2
	o := s.replay(middle)
	top := min(o.to, enough)
	if bad := s.descend(top, enough); bad > top || !o.good {
		return bad
	}
	return s.descend(low, max(low, min(o.from, middle)))
}

// bounds returns bounds of the refusals of every capacity from low to below high. It
// follows the smallest and the largest debt that any of them may have. It stops as soon
// as the lower bound is too many.
func (s *searcher) bounds(low, high float64) (fewest, most int) {
	for _, p := range s.periods {
		if p.need <= low {
			break
		}
		var least, largest debt
		for _, a := range p.arrivals {
			cost := a.Cost * billion
			leastOwed, mostOwed := least.at(a.At, s.refill), largest.at(a.At, s.refill)
			switch {
			case mostOwed+cost <= low: // all admit it
				least.spent += cost
				largest.spent += cost
			case leastOwed+cost >= high: // all refuse it
				most++
				if fewest++; fewest > s.allowed {
					return fewest, most
				}
			default: // after an admission, a bucket owes at most its capacity
				most++
				largest.spent += min(cost, high-mostOwed)
			}
		}
	}
	return fewest, most
}
