package main

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/juju/ratelimit"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/vectors"
	"github.com/aa014e13/tokenbucket/keyed"
)

// asker takes a cost at an instant since the bucket's origin, or returns how long to
// wait.
type asker func(at time.Duration, cost float64) (wait time.Duration, ok bool)

// exact is a peer whose clock can be set.
type exact struct {
	name    string
	numbers func(vectors.Sequence) bool // whether the peer can express its numbers
	open    func(testing.TB, []tokenbucket.Limit) asker
}

var exacts = []exact{
	{ours, anyNumbers, askBucket},
	{ours + "-keyed", anyNumbers, askKeyed},
	{"running-level", wholeNumbers, askRunningLevel},
	{"x-time-rate", wholeNumbers, askRate},
	{"juju", tickingNumbers, askJuju},
	{"throttled", spacedNumbers, askThrottled},
}

func anyNumbers(vectors.Sequence) bool { return true }

// wholeNumbers is for peers whose capacities and costs are integers.
func wholeNumbers(s vectors.Sequence) bool {
	if len(s.Limits) > 1 || !isInt(s.Limits[0].Capacity) {
		return false
	}
	for _, step := range s.Steps {
		if !isInt(step.Cost) {
			return false
		}
	}
	return true
}

func isInt(x float64) bool { return x == math.Trunc(x) && math.Abs(x) <= math.MaxInt32 }

// tickingNumbers is for juju's NewBucketWithRate, which panics if it finds no tick for
// the rate.
func tickingNumbers(s vectors.Sequence) (ok bool) {
	if !wholeNumbers(s) {
		return false
	}
	defer func() { ok = recover() == nil }()
	ratelimit.NewBucketWithRate(s.Limits[0].RefillPerSec, int64(s.Limits[0].Capacity))
	return true
}

// spacedNumbers is for throttled, which needs a nanosecond or more between tokens, and a
// time to fill that a Duration can express.
func spacedNumbers(s vectors.Sequence) bool {
	if !wholeNumbers(s) {
		return false
	}
	l := s.Limits[0]
	return l.RefillPerSec <= 1e9 && l.Capacity/l.RefillPerSec*1e9 < math.MaxInt64/2
}

// origin is when all buckets were made.
var origin = time.Unix(1_000_000_000, 0)

// handClock is set by hand, and never sleeps. It implements tokenbucket.Clock and juju's
// Clock.
type handClock struct{ now time.Time }

func newHandClock() *handClock { return &handClock{origin} }

func (c *handClock) set(at time.Duration)               { c.now = origin.Add(at) }
func (c *handClock) Now() time.Time                     { return c.now }
func (c *handClock) Since(t time.Time) time.Duration    { return c.now.Sub(t) }
func (*handClock) After(time.Duration) <-chan time.Time { return nil }
func (*handClock) Sleep(time.Duration)                  {}

func askBucket(_ testing.TB, limits []tokenbucket.Limit) asker {
	hand := newHandClock()
	opts := []tokenbucket.Option{tokenbucket.WithClock(hand)}
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	bucket := tokenbucket.MustNew(limits[0], opts...)
	return func(at time.Duration, cost float64) (time.Duration, bool) {
		hand.set(at)
		return bucket.TryAcquire(cost)
	}
}

func askKeyed(tb testing.TB, limits []tokenbucket.Limit) asker {
	hand := newHandClock()
	opts := []keyed.Option{keyed.WithClock(hand)}
	for _, l := range limits[1:] {
		opts = append(opts, keyed.WithLimit(l))
	}
	buckets := must[*keyed.Buckets[string]](tb)(keyed.New[string](limits[0], opts...))
	return func(at time.Duration, cost float64) (time.Duration, bool) {
		hand.set(at)
		return buckets.TryAcquire("client", cost)
	}
}

// askRunningLevel is the textbook formula: every grant rounds the level.
func askRunningLevel(_ testing.TB, limits []tokenbucket.Limit) asker {
	l, tokens, last := limits[0], limits[0].Capacity, time.Duration(0)
	return func(at time.Duration, cost float64) (time.Duration, bool) {
		level := min(l.Capacity, tokens+float64(at-last)*l.RefillPerSec/1e9)
		switch {
		case level >= cost:
			tokens, last = level-cost, at
			return 0, true
		case cost > l.Capacity:
			return tokenbucket.Never, false
		default:
			return nanoseconds((cost - level) / l.RefillPerSec), false
		}
	}
}

// nanoseconds rounds seconds up. It returns Never beyond the range of a Duration.
func nanoseconds(seconds float64) time.Duration {
	if ns := math.Ceil(seconds * 1e9); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return tokenbucket.Never
}

// askRate gets the wait as the documentation of x/time/rate says: from a reservation,
// which it then cancels.
func askRate(_ testing.TB, limits []tokenbucket.Limit) asker {
	limiter := rate.NewLimiter(rate.Limit(limits[0].RefillPerSec), int(limits[0].Capacity))
	return func(at time.Duration, cost float64) (time.Duration, bool) {
		now := origin.Add(at)
		if limiter.AllowN(now, int(cost)) {
			return 0, true
		}
		r := limiter.ReserveN(now, int(cost))
		if !r.OK() {
			return tokenbucket.Never, false
		}
		defer r.CancelAt(now)
		return r.DelayFrom(now), false
	}
}

// askJuju gets the wait from a second bucket with the same history, since juju spends the
// tokens when it reports a wait.
func askJuju(_ testing.TB, limits []tokenbucket.Limit) asker {
	type grant struct {
		at   time.Duration
		cost int64
	}
	var past []grant
	twin := func() (*handClock, *ratelimit.Bucket) {
		hand := newHandClock()
		bucket := ratelimit.NewBucketWithRateAndClock(limits[0].RefillPerSec, int64(limits[0].Capacity), hand)
		for _, g := range past {
			hand.set(g.at)
			bucket.Take(g.cost)
		}
		return hand, bucket
	}
	hand, bucket := twin()
	return func(at time.Duration, cost float64) (time.Duration, bool) {
		hand.set(at)
		if _, ok := bucket.TakeMaxDuration(int64(cost), 0); ok {
			past = append(past, grant{at, int64(cost)})
			return 0, true
		}
		hand, second := twin()
		hand.set(at)
		return second.Take(int64(cost)), false
	}
}

func askThrottled(tb testing.TB, limits []tokenbucket.Limit) asker {
	hand := newHandClock()
	store := must[*memstore.MemStore](tb)(memstore.New(0))
	store.SetTimeNow(hand.Now)
	limiter := throttledLimiter(tb, limits[0], throttled.WrapStoreWithContext(store))
	return func(at time.Duration, cost float64) (time.Duration, bool) {
		hand.set(at)
		limited, answer, err := limiter.RateLimitCtx(context.Background(), "client", int(cost))
		require.NoError(tb, err)
		if limited && answer.RetryAfter == -1 {
			return tokenbucket.Never, false
		}
		return answer.RetryAfter, !limited
	}
}

// marks counts what a peer got wrong.
type marks struct {
	sequences, decisions, wrongDecisions int
	waits, wrongWaits                    int           // if the refusal was right
	worst                                time.Duration // of the waits that are not Never
}

// judge returns false for a wrong decision.
func (m *marks) judge(want vectors.Step, wait time.Duration, ok bool) bool {
	m.decisions++
	if ok != want.OK {
		m.wrongDecisions++
		return false
	}
	if ok {
		return true
	}
	m.waits++
	if wait != want.Wait {
		m.wrongWaits++
	}
	if wait != tokenbucket.Never && want.Wait != tokenbucket.Never {
		m.worst = max(m.worst, wait-want.Wait, want.Wait-wait)
	}
	return true
}

// sequence ends at the first wrong decision, since the right answers after it no longer
// apply.
func (m *marks) sequence(s vectors.Sequence, ask asker) {
	m.sequences++
	for _, step := range s.Steps {
		wait, ok := ask(step.At, step.Cost)
		if !m.judge(step, wait, ok) {
			return
		}
	}
}

func (m *marks) report(t *testing.T, of int) {
	t.Attr("sequences", fmt.Sprintf("%d of %d", m.sequences, of))
	t.Attr("wrong_decisions", fmt.Sprintf("%d of %d (%s)", m.wrongDecisions, m.decisions, percent(m.wrongDecisions, m.decisions)))
	t.Attr("wrong_waits", fmt.Sprintf("%d of %d (%s)", m.wrongWaits, m.waits, percent(m.wrongWaits, m.waits)))
	t.Attr("farthest_off", m.worst.String())
}

func percent(part, whole int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// TestExactness runs sequences computed in exact rational arithmetic on every peer whose
// clock can be set, if the peer can express their numbers.
func TestExactness(t *testing.T) {
	sequences := vectors.All()
	for _, p := range exacts {
		t.Run(p.name, func(t *testing.T) {
			var m marks
			for _, s := range sequences {
				if !p.numbers(s) {
					continue
				}
				m.sequence(s, p.open(t, s.Limits))
			}
			m.report(t, len(sequences))
			require.NotZero(t, m.waits)
			if p.name == ours || p.name == ours+"-keyed" {
				require.Zero(t, m.wrongDecisions)
				require.Zero(t, m.wrongWaits)
			}
		})
	}
}
