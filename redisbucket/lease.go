package redisbucket

import (
	"container/list"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// maxRefused is the longest time for which a refusal is decided without the server. After
// it, tokens that other processes gave back are noticed.
const maxRefused = time.Minute

// lease is the tokens that a process holds of one key. The mutex of the leases guards it.
type lease struct {
	key     string        // without the prefix
	tokens  float64       // taken from the server, not spent yet
	expires time.Duration // the instant at which the tokens are given back
	seen    *reading      // the server's latest answer
	stands  bool          // whether seen may refuse costs: this process has given nothing back since
	used    time.Duration // the instant of the latest request
	until   time.Duration // the latest instant at which a refusal ends, at most maxRefused after that refusal

	place     *list.Element // in the list of idle leases; nil while a round trip is under way
	waiting   []*caller     // callers that wait for the round trip, in order of arrival
	watch     *time.Timer   // drops late callers; nil if no caller ever waited for another's round trip
	watched   bool          // watch is set, to the instant at which the first such caller is late, or before
	refunding bool          // tokens were given back during the round trip: its answer may lack them
}

// reading is the state of a key's bucket on the server, from an answer. The server
// read its clock, the field now, between asked and arrived. A reading is not changed after gain.
type reading struct {
	states         []tokenbucket.State // without the tokens of the lease
	now            time.Duration       // by the server's clock
	asked, arrived time.Duration       // by the local clock
}

// outcome is a decision of a lease, and the numbers from which it was made.
type outcome struct {
	granted bool
	left    float64       // tokens of the lease before the decision
	seen    *reading      // the lease's
	at      time.Duration // by the local clock
}

// decide decides without the server, and reports false if it cannot. The argument now may be
// earlier than the arrival of the latest answer.
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

// hasExpired reports whether the lease has tokens that must be given back.
func (l *lease) hasExpired(now time.Duration) bool { return l.tokens > 0 && now >= l.expires }

func (l *lease) grant(now time.Duration, cost float64) outcome {
	o := outcome{true, l.tokens, l.seen, now}
	l.tokens = max(0, l.tokens-cost)
	return o
}

// refuse rejects a cost that the server's last answer cannot cover, if this process has given
// nothing back since. It counts the refill from the instant at which the server was asked. The
// real refill is not more. So refuse rejects nothing that the server would admit, unless other
// processes have given tokens back.
func (l *lease) refuse(limits tokenbucket.Limits, now time.Duration, cost float64) (o outcome, ok bool) {
	if !l.stands || now-l.seen.asked >= maxRefused {
		return o, false
	}
	var few [2]tokenbucket.State
	states := append(few[:0], l.seen.states...)
	wait, admitted := limits.TryAcquire(states, l.seen.now+(now-l.seen.asked), cost-l.tokens)
	if admitted {
		return o, false
	}
	return l.refuseFor(now, wait), true
}

// refuseFor returns a refusal, and notes when it ends.
func (l *lease) refuseFor(now, wait time.Duration) outcome {
	l.until = max(l.until, now+min(wait, maxRefused))
	return outcome{false, l.tokens, l.seen, now}
}

// gain adds tokens that were taken on the server, and subtracts them from the reading.
func (l *lease) gain(limits tokenbucket.Limits, tokens float64, maxAge time.Duration) {
	_ = limits.Charge(l.seen.states, l.seen.now, tokens)
	l.tokens += tokens
	l.expires = timeline.Later(l.seen.arrived, maxAge)
}

// ends returns the instant from which the lease cannot decide anything.
func (l *lease) ends() time.Duration {
	if l.tokens > 0 {
		return l.expires
	}
	return max(l.expires, l.until)
}

// decision returns the Decision of an outcome. Its figures are those of the bucket in the
// server's latest answer with the lease's tokens added, as if no other process had taken
// anything since. It counts the refill from the instant at which the answer arrived. The real
// refill is not less, so a wait is long enough.
func (o outcome) decision(limits tokenbucket.Limits, cost float64) tokenbucket.Decision {
	var few [2]tokenbucket.State
	states := append(few[:0], o.seen.states...)
	at := (o.seen.now + o.at - o.seen.arrived).Truncate(time.Microsecond)
	_ = limits.Refund(states, at, o.left)
	d := limits.Take(states, at, cost)
	switch {
	case !o.granted:
		d.OK, d.Wait = false, max(roundUp(d.Wait), time.Microsecond)
	case !d.OK: // the bucket on the server is in debt to requests that wait
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
