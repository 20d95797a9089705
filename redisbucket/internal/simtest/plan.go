package simtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// event is an event at an instant of a run.
type event struct {
	at   time.Duration
	what string
	do   func(f *fleet)
}

// plan holds the events of a run. It depends only on the seed.
type plan struct {
	random   *rand.Rand
	services []service
	events   []event
	calls    []*call
	troubles int
}

const processes = 50

// newPlan returns the plan of a number of hours. Each hour has two episodes of some seconds
// with many calls. An episode begins with faults and ends without. Nothing happens between
// the episodes.
func newPlan(r *rand.Rand, hours int, faults []fault) *plan {
	p := &plan{random: r, services: newServices(r)}
	for hour := range hours {
		for half := range 2 {
			begin := time.Duration(hour)*time.Hour + time.Duration(half)*30*time.Minute
			p.addEpisode(begin+between(r, 0, 25*time.Minute), faults)
		}
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return p
}

// newServices returns various limits. They refuse most of the calls of an episode.
func newServices(r *rand.Rand) []service {
	limit := func() tokenbucket.Limit {
		return tokenbucket.Limit{Capacity: float64(8 + r.IntN(60)), RefillPerSec: 0.1 + 12*r.Float64()}
	}
	return []service{
		{name: "plain", limit: limit(), keys: 2, calls: []method{take, take, take, try, try, try, refund, charge}},
		{name: "waits", limit: limit(), keys: 2, calls: []method{wait}},
		{name: "leased", limit: limit(), keys: 3, calls: []method{take, try}, lease: float64(2 + r.IntN(6)), age: between(r, 50*time.Millisecond, time.Second)},
	}
}

// addEpisode adds some seconds with faults, and some without, in which everything must
// recover.
func (p *plan) addEpisode(begin time.Duration, faults []fault) {
	trouble := between(p.random, 4*time.Second, 12*time.Second)
	p.addCalls(begin, trouble, 110, 12)
	end := begin + trouble
	if len(faults) > 0 {
		for range 1 + p.random.IntN(3) {
			f := faults[p.random.IntN(len(faults))]
			at := begin + between(p.random, 0, trouble)
			end = max(end, p.addFault(f, at))
		}
	}
	p.add(end, "calm", (*fleet).calm)
	p.addCalls(end, 6*time.Second, 60, 1)
}

func (p *plan) add(at time.Duration, what string, do func(f *fleet)) {
	p.events = append(p.events, event{at, what, do})
}

// addCalls adds n calls, or a few more. Some come in bursts of up to burst calls.
func (p *plan) addCalls(begin, length time.Duration, n, burst int) {
	for n > 0 {
		at, slot, s := begin+between(p.random, 0, length), p.random.IntN(processes), p.random.IntN(len(p.services))
		key := fmt.Sprint(p.random.IntN(p.services[s].keys))
		count := 1
		if p.random.IntN(10) == 0 {
			count += p.random.IntN(burst)
		}
		for range count {
			p.addCall(at+between(p.random, 0, time.Millisecond), slot, s, key)
			n--
		}
	}
}

func (p *plan) addCall(at time.Duration, slot, s int, key string) {
	r, methods := p.random, p.services[s].calls
	c := &call{id: 1 + len(p.calls), service: s, key: key, method: methods[r.IntN(len(methods))]}
	tokens := 1 + r.IntN(3)
	if c.cost = float64(tokens); p.services[s].lease == 0 {
		c.cost = coded(tokens, c.id)
	}
	if c.method == wait || r.IntN(4) == 0 {
		c.patience, c.cancels = between(r, time.Millisecond, 5*time.Second), r.IntN(2) == 0
	}
	p.calls = append(p.calls, c)
	p.add(at, "", func(f *fleet) { f.start(c, slot) })
}
