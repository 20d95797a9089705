package redisbucket

import (
	"hash/maphash"
	"time"
)

// recent remembers which keys were requested within an age. A lease of a key that is not
// requested again would cost a second round trip, to give it back. recent is a table of
// hashes. If two keys have the same place, the later key replaces the earlier one. The
// earlier key then counts as not requested, and gets its lease later.
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

// note notes a request for a key, and reports whether there was another within the age before.
func (r *recent) note(key string, now time.Duration) (again bool) {
	hash := maphash.String(r.seed, key)
	place := &r.places[hash%uint64(len(r.places))]
	again = place.hash == hash && now-place.at < r.age
	place.hash, place.at = hash, now
	return again
}
