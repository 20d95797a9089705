package redisbucket

import (
	"container/list"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// maxRefused is how long a refusal is remembered at most: what others give back is
// seen by then.
const maxRefused = time.Minute

// lease is what a process has of one key. The mutex of the leases guards it.
type lease struct {
	key     string        // without the prefix
	tokens  float64       // taken, and not spent
	expires time.Duration // when they go back
	seen    reading       // the server's, as of the latest answer
	stands  bool          // the server has no more than that: nothing was given back since
	used    time.Duration // when it was last asked for
	until   time.Duration // the latest instant that a refusal named, at most maxRefused after it

	place     *list.Element // among the idle; nil while a round trip is under way
	waiting   []*caller     // for its end, in order of arrival
	watch     *time.Timer   // lets late callers go; nil if none ever waited for another
	watched   bool          // it is set, and comes before any caller is late that waits for another
	refunding bool          // tokens were given back meanwhile: its answer does not stand
}

// reading is what the server has for a key, as of an answer. The server decided
// between the instants at which it was asked and answered.
type reading struct {
	states         []tokenbucket.State // never changed
	now            time.Duration       // by the server's clock
	asked, arrived time.Duration
}

// outcome is what was decided about a cost, and by what.
type outcome struct {
	granted bool
	left    float64       // tokens of the lease, before
	seen    reading       // the server's
	at      time.Duration // by the local clock
}

// decide decides without the server, if it can. The clock may have been read before the
// latest answer was here.
func (l *lease) decide(limits tokenbucket.Limits, now time.Duration, cost float64) (o outcome, ok bool) {
	now = max(now, l.seen.arrived)
	switch {
	case l.hasExpired(now): // the timer is late
		return o, false
	case l.tokens >= cost:
		return l.grant(now, cost), true
	default:
		return l.refuse(limits, now, cost)
	}
}

// hasExpired reports whether there are tokens that are to go back.
func (l *lease) hasExpired(now time.Duration) bool { return l.tokens > 0 && now >= l.expires }

func (l *lease) grant(now time.Duration, cost float64) outcome {
	o := outcome{true, l.tokens, l.seen, now}
	l.tokens = max(0, l.tokens-cost)
	return o
}

// refuse rejects a cost that the last known state cannot cover: since the server's last
// answer others have only taken. The time is counted from the
// instant at which the server was asked, so that nothing is refused for longer than
// the server would have said.
func (l *lease) refuse(limits tokenbucket.Limits, now time.Duration, cost float64) (o outcome, ok bool) {
	if !l.stands || now-l.seen.asked >= maxRefused {
		return o, false
	}
	var few [2]tokenbucket.State
	states := append(few[:0], l.seen.states...)
	wait, admitted := limits.TryAcquire(states, l.seen.now+now-l.seen.asked, cost-l.tokens)
	if admitted {
		return o, false
	}
	return l.refuseFor(now, wait), true
}

// refuseFor refuses, and notes until when.
func (l *lease) refuseFor(now, wait time.Duration) outcome {
	l.until = max(l.until, now+min(wait, maxRefused))
	return outcome{false, l.tokens, l.seen, now}
}

// gain adds what the server gave.
func (l *lease) gain(limits tokenbucket.Limits, tokens float64, maxAge time.Duration) {
	_ = limits.Charge(l.seen.states, l.seen.now, tokens)
	l.tokens += tokens
	l.expires = timeline.Later(l.seen.arrived, maxAge)
}

// ends returns when the lease is of no use any more.
func (l *lease) ends() time.Duration {
	if l.tokens > 0 {
		return l.expires
	}
	return max(l.expires, l.until)
}

// tell returns the decision by what the server had at its latest answer together with
// what was left here: the bucket as if no other process had come since. It counts from
// the instant at which the answer arrived, so that waits suffice.
func (o outcome) tell(limits tokenbucket.Limits, cost float64) tokenbucket.Decision {
	var few [2]tokenbucket.State
	states := append(few[:0], o.seen.states...)
	at := (o.seen.now + o.at - o.seen.arrived).Truncate(time.Microsecond)
	_ = limits.Refund(states, at, o.left)
	d := limits.Take(states, at, cost)
	switch {
	case !o.granted:
		d.OK, d.Wait = false, max(roundUp(d.Wait), time.Microsecond)
	case !d.OK: // the server owes to others that wait
		_ = limits.Charge(states, at, cost)
		d = limits.Take(states, at, cost)
		d.OK, d.Wait = true, 0
	}
	return d
}

// next removes the first caller that waits, and returns it.
func (l *lease) next() *caller {
	c := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	return c
}
