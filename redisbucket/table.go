package redisbucket

import (
	"container/list"
	"iter"
	"strings"
	"time"
)

// MaxLeases is the largest number of keys for which a Buckets has leases at a time (see
// WithLease). Requests for other keys go straight to the server until there is room.
const MaxLeases = 1024

// maxUntried is how many keys get a lease at their first request. While that many have
// leases, a key has to be requested again within the age of a lease.
const maxUntried = 4

// leaseTable is the leases by key. It has no lock.
type leaseTable struct {
	byKey  map[string]*lease
	idle   list.List // of *lease with no round trip under way, the latest used first
	recent *recent
}

func newLeaseTable(maxAge time.Duration) leaseTable {
	return leaseTable{byKey: map[string]*lease{}, recent: newRecent(maxAge)}
}

// get returns the key's lease, nil if there is none, and notes its use.
func (t *leaseTable) get(key string, now time.Duration) *lease {
	l := t.byKey[key]
	if l != nil {
		l.used = now
	}
	return l
}

// isDue notes a request for a key that has no lease, and reports whether it should get one.
func (t *leaseTable) isDue(key string, now time.Duration) bool {
	again := t.recent.note(key, now)
	return again || len(t.byKey) < maxUntried
}

func (t *leaseTable) isFull() bool { return len(t.byKey) >= MaxLeases }

// add gives a key a lease, which is empty.
func (t *leaseTable) add(key string, now time.Duration) *lease {
	l := &lease{key: strings.Clone(key), used: now, seen: new(reading)}
	t.byKey[l.key] = l
	t.rest(l)
	return l
}

// remove removes a lease that is idle, and remembers its key as recent.
func (t *leaseTable) remove(l *lease) {
	t.recent.note(l.key, l.used)
	t.stir(l)
	delete(t.byKey, l.key)
}

// rest makes a lease idle: it has no round trip under way any more.
func (t *leaseTable) rest(l *lease) { l.place = t.idle.PushFront(l) }

// stir makes a lease not idle: it gets a round trip, or is removed.
func (t *leaseTable) stir(l *lease) {
	if l.place != nil {
		t.idle.Remove(l.place)
		l.place = nil
	}
}

// touch notes that an idle lease was used.
func (t *leaseTable) touch(l *lease) { t.idle.MoveToFront(l.place) }

// oldest returns the idle leases, the least recently used first. The loop may remove the
// lease that it has.
func (t *leaseTable) oldest() iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for e := t.idle.Back(); e != nil; {
			l := e.Value.(*lease)
			e = e.Prev()
			if !yield(l) {
				return
			}
		}
	}
}
