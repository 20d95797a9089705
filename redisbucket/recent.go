package redisbucket

import (
	"hash/maphash"
	"time"
)

// recent knows which keys were asked for within an age: a key that is not asked for again
// would pay for its lease with a second round trip, to give it back. It is a table of
// hashes. A key takes the place of another with the same remainder, which then counts as
// not asked for: that costs no more than a lease.
type recent struct {
	seed   maphash.Seed
	age    time.Duration
	places [8192]struct {
		hash uint64
		at   time.Duration
	}
}

func newRecent(age time.Duration) *recent {
	return &recent{seed: maphash.MakeSeed(), age: age}
}

// note notes that a key is asked for, and reports whether it was within the age before.
func (r *recent) note(key string, now time.Duration) (again bool) {
	hash := maphash.String(r.seed, key)
	place := &r.places[hash%uint64(len(r.places))]
	again = place.hash == hash && now-place.at < r.age
	place.hash, place.at = hash, now
	return again
}
