package redisbucket

import (
	"container/list"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// maxRefused is how long a refusal is remembered at most: what others give back is
// seen by then.
const maxRefused = time.Minute

// lease is what a process has of one key. The mutex of the leases guards it.
type lease struct {
	key     string        // without the prefix
	tokens  float64       // taken, and not spent
	expires time.Duration // when they go back
	seen    ledger        // the server's, as of the latest answer
	stands  bool          // the server has no more than that: nothing was given back since
	used    time.Duration // when it was last asked for
	until   time.Duration // the latest instant that a refusal named, at most maxRefused after it

	place     *list.Element // among the idle; nil while an exchange is under way
	waiting   []*caller     // for its end, in order of arrival
	watch     *time.Timer   // lets those go who are late; nil if nobody ever waited for others
	watched   bool          // it is set, and comes before anybody is late who waits for others
	refunding bool          // tokens were given back meanwhile: its answer does not stand
}

// ledger is what the server has for a key, as of an answer. The server decided
// between the instants at which it was asked and answered.
type ledger struct {
	states         []tokenbucket.State // never changed
	now            time.Duration       // by the server's clock
	asked, arrived time.Duration
}

// outcome is what was decided about a cost, and by what.
type outcome struct {
	granted bool
	left    float64       // tokens of the lease, before
	seen    ledger        // the server's
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

// refuse refuses a cost if the server would refuse what is short of it, as far as it is
// known: since its latest answer others have only taken. The time is counted from the
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
	l.expires = l.seen.arrived + maxAge
}

// ends returns when the lease is of no use any more.
func (l *lease) ends() time.Duration {
	if l.tokens > 0 {
		return l.expires
	}
	return max(l.expires, l.until)
}

// tell tells a decision by what the server had at its latest answer together with
// what was left here: the bucket as if nobody else had come since. It counts from
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
	case !d.OK: // the server owes to others who wait
		_ = limits.Charge(states, at, cost)
		d = limits.Take(states, at, cost)
		d.OK, d.Wait = true, 0
	}
	return d
}
