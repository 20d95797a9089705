package redisbucket

import (
	"container/list"
	"iter"
	"strings"
	"time"
)

// MaxLeases is how many keys a process has leases of at once. Requests for others go
// straight to the server until there is room.
const MaxLeases = 1024

// maxUntried is how many keys have leases at most when one gets a lease at its first request.
// Further keys have to be asked for again within the age of a lease.
const maxUntried = 4

// leaseTable is which keys have leases. It has no lock.
type leaseTable struct {
	byKey  map[string]*lease
	idle   list.List // of *lease with no round trip under way; the one used last is first
	recent *recent
}

func newLeaseTable(maxAge time.Duration) leaseTable {
	return leaseTable{byKey: map[string]*lease{}, recent: newRecent(maxAge)}
}

// get returns the key's lease, nil if there is none.
func (t *leaseTable) get(key string, now time.Duration) *lease {
	l := t.byKey[key]
	if l != nil {
		l.used = now
	}
	return l
}

// isDue reports whether a key that has no lease is to get one.
func (t *leaseTable) isDue(key string, now time.Duration) bool {
	again := t.recent.note(key, now)
	return again || len(t.byKey) < maxUntried
}

func (t *leaseTable) isFull() bool { return len(t.byKey) >= MaxLeases }

// add gives a key a lease, which is empty.
func (t *leaseTable) add(key string, now time.Duration) *lease {
	l := &lease{key: strings.Clone(key), used: now}
	t.byKey[l.key] = l
	t.rest(l)
	return l
}

// remove forgets a lease that is idle, or has become so.
func (t *leaseTable) remove(l *lease) {
	t.recent.note(l.key, l.used)
	t.stir(l)
	delete(t.byKey, l.key)
}

// rest notes that a lease has no round trip under way.
func (t *leaseTable) rest(l *lease) { l.place = t.idle.PushFront(l) }

// stir notes that a lease is not idle any more.
func (t *leaseTable) stir(l *lease) {
	if l.place != nil {
		t.idle.Remove(l.place)
		l.place = nil
	}
}

// touch notes that an idle lease was used.
func (t *leaseTable) touch(l *lease) { t.idle.MoveToFront(l.place) }

// oldest returns the idle leases, the one used least recently first. The one that is
// returned last may be removed.
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
