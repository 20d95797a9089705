package tokenbucket

import (
	"slices"
	"time"
)

// waiter is a place in the queue, of a goroutine that sleeps in Wait or of a Reservation. It
// holds no tokens until it is granted its cost.
type waiter struct {
	prev, next *waiter
	number     uint64 // increases along the queue
	left       bool   // it is no longer queued
	awake      bool   // its goroutine runs and checks whether it may leave, so it needs no nudge
	err        error  // why it left, nil if it was granted its cost

	// The turn, if it is planned: the instant of the grant, and the states after it.
	due   time.Duration
	state [1]State // the states if there is one limit
	cost  float64  // the cost if it is the same for all limits
	many  *many    // nil: one limit

	// A reservation does not use these, and its nudges are nil. A waiter that sleeps in Wait
	// sets its timer for its turn and sleeps until it rings. If the turn has moved to a later
	// instant by then, it sets another timer. Only the timer of the first sleeper in the queue
	// must not ring too late: if its turn moves to an earlier instant, it is nudged to set
	// another timer.
	nudges chan struct{}
	timer  *time.Timer   // of the system clock; nil: none yet
	alarm  time.Duration // the instant at which the timer rings; see setTimer
	asleep bool          // the timer is set, and has not rung before the turn
}

// many holds the states and costs of a waiter if there are several limits.
type many struct {
	states []State
	costs  []float64 // one for each limit; nil: the same for all
}

// newWaiter returns a waiter for push. It is a reservation unless it sleeps in Wait.
func newWaiter(sleeps bool) *waiter {
	w := &waiter{}
	if sleeps {
		w.nudges = make(chan struct{}, 1)
	}
	return w
}

// begin prepares a waiter for a place in the queue. If it has had one before, its timer
// and its channel are used again.
func (w *waiter) begin(p price, limits int) {
	if len(w.nudges) > 0 {
		<-w.nudges // sent when it left its last place
	}
	*w = waiter{cost: p.all, nudges: w.nudges, timer: w.timer}
	if limits != 1 {
		w.many = &many{states: make([]State, limits)}
	}
	if p.each != nil {
		w.many.costs = slices.Clone(*p.each)
	}
}

func (w *waiter) price() price {
	if w.many == nil || w.many.costs == nil {
		return price{all: w.cost}
	}
	return price{each: &w.many.costs}
}

// after returns the states after the waiter's turn.
func (w *waiter) after() []State {
	if w.many == nil {
		return w.state[:]
	}
	return w.many.states
}

// nextSleeper returns the first waiter behind w that sleeps in Wait, or nil. It is called only
// when the first sleeper leaves, so each reservation is passed once.
func (w *waiter) nextSleeper() *waiter {
	for w = w.next; w != nil && w.nudges == nil; w = w.next {
	}
	return w
}

// nudge wakes a sleeping waiter. The channel is buffered, so a nudge is never lost: if it is
// full, the waiter is about to wake.
func (w *waiter) nudge() {
	if w.awake {
		return
	}
	select {
	case w.nudges <- struct{}{}:
	default:
	}
}
