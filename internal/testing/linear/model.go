package linear

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// input is the method called, and its arguments.
type input struct {
	method string
	costs  []float64 // one cost for all limits, or one for each limit
	pause  time.Duration
	limits tokenbucket.Limits
	place  int // number of the reservation
}

// output is what a call returned, and its readings of the clock.
type output struct {
	readings []time.Duration
	reading  time.Duration // the reading that decided
	wait     time.Duration
	ok       bool
	decision tokenbucket.Decision
	states   []tokenbucket.State
	err      error
}

func (out output) at(reading time.Duration) output {
	out.reading = reading
	return out
}

// model is a bucket without concurrency. A step does not change the model: it returns
// another one.
type model struct {
	limits tokenbucket.Limits
	states []tokenbucket.State
	latest time.Duration // the latest reading of the clock; earlier ones count as this one
	opens  time.Duration // the end of the latest pause
	begins time.Duration // the instant from which the first of the queue is served
	queue  []place
}

// place is a reservation that is not yet due.
type place struct {
	number int
	cost   float64
}

// newModel returns the model of a bucket that is full at the origin. The last reading of
// a call decides or, if anyReading is true, any of its readings.
func newModel(limits tokenbucket.Limits, anyReading bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any {
			full := make([]tokenbucket.State, len(limits))
			limits.Fill(full, 0)
			return []any{model{limits: limits, states: full}}
		},
		Step: func(m, in, out any) (next []any) {
			readings := out.(output).readings
			switch n := len(readings); {
			case n == 0:
				readings = []time.Duration{0} // the call needs no clock
			case !anyReading:
				readings = readings[n-1:]
			}
			for _, reading := range readings {
				next = append(next, m.(model).step(in.(input), out.(output).at(reading))...)
				for _, seen := range readings {
					if seen > reading { // the bucket may have seen the later reading first
						next = append(next, m.(model).advance(seen).step(in.(input), out.(output).at(reading))...)
					}
				}
			}
			for _, m := range next { // the bucket may also have noted the last reading
				next = append(next, m.(model).advance(readings[len(readings)-1]))
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(model).equals(b.(model)) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v -> %+v", in, out)
		},
	}
	return m.ToModel()
}

func (m model) equals(other model) bool {
	return m.latest == other.latest && m.opens == other.opens && m.begins == other.begins &&
		slices.Equal(m.limits, other.limits) && slices.Equal(m.states, other.states) && slices.Equal(m.queue, other.queue)
}

// step returns the possible models after a call with this output: none if the output is
// wrong. If the call changes nothing else, there are two: the bucket may have noted the
// reading of the clock or not.
func (m model) step(in input, out output) []any {
	before, after := m.advance(out.reading), m.advance(out.reading)
	switch {
	case !after.call(in, out):
		return nil
	case before.equals(after):
		return []any{m, after}
	default:
		return []any{after}
	}
}

// advance returns a copy that has seen a reading of the clock.
func (m model) advance(reading time.Duration) model {
	m.states, m.queue = slices.Clone(m.states), slices.Clone(m.queue)
	m.latest = max(m.latest, reading)
	m.serve()
	return m
}

// now returns the instant at which a change of the states counts: the latest reading or, in a
// pause, its end.
func (m *model) now() time.Duration { return max(m.latest, m.opens) }

func (m *model) isOpen() bool { return len(m.queue) == 0 && m.latest >= m.opens }

// serve grants all reservations that are due.
func (m *model) serve() {
	for len(m.queue) > 0 {
		due := m.turn(m.begins, m.states, m.queue[0].cost)
		if due > m.latest {
			return
		}
		m.limits.TryAcquire(m.states, due, m.queue[0].cost)
		m.begins, m.queue = due, m.queue[1:]
	}
}

// turn returns the first instant, from at on, at which a bucket with these states holds a
// cost.
func (m *model) turn(at time.Duration, states []tokenbucket.State, cost float64) time.Duration {
	wait, _ := m.limits.TryAcquire(slices.Clone(states), at, cost)
	return timeline.Later(at, wait)
}

// restart serves the queue from now after a change of the states or the limits. It always
// returns true.
func (m *model) restart() bool {
	m.begins = m.now()
	m.serve()
	return true
}

// call makes a call, and reports whether the model returns the same output.
func (m *model) call(in input, out output) bool {
	switch in.method {
	case "TryAcquire", "TryAcquireEach":
		wait, ok := m.tryAcquire(in, out.reading)
		return wait == out.wait && ok == out.ok
	case "Take", "TakeEach":
		return m.take(in, out)
	case "Reserve":
		return m.reserve(in, out)
	case "Cancel":
		i := slices.IndexFunc(m.queue, func(p place) bool { return p.number == in.place })
		if i >= 0 {
			m.queue = slices.Delete(m.queue, i, i+1)
			if i == 0 {
				m.restart()
			}
		}
		return out.ok == (i >= 0)
	case "State":
		return slices.Equal(m.states, out.states)
	default:
		return out.err == nil && m.change(in)
	}
}

// change makes a call that always succeeds. It reports whether the method is known.
func (m *model) change(in input) bool {
	at := m.now()
	switch in.method {
	case "Refund":
		return m.limits.Refund(m.states, at, in.costs[0]) == nil && m.restart()
	case "Charge":
		return m.limits.Charge(m.states, at, in.costs[0]) == nil && m.restart()
	case "Pause":
		m.opens = max(m.opens, timeline.Later(m.latest, in.pause))
		for i := range m.states {
			m.states[i] = tokenbucket.State{Balance: min(0, m.level(i, at)), Anchor: m.opens}
		}
	case "Fill", "Forget":
		m.opens = 0
		m.limits.Fill(m.states, m.latest)
	case "SetLimits":
		for i, l := range in.limits {
			if l != m.limits[i] {
				m.states[i] = tokenbucket.State{Balance: min(l.Capacity, m.level(i, at)), Anchor: at}
			}
		}
		m.limits = in.limits
		m.queue = slices.DeleteFunc(m.queue, func(p place) bool { return p.cost > m.capacity() })
	default:
		return false
	}
	return m.restart()
}

// level is min(capacity, balance + elapsed * refill).
func (m *model) level(i int, at time.Duration) float64 {
	l, s := m.limits[i], m.states[i]
	gain := float64(max(0, at-s.Anchor)) * l.RefillPerSec
	return min(l.Capacity, s.Balance+gain/1e9)
}

func (m *model) capacity() float64 {
	return slices.MinFunc(m.limits, func(a, b tokenbucket.Limit) int { return cmp.Compare(a.Capacity, b.Capacity) }).Capacity
}

func (m *model) tryAcquire(in input, reading time.Duration) (wait time.Duration, ok bool) {
	if m.isOpen() {
		d := m.decide(m.states, m.latest, in)
		return m.fromReading(d, reading).Wait, d.OK
	}
	if slices.Max(in.costs) == 0 {
		return 0, true
	}
	at, states := m.end()
	d := m.decide(states, at, in)
	wait = timeline.Until(reading, timeline.Later(at, d.Wait))
	return wait, wait == 0
}

func (m *model) decide(states []tokenbucket.State, at time.Duration, in input) tokenbucket.Decision {
	if len(in.costs) == 1 {
		return m.limits.Take(states, at, in.costs[0])
	}
	return m.limits.TakeEach(states, at, in.costs...)
}

// fromReading turns the wait of a refusal into one that counts from the call's own
// reading of the clock.
func (m *model) fromReading(d tokenbucket.Decision, reading time.Duration) tokenbucket.Decision {
	if !d.OK {
		d.Wait = timeline.Later(d.Wait, m.latest-reading)
	}
	return d
}

// end returns the instant at which the last waiter has been served, and the states then.
func (m *model) end() (at time.Duration, states []tokenbucket.State) {
	if len(m.queue) == 0 {
		return m.now(), slices.Clone(m.states)
	}
	at, states = m.begins, slices.Clone(m.states)
	for _, p := range m.queue {
		at = m.turn(at, states, p.cost)
		m.limits.TryAcquire(states, at, p.cost)
	}
	return at, states
}

// take compares the whole decision if no caller waits and there is no pause, and
// otherwise only the wait. The remaining tokens of an admission may count at the call's
// own reading or at the latest one.
func (m *model) take(in input, out output) bool {
	if !m.isOpen() {
		wait, ok := m.tryAcquire(in, out.reading)
		return wait == out.decision.Wait && ok == out.decision.OK
	}
	own := m.decide(slices.Clone(m.states), out.reading, in)
	d := m.fromReading(m.decide(m.states, m.latest, in), out.reading)
	return out.decision == d || d.OK && out.decision == own
}

func (m *model) reserve(in input, out output) bool {
	cost := in.costs[0]
	if cost > m.capacity() {
		return errors.Is(out.err, tokenbucket.ErrCostExceedsCapacity)
	}
	if wait, _ := m.tryAcquire(in, m.latest); wait > 0 {
		if len(m.queue) == 0 {
			m.begins = m.now()
		}
		m.queue = append(m.queue, place{in.place, cost})
	}
	return out.err == nil
}
