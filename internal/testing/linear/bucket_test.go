package linear

import (
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

var lasts = flag.Duration("lasts", 3*time.Second, "how long each test checks histories: go test . -lasts 5m")

const (
	leastHistories = 20
	checkTimeout   = 10 * time.Second // of one history
)

// checkAll checks one history after another.
func checkAll(t *testing.T, newHistory func(seed uint64) (porcupine.Model, *history)) {
	unknown, checked := 0, 0
	for start := time.Now(); checked < leastHistories || time.Since(start) < *lasts; checked++ {
		model, h := newHistory(uint64(checked))
		switch porcupine.CheckOperationsTimeout(model, h.calls, checkTimeout) {
		case porcupine.Illegal:
			require.FailNow(t, "not linearizable", "history %d:\n%s", checked, h.describe(model))
		case porcupine.Unknown:
			unknown++
		}
	}
	t.Logf("%d histories, %d of which were too hard to check", checked, unknown)
	require.LessOrEqual(t, unknown, checked/4)
}

// subject is a bucket under test, and the limits that SetLimits may give it.
type subject struct {
	bucket *tokenbucket.Bucket
	limits []tokenbucket.Limits
	odd    int // percentage of calls that do more than decide about a whole cost
}

// Tokens refill about as fast as calls take them, so that each kind of answer occurs.
var shapes = [][]tokenbucket.Limits{
	{{{Capacity: 10, RefillPerSec: 1e5}}, {{Capacity: 5, RefillPerSec: 2e5}}},
	{{{Capacity: 3, RefillPerSec: 1e6}}, {{Capacity: 100, RefillPerSec: 1e4}}},
	{{{Capacity: 30, RefillPerSec: 1e3}}, {{Capacity: 30.5, RefillPerSec: 1e6 / 3.}}},
	{
		{{Capacity: 5, RefillPerSec: 3e5}, {Capacity: 40, RefillPerSec: 1e5}},
		{{Capacity: 8, RefillPerSec: 1e5}, {Capacity: 30, RefillPerSec: 2e5}},
	},
	{
		{{Capacity: 4, RefillPerSec: 1e6}, {Capacity: 8, RefillPerSec: 1e6}},
		{{Capacity: 4, RefillPerSec: 1e6}, {Capacity: 9, RefillPerSec: 1e6}},
	},
}

func bucketHistory(seed uint64) (porcupine.Model, *history) {
	limits := shapes[seed%uint64(len(shapes))]
	h := new(history)
	opts := []tokenbucket.Option{tokenbucket.WithClock(h.clock())}
	for _, l := range limits[0][1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	s := &subject{
		bucket: tokenbucket.MustNew(limits[0][0], opts...),
		limits: limits,
		odd:    []int{0, 2, 20}[seed/uint64(len(shapes))%3],
	}
	h.run(seed, 1, 20, s.decide) // afterwards, decisions take no lock
	h.run(seed, 4, 20, s.call)
	h.run(seed, 1, 1, s.state)
	return newModel(limits[0], false), h
}

func (s *subject) call(c *client) {
	if c.random.IntN(100) < s.odd {
		s.disturb(c)
	} else {
		s.decide(c)
	}
}

func (s *subject) decide(c *client) {
	costs := []float64{float64([]int{1, 1, 1, 2, 3, 0, 50}[c.random.IntN(7)])}
	if c.random.IntN(100) < s.odd {
		costs[0] /= 4
	}
	each := make([]float64, len(s.limits[0]))
	for i := range each {
		each[i] = costs[0]
	}
	if c.random.IntN(100) < s.odd {
		each[0]++
	}
	switch c.random.IntN(6) {
	case 0:
		c.record(input{method: "TakeEach", costs: each}, func(out *output) { out.decision = s.bucket.TakeEach(each...) })
	case 1:
		c.record(input{method: "TryAcquireEach", costs: each}, func(out *output) { out.wait, out.ok = s.bucket.TryAcquireEach(each...) })
	case 2:
		c.record(input{method: "Take", costs: costs}, func(out *output) { out.decision = s.bucket.Take(costs[0]) })
	default:
		c.record(input{method: "TryAcquire", costs: costs}, func(out *output) { out.wait, out.ok = s.bucket.TryAcquire(costs[0]) })
	}
}

func (s *subject) disturb(c *client) {
	costs := []float64{float64(c.random.IntN(12)) / 2}
	switch c.random.IntN(7) {
	case 0:
		c.record(input{method: "Refund", costs: costs}, func(out *output) { out.err = s.bucket.Refund(costs[0]) })
	case 1:
		c.record(input{method: "Charge", costs: costs}, func(out *output) { out.err = s.bucket.Charge(costs[0]) })
	case 2:
		limits := s.limits[c.random.IntN(len(s.limits))]
		c.record(input{method: "SetLimits", limits: limits}, func(out *output) { out.err = s.bucket.SetLimits(limits...) })
	case 3:
		d := time.Duration(1 + c.random.IntN(20_000))
		c.record(input{method: "Pause", pause: d}, func(*output) { s.bucket.Pause(d) })
	case 4:
		c.record(input{method: "Fill"}, func(*output) { s.bucket.Fill() })
	case 5:
		s.reserve(c, costs)
	case 6:
		s.state(c)
	}
}

func (s *subject) state(c *client) {
	c.record(input{method: "State"}, func(out *output) { _, out.states = s.bucket.State() })
}

// reserve makes a reservation, makes another call, and sometimes cancels the reservation.
func (s *subject) reserve(c *client, costs []float64) {
	var place *tokenbucket.Reservation
	number := int(c.ticks.Add(1))
	c.record(input{method: "Reserve", costs: costs, place: number}, func(out *output) {
		place, out.err = s.bucket.Reserve(costs[0])
		if errors.Is(out.err, tokenbucket.ErrCostExceedsCapacity) {
			out.err = tokenbucket.ErrCostExceedsCapacity // without the numbers
		}
	})
	s.decide(c)
	if place != nil && c.random.IntN(2) == 0 {
		c.record(input{method: "Cancel", place: number}, func(out *output) { out.ok = place.Cancel() })
	}
}

func TestBucketsAreLinearizable(t *testing.T) { checkAll(t, bucketHistory) }
