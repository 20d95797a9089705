package keyed

import (
	"fmt"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// SetLimits changes the limits of all keys, one for each that there is, in the order of
// Limits. Each key's tokens up to then count by the limits so far. They stay, up to the
// new capacity, and so does debt. A key that was full is full under the new limits, so
// that it makes no difference whether it was still remembered; Bucket.SetLimits keeps
// the tokens of a full bucket instead. Waiters whose cost is above the new capacity get
// ErrCostExceedsCapacity.
//
// Other calls go on meanwhile, on some keys by the old limits and on others by the new
// ones, but for each key the change is one instant. Only the keys of one shard of 256 are
// changed at a time. Calls that begin after SetLimits has returned go by the new limits.
//
// It returns ErrInvalidLimit, and changes nothing, if a limit is invalid or their number
// is not the same.
func (b *Buckets[K]) SetLimits(limits ...tokenbucket.Limit) error {
	to := tokenbucket.Limits(slices.Clone(limits))
	if err := to.Validate(); err != nil {
		return err
	}
	b.setting.Lock()
	defer b.setting.Unlock()
	from := *b.limits.Load()
	if len(to) != len(from) {
		return fmt.Errorf("%w: %d limits for buckets of %d: pass one for each, in the order of Limits", tokenbucket.ErrInvalidLimit, len(to), len(from))
	}
	b.limits.Store(&to)
	b.overflow.setLimits(from, to)
	for i := range b.shards {
		b.changeShard(&b.shards[i], to)
	}
	return nil
}

// changeShard changes the limits of a shard's keys. Attended keys without users go to the
// table first, unless they are paused, and are changed with it: they may be full. Those
// that stay keep a user until they are changed, so that none goes to the table with
// states of the old limits. Their queues may be long, so the shard is open then.
func (b *Buckets[K]) changeShard(s *shard[K], to tokenbucket.Limits) {
	now := b.time.Now()
	s.mu.Lock()
	s.latest = max(s.latest, now)
	for key, a := range s.attended {
		if a.users.Load() == 0 {
			b.retire(s, key, a)
		}
	}
	from := s.table.limits
	b.len.Add(int64(-s.table.change(to, s.latest, s.states)))
	held := s.hold()
	s.mu.Unlock()
	for _, a := range held {
		a.setLimits(from, to)
		a.users.Add(-1)
	}
}

// setLimits changes the limits of an attended key's bucket, and makes it full if it was.
// Calls may take tokens while it does that, so it does not fill the bucket, but gives it
// what the new limits allow more.
func (a *attendance) setLimits(from, to tokenbucket.Limits) {
	more := make([]float64, len(to))
	if a.isFull(from) {
		for i := range to {
			more[i] = max(0, to[i].Capacity-from[i].Capacity)
		}
	}
	_ = a.bucket.SetLimits(to...) // they are valid, and as many
	_ = a.bucket.RefundEach(more...)
}

// Limits returns the limits, New's first, then those of WithLimit in order.
func (b *Buckets[K]) Limits() []tokenbucket.Limit { return slices.Clone(*b.limits.Load()) }
