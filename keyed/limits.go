package keyed

import (
	"fmt"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// SetLimits replaces the limits of all keys. Pass as many limits as Limits returns, in
// that order. The refill up to the change counts under the old limits. A key keeps its
// tokens, up to the new capacity, and its debt. A bucket that was full is full under
// the new limits as well, like the bucket of a key that has been forgotten.
// Bucket.SetLimits, in contrast, keeps the number of tokens of a full bucket. Waiters
// whose cost is above the new capacity get ErrCostExceedsCapacity.
//
// Other calls may run at the same time. SetLimits changes the shards one after the
// other. So until it returns, some keys have the old limits and others have the new
// ones. Each call is decided under either the old limits or the new ones. Calls that
// begin after SetLimits has returned use the new limits.
//
// SetLimits returns ErrInvalidLimit, and changes nothing, if a limit is invalid or the
// number of limits differs.
func (b *Buckets[K]) SetLimits(limits ...tokenbucket.Limit) error {
	to := tokenbucket.Limits(slices.Clone(limits))
	if err := to.Validate(); err != nil {
		return err
	}
	b.setting.Lock()
	defer b.setting.Unlock()
	from := *b.limits.Load()
	if len(to) != len(from) {
		return fmt.Errorf("%w: %d limits for buckets with %d: pass as many as Limits returns, in that order", tokenbucket.ErrInvalidLimit, len(to), len(from))
	}
	b.limits.Store(&to)
	b.overflow.setLimits(from, to)
	for i := range b.shards {
		b.changeShard(&b.shards[i], to)
	}
	return nil
}

// changeShard changes the limits of a shard's keys. Attended keys without users may be
// full. So they move to the table first, unless they are paused, and change with it.
// changeShard is a user of all other attended keys until it has changed them, so that
// none moves to the table with states of the old limits. Their queues may be long, so it
// changes them with the shard unlocked.
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

// setLimits changes the limits of an attended key's bucket. A bucket that was full is
// full afterwards. But calls may take tokens at the same time, and Fill would give those
// back. So setLimits adds only the difference between the new capacity and the old one.
func (a *attendance) setLimits(from, to tokenbucket.Limits) {
	more := make([]float64, len(to))
	if a.isFull(from) {
		for i := range to {
			more[i] = max(0, to[i].Capacity-from[i].Capacity)
		}
	}
	_ = a.bucket.SetLimits(to...) // no error: the limits are valid, and as many as before
	_ = a.bucket.RefundEach(more...)
}

// Limits returns a copy of the limits: that of New first, then those of WithLimit in
// order.
func (b *Buckets[K]) Limits() []tokenbucket.Limit { return slices.Clone(*b.limits.Load()) }
