package keyed

import "github.com/aa014e13/tokenbucket"

// Peek returns what Take would return now, and takes nothing. It does not remember a new
// key. But if there is no room for a new key, Peek looks for room as Take does: it forgets
// some keys whose buckets are full. If it finds none, it describes the overflow bucket of
// WithMaxKeys.
func (b *Buckets[K]) Peek(key K, cost float64) (d tokenbucket.Decision) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		defer b.leave(&v)
		return v.attended.bucket.Peek(cost)
	}
	defer b.leaveUnchanged(&v)
	d = v.limits().Take(v.copied(), v.at, cost)
	v.countFromNow(&d)
	return d
}

// PeekEach returns what TakeEach would return now, and takes nothing.
func (b *Buckets[K]) PeekEach(key K, costs ...float64) (d tokenbucket.Decision) {
	var v visit[K]
	b.enter(&v, key)
	if v.attended != nil {
		defer b.leave(&v)
		return v.attended.bucket.PeekEach(costs...)
	}
	defer b.leaveUnchanged(&v)
	d = v.limits().TakeEach(v.copied(), v.at, costs...)
	v.countFromNow(&d)
	return d
}

// copied returns a copy of the states, which the caller may change.
func (v *visit[K]) copied() []tokenbucket.State {
	copy(v.shard.states, v.states) // a single state is in the table itself
	return v.shard.states
}
