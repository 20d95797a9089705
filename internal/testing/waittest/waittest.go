// Package waittest tests all kinds of buckets that callers can wait for: the queue, the
// clock, and calls that change the level while callers wait.
package waittest

import (
	"context"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Bucket is the bucket under test: a tokenbucket.Bucket, or one key of keyed buckets.
type Bucket interface {
	TryAcquire(cost float64) (time.Duration, bool)
	Take(cost float64) tokenbucket.Decision
	Wait(ctx context.Context, cost float64) error
	Refund(cost float64) error
	Charge(cost float64) error
	Pause(d time.Duration)
	Tokens() float64
	Waiting() int
}

const (
	never = tokenbucket.Never
	ms    = time.Millisecond
	sec   = time.Second
)

var background = context.Background()

// Run runs the suite.
func Run(t *testing.T, new New) {
	for name, run := range map[string]func(*testing.T, New){
		"Queue": queue, "Cancel": cancel, "Deadline": deadline, "Change": change, "Pause": pause, "Clock": steppedClock,
		"Late": late, "Reports": reports, "Several": several, "Wakeups": wakeups, "Storm": storm, "Scripts": scripts,
		"Contexts": contexts, "Edges": edges, "Lateness": lateness, "Leaks": leaks, "Bounds": bounds,
		"Mocks": mocks,
	} {
		t.Run(name, func(t *testing.T) { run(t, new) })
	}
}

func limits(capacity, refill float64) []tokenbucket.Limit {
	return []tokenbucket.Limit{{Capacity: capacity, RefillPerSec: refill}}
}
