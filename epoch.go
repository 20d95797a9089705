package tokenbucket

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// epoch is a period in which no caller waits, the bucket is not paused, and the limits stay
// the same. In an epoch, decisions about whole costs take no lock. The only thing that
// changes is one word, and an admission is one compare-and-swap of it:
//
//	word = anchor << anchorShift | spent
//
// An anchor above 0 means that all limits were full at base + anchor, in nanoseconds. Spent is
// the number of whole tokens that were taken since then. An anchor of 0 stands for the states
// at the start of the epoch, if these cannot be written in that form. So the states are a
// function of the word, and the word changes as Limits.spend changes the states:
//
//	no limit is full:     word + cost
//	all limits are full:  (now - base) << anchorShift | cost
//
// If the word cannot express the result, the lock decides, which ends the epoch. That is so
// in four cases: some of several limits are full but not all, a number needs more bits, a
// subtraction may round, or a ledger is far away from its anchor.
//
// The word never decreases, so it never returns to a value that it had before. A cost
// adds to the spent tokens, which are bounded and do not carry into the anchor. A limit
// that is full although tokens were spent has been refilled since its anchor, so the new
// anchor is a later one. If two goroutines read the same instant from the clock, only the
// first of them finds the bucket full. The largest word is epochOver, the word of an epoch
// that has ended.
//
// This has two consequences. If a compare-and-swap succeeds, the word has not changed since
// it was loaded. And if a goroutine loads the same word twice, nothing was spent in between.
type epoch struct {
	limits      Limits
	ledgers     []ledger
	base        time.Duration // before all readings of the clock in the epoch
	anchorShift uint8
	spentMask   uint64
	lastAnchor  uint64    // the largest anchor that fits
	room        [2]uint64 // the most tokens to spend: room[0] from the first states, room[1] from full limits
	covered     uint64    // the most tokens that full limits pay for without any refill
	slowest     uint64    // ns: in this time each limit refills a token
	fastest     uint64    // ns: in less time no limit refills a token
	single      [1]ledger // the array behind ledgers if there is one

	// Each of these has its own cache line, because goroutines write it while others read.
	_       [56]byte
	word    atomic.Uint64 // or epochOver
	_       [56]byte
	refused refusal
	_       [32]byte
}

type ledger struct {
	Limit
	first State // the state at the start of the epoch
}

// epochOver is the word of an epoch that has ended.
const epochOver = math.MaxUint64

// answer is a decision of an epoch. It follows from one reading of the clock and one word.
type answer struct {
	word uint64 // after the decision
	now  time.Duration
	ok   bool
	wait time.Duration // 0 when ok
}

// step is the effect of a cost on a word.
type step uint8

const (
	unknown step = iota // the lock has to decide
	admit
	refuse
)

// maxTries is how often a call tries to decide while other calls change the word. Then the
// lock decides.
const maxTries = 128

// take decides about a whole cost. It decides nothing if the epoch is nil or has ended. Other
// goroutines decide at the same time, some of them by later readings of the clock. Each
// decision is right for one instant between call and return:
//
// An admission takes place at its compare-and-swap. With the lock it would count as
// made at the latest reading of all admissions so far. That may be later than its own
// reading, but the result is the same. A cost that the level covers at the earlier reading
// is covered at the later one, too. And no limit is full at the later one, because an
// admission took tokens then. So none is full at the earlier one, either.
//
// A refusal takes place at its reading of the clock, and changes nothing. It is correct
// if the word was the same before and after the reading. So the word of a recent refusal
// is loaded before the reading, and the present word after it. If they are equal, nothing
// was spent in between. If they differ, the present word takes the place of the first one:
// the clock is read again, and then the word is loaded again. Package atomic puts all loads
// and stores into one order. The readings of a monotonic clock fit into this order: if one
// goroutine reads the clock and then stores a value, and another goroutine loads this value
// and then reads the clock, the second reading is not earlier.
//
// Loading the present word both before and after the reading would be simpler. But then
// each admission would fetch the cache line twice if another processor takes tokens in
// between.
func (e *epoch) take(t *timeline.Timeline, cost float64) (a answer, decided bool) {
	if e == nil || !isWhole(cost) {
		return a, false
	}
	whole := uint64(int64(cost))
	before := e.refused.seen.Load()
	now := t.Now()
	for range maxTries {
		word := e.word.Load()
		next, isKnown := e.admitQuickly(word, uint64(now-e.base), whole)
		step := admit
		if !isKnown {
			if word == before {
				if wait := e.refused.wait(&e.word, word, whole, now); wait > 0 {
					return answer{word, now, false, wait}, true
				}
			}
			next, step = e.step(word, now, cost)
		}
		switch {
		case step == admit:
			if e.word.CompareAndSwap(word, next) {
				return answer{next, now, true, 0}, true
			}
		case step == unknown:
			return a, false
		case word == before:
			wait := e.wait(word, now, cost)
			e.refused.note(word, whole, now, wait)
			return answer{word, now, false, wait}, true
		default:
			before, now = word, t.Now()
		}
	}
	return a, false
}

// admitQuickly returns the word after a cost in the two most frequent cases: all limits are
// full, or no limit is full and the cost needs no refill. It compares whole numbers, and its
// time does not depend on the number of limits. In other cases it returns false. epochOver is
// one of them: its anchor is above e.lastAnchor, and its spent tokens are above e.covered.
//
// The result is that of step. A limit is full if gain has reached need (see Limit.IsFull), that
// is, when the spent tokens have been refilled. A token is refilled in at least e.fastest and
// at most e.slowest nanoseconds. Gain and need are rounded once each. So gain is not below need
// once spent*slowest nanoseconds have passed since the anchor. Before spent*fastest nanoseconds
// have passed, gain is below need by at least the refill of 1 ns. Gain is at most the refill of
// 2^46 ns, so the difference is more than the rounding errors. The sums do not overflow, because
// slowest and fastest are at most 1 << (64 - anchorShift).
func (e *epoch) admitQuickly(word, at, cost uint64) (next uint64, ok bool) {
	anchor, spent := e.split(word)
	if anchor == 0 || at > maxElapsed {
		return 0, false
	}
	if at >= anchor+spent*e.slowest {
		return at<<(e.anchorShift&63) | cost, cost <= e.covered && at <= e.lastAnchor
	}
	return word + cost, spent+cost <= e.covered && at < anchor+spent*e.fastest
}

// step returns the effect of a cost at now on a word. If that is admit, it also returns the
// word after it.
func (e *epoch) step(word uint64, now time.Duration, cost float64) (next uint64, s step) {
	if word == epochOver {
		return 0, unknown
	}
	anchor, spent := e.split(word)
	full, isFar := 0, false
	for i := range e.ledgers {
		l := &e.ledgers[i]
		switch s := l.state(e.base, anchor, spent); {
		case cost > l.Capacity:
			return 0, refuse
		case l.IsFull(s, now):
			full++
		case cost > 0 && !l.pays(s, now, cost):
			return 0, refuse
		case l.isFar(s, now):
			isFar = true
		}
	}
	switch {
	case full == len(e.ledgers):
		// A reading before the anchor counts as the anchor.
		if anchor, spent = max(uint64(now-e.base), anchor), 0; anchor > e.lastAnchor {
			return 0, unknown
		}
	case full > 0 || isFar:
		return 0, unknown
	}
	if spent += uint64(int64(cost)); spent > e.room[min(anchor, 1)] {
		return 0, unknown
	}
	return anchor<<(e.anchorShift&63) | spent, admit
}

// wait returns how long a cost that is refused at now has to wait.
func (e *epoch) wait(word uint64, now time.Duration, cost float64) (longest time.Duration) {
	anchor, spent := e.split(word)
	for i := range e.ledgers {
		l := &e.ledgers[i]
		longest = max(longest, l.wait(l.state(e.base, anchor, spent), now, cost))
	}
	return longest
}

// split returns the parts of a word.
func (e *epoch) split(word uint64) (anchor, spent uint64) {
	return word >> (e.anchorShift & 63), word & e.spentMask
}

// state returns the state of a ledger that the parts of a word stand for.
func (l *ledger) state(base time.Duration, anchor, spent uint64) State {
	s := l.first
	if anchor > 0 {
		s = State{l.Capacity, base + time.Duration(anchor)}
	}
	s.Balance -= float64(int64(spent))
	return s
}

// appendStates appends the states that a word stands for.
func (e *epoch) appendStates(states []State, word uint64) []State {
	anchor, spent := e.split(word)
	for i := range e.ledgers {
		states = append(states, e.ledgers[i].state(e.base, anchor, spent))
	}
	return states
}

// end ends the epoch and sets the states to those after its last admission.
func (e *epoch) end(states []State) {
	e.appendStates(states[:0], e.word.Swap(epochOver))
}

// startEpoch returns an epoch that begins at now.
func startEpoch(limits Limits, states []State, now time.Duration) *epoch {
	spentBits := spentBits(limits)
	instants := uint64(1) << (64 - spentBits)
	e := &epoch{
		limits:      limits,
		base:        now - 1, // so that an anchor is at least 1
		anchorShift: uint8(spentBits),
		spentMask:   1<<spentBits - 1,
		lastAnchor:  instants - 2, // so that no word is epochOver
		fastest:     instants,
	}
	e.room = [2]uint64{e.spentMask, e.spentMask}
	e.ledgers = e.single[:0]
	for i, l := range limits {
		e.ledgers = append(e.ledgers, ledger{l, states[i]})
		e.room[0] = min(e.room[0], room(states[i].Balance))
		e.room[1] = min(e.room[1], room(l.Capacity))
		fastest, slowest := l.tokenTime(instants)
		e.fastest, e.slowest = min(e.fastest, fastest), max(e.slowest, slowest)
	}
	e.covered = min(e.room[1], uint64(limits.capacity()))
	if spent, ok := limits.spentSinceFull(states); ok && spent <= e.room[1] && !limits[0].isFar(states[0], now) {
		e.base = states[0].Anchor - 1
		e.word.Store(1<<spentBits | spent)
		e.refused.seen.Store(1<<spentBits | spent)
	}
	return e
}

// spentSinceFull returns how many whole tokens have been taken since all limits were full at
// one instant, which is the anchor of the states. There may be no such number.
func (ls Limits) spentSinceFull(states []State) (spent uint64, ok bool) {
	tokens := ls[0].Capacity - states[0].Balance
	for i, l := range ls {
		if states[i] != (State{l.Capacity - tokens, states[0].Anchor}) {
			return 0, false
		}
	}
	return uint64(int64(tokens)), isWhole(tokens)
}

// tokenTime returns two whole numbers of nanoseconds: a token is refilled in at least the
// first and at most the second. A number above longest is lowered to longest.
func (l Limit) tokenTime(longest uint64) (least, most uint64) {
	least = uint64(min(1e9/l.RefillPerSec, float64(longest)))
	return least, min(least+1, longest)
}

// spentBits returns how many bits of a word count spent tokens: enough for the largest
// cost many times. The other bits count nanoseconds: 18 minutes with capacities below
// 2^18 tokens, 33 microseconds with a capacity of 2^42.
func spentBits(limits Limits) int {
	return max(24, bits.Len64(uint64(limits.capacity()))+6)
}

// room returns how many whole tokens an epoch may subtract from a balance, at once or in
// steps, so that no subtraction rounds. Subtracting a whole number needs no more binary digits
// after the point than the balance has. So if the last subtraction does not round, none before
// it does.
func room(balance float64) uint64 {
	for exact := 0x1p48; exact >= 1; exact /= 2 {
		if (balance-exact)+exact == balance {
			return uint64(exact)
		}
	}
	return 0
}

// isWhole reports whether an epoch can count a cost: a whole number, 0 or more.
func isWhole(cost float64) bool {
	return float64(int64(cost)) == cost && cost >= 0 // a cost that no int64 holds is above every capacity
}

// busy counts decisions that an epoch could make.
type busy struct {
	decisions int           // below 0 after a waiter was queued
	since     time.Duration // the instant of the first of them
	anchors   time.Duration // the sum of the anchors, compared only for changes, so it may wrap
}

// decisionsToEpoch is how many decisions in a short time start an epoch. Starting one
// allocates, so buckets that are used rarely, or mostly for other calls, start none.
const decisionsToEpoch = 16

// decisionsAfterQueue is how many additional decisions must come before an epoch starts after
// a waiter was queued, because the next waiter would end the epoch. So a stream that waits for
// each burst of bytes starts no epochs.
const decisionsAfterQueue = 240

// noteDecisionLocked counts a decision, and starts an epoch after decisionsToEpoch of them in
// a short time. It counts only decisions by the states alone, without a queue or a pause. An
// epoch does not keep the latest reading of the clock, so it needs a clock that never steps
// back: the system clock.
func (b *Bucket) noteDecisionLocked(now time.Duration, p price) {
	q := &b.queue
	if p.each != nil || !isWhole(p.all) || !q.isOpen() || !b.time.IsSteady() || len(q.limits) == 0 {
		return
	}
	areEqual, anchors, first := true, time.Duration(0), q.states[0].Anchor
	for i := range q.states {
		areEqual = areEqual && q.states[i].Anchor == first
		anchors += q.states[i].Anchor
	}
	changed := anchors != b.busy.anchors
	b.busy.anchors = anchors
	switch {
	case !areEqual && changed:
		b.busy.decisions = min(b.busy.decisions, 0) // one of several limits was full
		return
	case b.busy.decisions == 0:
		b.busy.since = now
	}
	if b.busy.decisions++; b.busy.decisions < decisionsToEpoch || now < q.latest {
		return
	}
	b.busy.decisions = 0
	if short := time.Duration(1) << (64 - spentBits(q.limits)) / 16; now-b.busy.since < short {
		b.epoch.Store(startEpoch(q.limits, q.states, now))
	}
}
