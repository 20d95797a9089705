// Package windowtest measures by how much the amount that passes in a window of time exceeds
// rate * length of the window.
package windowtest

import "time"

// Pass is an amount that passed at an instant, counted from any origin.
type Pass struct {
	At     time.Duration
	Amount float64
}

// Surplus returns the most by which the amounts that pass in any window exceed refill *
// length of the window. passes must be in order of time. Those at both ends of a window
// count. A limit of capacity + refill * time holds if the surplus is at most the
// capacity.
func Surplus(passes []Pass, refillPerSec float64) (most float64) {
	var ahead float64 // the largest surplus of all windows that end at the instant last
	var last time.Duration
	for _, p := range passes {
		ahead = max(0, ahead-refillPerSec*(p.At-last).Seconds()) + p.Amount
		last = p.At
		most = max(most, ahead)
	}
	return most
}
