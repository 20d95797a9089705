package simtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// slack is how much two sums of floating point numbers may differ, in tokens.
const slack = 1e-6

// check returns the violations of the promises.
func (f *fleet) check() []string {
	c := checker{fleet: f}
	c.checkLevels()
	c.checkOnce()
	c.checkBalances()
	c.checkDurations()
	c.checkWaits()
	c.checkRecovery()
	return c.wrong
}

// checker checks the events of a run.
type checker struct {
	*fleet
	wrong []string
}

func (c *checker) complain(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// since returns an instant, counted from the origin.
func (c *checker) since(at time.Time) time.Duration { return at.Sub(c.origin) }

// checkLevels: no bucket ever gives more than capacity + refill × time.
func (c *checker) checkLevels() {
	for _, r := range c.runs {
		least := -slack
		if patience := r.patience(); patience > 0 {
			least -= patience.Seconds() * r.refill()
		}
		if r.taken > 0 && !r.charges() && r.left < least {
			c.complain("process %d took %v from %s at %v, which left %v", r.process, r.taken, r.key, c.since(r.at), r.left)
		}
	}
}

// checkOnce: the cost of a call is taken once, and given back once.
func (c *checker) checkOnce() {
	type coin struct {
		id    int
		taken bool
	}
	seen := map[coin]bool{}
	for _, r := range c.runs {
		id := decoded(r.cost())
		if id == 0 || r.taken == 0 {
			continue
		}
		if this := (coin{id, r.taken > 0}); seen[this] {
			c.complain("call %d: its cost was taken or given back twice: %v at %v", id, r.taken, c.since(r.at))
		} else {
			seen[this] = true
		}
	}
}

// movement is a change of the tokens that a process holds of a bucket.
type movement struct {
	at     time.Time
	tokens float64
}

type account struct {
	process int
	key     string
}

// checkBalances: no process spends or gives back tokens that it has not taken. Without faults
// it has no tokens left in the end.
func (c *checker) checkBalances() {
	for who, all := range c.movements() {
		slices.SortStableFunc(all, func(a, b movement) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(b.tokens, a.tokens))
		})
		balance := 0.0
		for _, m := range all {
			if balance += m.tokens; balance < -slack {
				c.complain("process %d had %v of %s at %v", who.process, balance, who.key, c.since(m.at))
				break
			}
		}
		if balance > slack && c.plan.troubles == 0 {
			c.complain("process %d lost %v of %s, though there was no trouble", who.process, balance, who.key)
		}
	}
	slices.Sort(c.wrong)
}

// movements returns the movements of each process and bucket.
func (c *checker) movements() map[account][]movement {
	moves := map[account][]movement{}
	for _, r := range c.runs {
		who := account{r.process, r.key}
		switch {
		case c.isRefund(r):
		case r.taken > 0 && r.isHeard():
			moves[who] = append(moves[who], movement{r.read, r.taken})
		case r.taken < 0:
			moves[who] = append(moves[who], movement{r.sent, r.taken})
		}
	}
	for _, call := range c.plan.calls {
		who := account{call.process.id, c.plan.services[call.service].name + ":" + call.key}
		if call.took() {
			moves[who] = append(moves[who], movement{call.end, -call.cost})
		}
	}
	return moves
}

// isRefund reports whether a run is that of a call of Refund.
func (c *checker) isRefund(r *run) bool {
	id := decoded(r.cost())
	return r.taken < 0 && id > 0 && c.plan.calls[id-1].method == refund
}

// checkDurations: no call takes longer than the timeout or, if it waits, than its context
// plus the time to give tokens back.
func (c *checker) checkDurations() {
	for _, call := range c.plan.calls {
		took, most := call.end.Sub(call.start), timeout+tick
		if call.method == wait {
			most += call.patience
		}
		if took > most {
			c.complain("%v: it took %v", call, took)
		}
	}
}

// checkWaits: the tokens of waiters are refilled in the order in which the server got their
// requests. No waiter leaves before its tokens are refilled. After that it leaves within the
// time that an answer may take.
func (c *checker) checkWaits() {
	latest := map[string]time.Time{} // when the tokens of the waiter before are refilled
	for _, r := range c.runs {
		if r.taken < 0 || c.lostAt(r.at) {
			delete(latest, r.key) // for later waiters there are more tokens
		}
		call := c.waiter(r)
		if call == nil {
			continue
		}
		due := r.due()
		if missing := -r.left - call.end.Sub(r.at).Seconds()*r.refill(); missing > 2e-6*r.refill()+slack {
			c.complain("%v: it left too early for %v tokens", call, missing)
		}
		if most := call.start.Add(timeout).Sub(r.at); call.end.Before(due.Add(-tick)) || call.end.After(due.Add(most+tick)) {
			c.complain("%v: its tokens were there after %v", call, c.since(due))
		}
		if due.Before(latest[r.key].Add(-tick)) {
			c.complain("%v: its tokens were there after %v, those of one before it after %v", call, c.since(due), c.since(latest[r.key]))
		}
		latest[r.key] = due
	}
}

// tick is how far two instants may be apart: scripts count microseconds, and goroutines
// wake late (see fate.late).
const tick = 5 * time.Microsecond

// waiter returns the call of Wait whose cost a run took, or nil.
func (c *checker) waiter(r *run) *call {
	id := decoded(r.cost())
	if id == 0 || r.taken <= 0 {
		return nil
	}
	call := c.plan.calls[id-1]
	if call.method != wait || !call.granted || call.died {
		return nil
	}
	return call
}

// lostAt reports whether data was lost in the minute before at.
func (c *checker) lostAt(at time.Time) bool {
	for _, loss := range c.losses {
		if since := at.Sub(loss); since >= 0 && since < time.Minute {
			return true
		}
	}
	return false
}

// checkRecovery: after the faults, calls of a process time out at no more instants than it has
// dead connections.
func (c *checker) checkRecovery() {
	for _, calm := range c.calms {
		slow := map[*process]map[time.Time]bool{}
		settled := calm.at.Add(timeout + pause)
		for _, call := range c.plan.calls {
			if !call.failed() || call.died || call.start.Before(settled) || call.start.After(settled.Add(6*time.Second)) {
				continue
			}
			if slow[call.process] == nil {
				slow[call.process] = map[time.Time]bool{}
			}
			if call.end.Sub(call.start) > 0 {
				slow[call.process][call.end] = true
			}
			if n := len(slow[call.process]); n > calm.dead[call.process] {
				c.complain("%v: process %d failed the %dth time after calm at %v, with %d dead connections: %v", call, call.process.id, n, c.since(calm.at), calm.dead[call.process], call.err)
			}
		}
	}
}
