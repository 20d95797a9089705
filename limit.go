package tokenbucket

import (
	"fmt"
	"math"
	"time"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// Limit is the capacity and the refill of a bucket. Its methods are pure arithmetic: their
// results depend only on their arguments, and any number of goroutines may call them. All
// instants count from one origin, which the caller chooses.
//
// The zero Limit is invalid: it admits only a cost of 0.
type Limit struct {
	Capacity     float64 // tokens, above 0, at most 2^42
	RefillPerSec float64 // tokens per second, above 0
}

const maxCapacity = 1 << 42

// PerSecond returns Per(n, time.Second).
func PerSecond(n float64) Limit { return Per(n, time.Second) }

// PerMinute returns Per(n, time.Minute).
func PerMinute(n float64) Limit { return Per(n, time.Minute) }

// PerHour returns Per(n, time.Hour).
func PerHour(n float64) Limit { return Per(n, time.Hour) }

// Per returns a limit of n tokens per d on average: capacity n, refill n / d. A full
// bucket plus d of refill can pass up to 2n tokens in one window of length d. If no
// window may pass more than n, use Within. If n or d is not above 0, Validate rejects the
// limit.
func Per(n float64, d time.Duration) Limit {
	return Limit{Capacity: n, RefillPerSec: perSec(n, d)}
}

// Within returns a limit that never passes more than n tokens in any window of length
// d, wherever the window starts. Its capacity is burst, in tokens, and its refill is
// (n - burst) / d. A smaller burst brings the average rate closer to n / d. Validate
// rejects the limit unless burst is above 0 and below n, and d is above 0.
//
// A token belongs to the window in which it is granted. If a waiter's timer rings late, its
// tokens count as granted at the instant at which they were due. So after a process stalls,
// all waiters that are due leave at once, and a server with another clock may see more than
// n in a window. If the server bans clients permanently, bound the queue with
// WithMaxWaiters, or set n below the server's limit.
func Within(n float64, d time.Duration, burst float64) Limit {
	return Limit{Capacity: burst, RefillPerSec: perSec(n-burst, d)}
}

// Unlimited returns the limit for a configuration that says "no limit": capacity 2^42,
// refill 1e300 tokens per second. Validate accepts it, and JSON can encode it.
//
// A bucket with this limit admits every cost up to 2^42 tokens at once. A cost above 2^42 is
// still an error, a pause still holds, and at most 2^42 tokens are admitted in one nanosecond.
func Unlimited() Limit {
	return Limit{Capacity: maxCapacity, RefillPerSec: 1e300}
}

func perSec(tokens float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return tokens * 1e9 / float64(d.Nanoseconds())
}

// Validate returns nil if the limit is valid, otherwise ErrInvalidLimit.
func (l Limit) Validate() error {
	switch {
	case !(l.Capacity > 0 && l.Capacity <= maxCapacity):
		return fmt.Errorf("%w: capacity %v: choose one above 0 and at most 2^42 tokens", ErrInvalidLimit, l.Capacity)
	case !(l.RefillPerSec > 0 && l.RefillPerSec <= math.MaxFloat64):
		return fmt.Errorf("%w: refill %v: choose a finite one above 0 tokens per second", ErrInvalidLimit, l.RefillPerSec)
	default:
		return nil
	}
}

// State is all that a bucket stores for one limit. It is a ledger: while the bucket is
// below its capacity, spending lowers Balance and usually leaves Anchor as it is. So the
// balance may be far below zero while the level is not.
//
//	level = min(Capacity, Balance + (now - Anchor) * RefillPerSec)
//
// A simpler state would be the level itself and the instant of the last request. But then
// every request would round the level, and the errors would add up. With a ledger, each
// level is computed anew from whole nanoseconds, so the rounding errors of levels do not
// add up, however many requests there were. Only the costs are added up. The sum is exact
// if the costs have few binary digits, as whole numbers, halves and quarters have;
// otherwise the balance is rounded in its last place.
//
// A float64 loses precision as Anchor gets old or Balance gets low. So when Anchor is
// more than 2^46 nanoseconds (19 hours) old, or Balance is below -1024 capacities, the
// next change may first move Anchor to the present and set Balance to the level.
//
// Debts stop growing at a balance of -2^960, about -1e289 tokens. A lower balance is
// invalid.
//
// The zero State is an empty bucket at the origin; [Limit.Full] makes a full one.
type State struct {
	Balance float64       // tokens at Anchor, minus the tokens taken since
	Anchor  time.Duration // since the origin
}

// Validate returns nil if the state is valid, otherwise ErrInvalidOption: the balance is not
// finite, or is below -2^960. It is for states that come from a file or a database.
func (s State) Validate() error {
	if s.Balance >= leastBalance && s.Balance <= math.MaxFloat64 {
		return nil
	}
	return fmt.Errorf("%w: a state with a balance of %v: pass states as they were saved, or leave this one out", ErrInvalidOption, s.Balance)
}

// elapsed returns the nanoseconds from the anchor to now. An instant before the
// anchor counts as the anchor: clocks step back, and nothing is minted then.
func (s State) elapsed(now time.Duration) uint64 {
	if now <= s.Anchor {
		return 0
	}
	return uint64(now) - uint64(s.Anchor)
}

// Full returns the state of a bucket that is full now.
func (l Limit) Full(now time.Duration) State {
	return State{Balance: l.Capacity, Anchor: now}
}

// IsFull reports whether a bucket has had time to fill by now. If so, its state means the
// same as Full(now), so a caller may forget it.
func (l Limit) IsFull(s State, now time.Duration) bool {
	return l.gain(s.elapsed(now)) >= l.need(s, l.Capacity)
}

func (l Limit) untilFull(s State, now time.Duration) time.Duration {
	return l.until(s, now, l.need(s, l.Capacity))
}

// Tokens returns the level at now, in tokens; below 0 it is debt. If the level is below a
// whole number only by a rounding error, so that a cost of that number would be admitted,
// Tokens returns the whole number.
func (l Limit) Tokens(s State, now time.Duration) float64 {
	return l.wholeTokens(s, now)
}

// Take admits a request of the given cost at now and returns the state after it, or
// refuses it and returns the state as it was. A refusal's Wait is the least whole
// number of nanoseconds after which the same request would be admitted if nothing else
// were taken. One nanosecond earlier it would still be refused.
//
// A cost of 0 is always admitted. A cost that is negative, NaN or above the
// capacity is never admitted: its Wait is Never.
func (l Limit) Take(s State, now time.Duration, cost float64) (State, Decision) {
	d := Decision{Limit: l, Wait: l.wait(s, now, cost)}
	if d.OK = d.Wait == 0; d.OK {
		s = l.spend(s, now, cost)
	}
	d.Tokens = l.Tokens(s, now)
	if l == (Limit{}) {
		d.LimitIndex = -1
	}
	return s, d
}

// tolerance is the largest shortfall that counts as none, relative to the capacity, or to the
// debt (-Balance) if the debt is larger. The level and the cost are sums of rounded numbers,
// and 0.3 has to pay for 0.1 three times. The shortfall stays in the ledger as debt. Therefore
// all requests together, however many, never get more than one such shortfall too much.
const tolerance = 1.0 / (1 << 50)

// slack returns the tolerance in tokens. The conversions to float64 round the product before
// it is subtracted from a cost: otherwise some processors would fuse the two operations.
func (l Limit) slack(s State) float64 {
	if -s.Balance > l.Capacity {
		return float64(tolerance * -s.Balance)
	}
	return float64(tolerance * l.Capacity)
}

// gain returns a billion times the tokens that are refilled in a number of nanoseconds,
// without the cap of the capacity. The product is exact for ordinary numbers.
func (l Limit) gain(elapsed uint64) float64 {
	return float64(elapsed) * l.RefillPerSec
}

// need returns the gain that lifts the balance to a level. Comparing gain with need is as
// exact as comparing levels, and needs no division.
func (l Limit) need(s State, level float64) float64 {
	return (level - s.Balance) * 1e9
}

func (l Limit) level(s State, now time.Duration) float64 {
	return min(l.Capacity, s.Balance+l.gain(s.elapsed(now))/1e9)
}

// wholeTokens returns the level. If the tolerance admits a whole cost above the level,
// wholeTokens returns the largest such cost.
func (l Limit) wholeTokens(s State, now time.Duration) float64 {
	level := l.level(s, now)
	paid, refused := math.Floor(level)+1, math.Floor(l.Capacity)+1
	if paid >= refused || !l.pays(s, now, paid) {
		return level
	}
	for { // with a deep debt, the tolerance may be many tokens
		middle := math.Floor((paid + refused) / 2)
		switch {
		case middle <= paid || middle >= refused:
			return paid
		case l.pays(s, now, middle):
			paid = middle
		default:
			refused = middle
		}
	}
}

// pays is the admission test for a cost above 0 and up to the capacity.
func (l Limit) pays(s State, now time.Duration, cost float64) bool {
	return l.gain(s.elapsed(now)) >= l.need(s, cost-l.slack(s))
}

// wait returns 0 if a cost is admitted at now, otherwise the least wait after which it is
// admitted.
func (l Limit) wait(s State, now time.Duration, cost float64) time.Duration {
	switch {
	case cost == 0:
		return 0
	case !(cost > 0 && cost <= l.Capacity):
		return Never
	default:
		return l.until(s, now, l.need(s, cost-l.slack(s)))
	}
}

// until returns the least wait after which the gain is at least need. It returns 0 if the gain
// at now is at least need.
func (l Limit) until(s State, now time.Duration, need float64) time.Duration {
	elapsed := s.elapsed(now)
	if l.gain(elapsed) >= need {
		return 0
	}
	return timeline.Later(l.search(elapsed, need), timeline.Until(now, s.Anchor))
}

// search returns the least wait after which the gain is at least need. The gain of elapsed
// must be less than need. In exact arithmetic, the wait is
//
//	ceil(need / RefillPerSec) - elapsed
//
// Rounding sometimes makes this value wrong by a nanosecond. So it is only an estimate
// here, and the comparison that admits a request also decides about the wait.
func (l Limit) search(elapsed uint64, need float64) time.Duration {
	least := uint64(int64(math.Ceil(need / l.RefillPerSec))) // any number if out of range
	if least > elapsed && l.gain(least-1) < need && l.gain(least) >= need {
		return time.Duration(least - elapsed)
	}
	refused, admitted := uint64(0), min(uint64(Never), math.MaxUint64-elapsed) // until the end of time
	if l.gain(elapsed+admitted) < need {
		return Never
	}
	for admitted-refused > 1 {
		middle := refused + (admitted-refused)/2
		if l.gain(elapsed+middle) >= need {
			admitted = middle
		} else {
			refused = middle
		}
	}
	return time.Duration(admitted)
}

// A ledger becomes less precise with its distance from the anchor. Beyond these bounds it is
// anchored again, at the present level.
const (
	maxElapsed = 1 << 46 // ns, 19 hours: whole nanoseconds times refill stay exact
	maxDebt    = 1 << 10 // capacities: at most 2^52 tokens, where float64 still counts single tokens
)

// leastBalance is the lowest balance. It keeps the result of the method need finite: about 1e9
// times the debt.
const leastBalance = -0x1p960

// spend returns the state after a cost has been taken at now, even if the level is below it.
func (l Limit) spend(s State, now time.Duration, cost float64) State {
	if l.IsFull(s, now) {
		s = l.Full(max(now, s.Anchor))
	} else if l.isFar(s, now) {
		s = l.reanchor(s, now)
	}
	s.Balance -= cost
	return s
}

// isFar reports whether a ledger has grown beyond maxElapsed or maxDebt.
func (l Limit) isFar(s State, now time.Duration) bool {
	return s.elapsed(now) > maxElapsed || s.Balance < -maxDebt*l.Capacity
}

// reanchor anchors a state at its present level if that gains precision. A state that is far
// only because of its debt stays as it is until half of the debt is paid. Otherwise, with a
// very large debt, every request would anchor the state again, and round.
func (l Limit) reanchor(s State, now time.Duration) State {
	level := l.level(s, now)
	if s.elapsed(now) > maxElapsed || level > s.Balance/2 {
		return State{Balance: level, Anchor: now}
	}
	return s
}

// charge is like spend, for any finite cost. It keeps the balance at or above
// leastBalance.
func (l Limit) charge(s State, now time.Duration, cost float64) State {
	s = l.spend(s, now, 0)
	s.Balance = max(s.Balance-cost, leastBalance)
	return s
}

// refund returns the state after tokens have been given back at now.
func (l Limit) refund(s State, now time.Duration, tokens float64) State {
	s = l.spend(s, now, 0)
	if l.level(s, now)+tokens >= l.Capacity {
		return l.Full(max(now, s.Anchor))
	}
	s.Balance += tokens
	return s
}
