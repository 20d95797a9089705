// Package sleeper lets the packages of this module wait for buckets often without
// allocating memory for each wait.
package sleeper

import "context"

// Sleeper waits for one bucket after another. It keeps the timer and the channel of a wait
// for the next one. The zero Sleeper is ready to use. Only one goroutine at a time, and only
// one testing/synctest bubble, may use a Sleeper.
type Sleeper struct{ kept any }

// Wait calls Wait of a bucket, which must be a *tokenbucket.Bucket.
func (s *Sleeper) Wait(ctx context.Context, bucket any, cost float64) (err error) {
	kept := s.kept
	s.kept = nil // if the clock panics, the waiter is still in its queue and must not be used again
	s.kept, err = wait(ctx, bucket, cost, kept)
	return err
}

var wait WaitFunc

// WaitFunc waits for a bucket. kept is the first result of the Sleeper's previous call, or
// nil at the first call.
type WaitFunc func(ctx context.Context, bucket any, cost float64, kept any) (any, error)

// Use sets how all Sleepers wait. Package tokenbucket calls it when it is initialized, since
// this package cannot import that one.
func Use(w WaitFunc) { wait = w }
