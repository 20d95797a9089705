package keyed

import (
	"context"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// TryAcquireEach is like TryAcquire, with one cost for each limit, in the order of
// Limits. It takes all of the costs or none, as Bucket.TryAcquireEach does.
func (b *Buckets[K]) TryAcquireEach(key K, costs ...float64) (wait time.Duration, ok bool) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		wait, ok = v.attended.bucket.TryAcquireEach(costs...)
	} else if wait, ok = v.limits().TryAcquireEach(v.states, v.at, costs...); !ok {
		wait = v.fromNow(wait)
	}
	b.leave(&v)
	return wait, ok
}

// TakeEach is like TryAcquireEach, but returns a Decision, as Bucket.TakeEach does.
func (b *Buckets[K]) TakeEach(key K, costs ...float64) (d tokenbucket.Decision) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		d = v.attended.bucket.TakeEach(costs...)
	} else {
		d = v.limits().TakeEach(v.states, v.at, costs...)
		v.countFromNow(&d)
	}
	b.leave(&v)
	return d
}

// WaitEach is like Wait, with one cost for each limit, in the order of Limits. It returns
// the errors of Bucket.WaitEach.
func (b *Buckets[K]) WaitEach(ctx context.Context, key K, costs ...float64) error {
	isDone := ctx.Err() != nil // asked while the shard is not locked: a nil context panics
	var v visit[K]
	b.enter(&v, key)
	if v.attended == nil && !isDone {
		if _, ok := v.limits().TryAcquireEach(v.states, v.at, costs...); ok {
			b.leave(&v)
			return nil
		}
	}
	bucket := b.attend(&v)
	defer b.unattend(&v)
	return bucket.WaitEach(ctx, costs...)
}

// RefundEach gives tokens back to the key's bucket, one number for each limit, as
// Bucket.RefundEach does.
func (b *Buckets[K]) RefundEach(key K, costs ...float64) error {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.RefundEach(costs...)
	}
	v.hasten()
	return v.limits().RefundEach(v.states, v.at, costs...)
}

// ChargeEach takes one cost from each limit of the key's bucket, even if the bucket holds
// fewer tokens, as Bucket.ChargeEach does.
func (b *Buckets[K]) ChargeEach(key K, costs ...float64) error {
	var v visit[K]
	b.enter(&v, key)
	defer b.leave(&v)
	if v.attended != nil {
		return v.attended.bucket.ChargeEach(costs...)
	}
	return v.limits().ChargeEach(v.states, v.at, costs...)
}
