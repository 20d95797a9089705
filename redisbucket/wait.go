package redisbucket

import (
	"context"
	"math"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Wait waits until the bucket has the cost, in tokens, and takes it. Wait asks the server
// once. The server takes the cost ahead of time, so later requests on any machine wait
// longer. Then Wait sleeps until the cost has been refilled. It returns nil if the cost
// was taken, otherwise:
//
//   - the context's error if the context is done, before or while Wait sleeps
//   - ErrInvalidCost for a cost that is negative or NaN
//   - ErrCostExceedsCapacity for a cost above the capacity
//   - a *DeadlineError, at once, if the wait would outlast the context's deadline
//   - ErrUnavailable and ErrForeignKey, as all methods do
//
// If the context ends while Wait sleeps, the cost is given back, which may take as long as
// the timeout of WithTimeout. Later requests get the tokens; callers that sleep already are
// not woken. If the server does not answer then, or the process dies, these tokens are
// lost.
func (b *Buckets) Wait(ctx context.Context, key string, cost float64) error {
	return b.wait(ctx, key, price{cost: cost})
}

func (b *Buckets) wait(ctx context.Context, key string, p price) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.check(b.limits); err != nil || p.isFree() {
		return err
	}
	r := request{key: b.stored(key), price: p, patience: patience(ctx)}
	a, err := b.server.ask(ctx, r)
	if b.fallsBack(err) {
		return p.waitFor(ctx, b.fallback, key, err)
	}
	if err != nil {
		return err
	}
	now, states, err := a.states(b.server.limits, r)
	if err != nil {
		return err
	}
	wait, _ := p.tryAcquire(b.limits, states, now)
	return b.sleep(ctx, r, a.admitted(), roundUp(wait))
}

// patience returns how long a caller can wait by its context.
func patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return max(0, time.Until(deadline))
}

// sleep waits until a cost that was taken ahead of time has been refilled. If the cost was
// not taken, sleep returns the reason. The wait counts from now, after the decision, so no
// caller returns too early.
func (b *Buckets) sleep(ctx context.Context, r request, taken bool, wait time.Duration) error {
	due := time.Now().Add(wait)
	deadline, ok := ctx.Deadline()
	switch {
	case taken && wait == 0:
		return nil
	case taken && ok && deadline.Before(due): // the answer came late
		b.server.giveBack(ctx, r, 0)
		return &tokenbucket.DeadlineError{Wait: wait}
	case !taken && ok:
		return &tokenbucket.DeadlineError{Wait: wait}
	case !taken: // the wait is longer than a time.Duration
		<-ctx.Done()
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	}
	if !time.Now().Before(due) {
		return nil
	}
	b.server.giveBack(ctx, r, 0)
	return ctx.Err()
}
