// Package sleeper lets the packages of this module wait for buckets often, and allocate
// nothing for a wait.
package sleeper

import "context"

// Sleeper waits for one bucket after another. It keeps the timer and the channel of a wait
// for the next one. The zero Sleeper is ready. It is for one goroutine at a time, and for one
// testing/synctest bubble.
type Sleeper struct{ kept any }

// Wait is the Wait of a bucket, which is a *tokenbucket.Bucket.
func (s *Sleeper) Wait(ctx context.Context, bucket any, cost float64) (err error) {
	s.kept, err = wait(ctx, bucket, cost, s.kept)
	return err
}

var wait WaitFunc

// WaitFunc waits for a bucket. It gets what the last call of the same Sleeper returned, at
// first nil.
type WaitFunc func(ctx context.Context, bucket any, cost float64, kept any) (any, error)

// Use sets how all Sleepers wait. Package tokenbucket calls it when it is initialized, since
// this package cannot import that one.
func Use(w WaitFunc) { wait = w }
