package tokenbucket

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

const (
	second  = time.Second
	noBound = 1 << 30
)

var errGaveUp = errors.New("gave up")

func newQueue(tokens float64, limits ...Limit) *queue {
	q := new(queue)
	q.init(limits, 0, noBound)
	q.lower(tokens)
	return q
}

// Decisions under the lock write to other cache lines than the fields before it.
func TestBucketConsistsOfCacheLines(t *testing.T) {
	var b Bucket
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the layout is for machines with 64 bits")
	}
	require.Zero(t, unsafe.Offsetof(b.mu)%64)
	require.Zero(t, unsafe.Sizeof(b)%64)
}

// If a decision finds that one of several limits is full, the count of decisions that leads to an
// epoch begins again at 0. A count below 0, as after a queue, stays.
func TestDecisionsThatFindALimitFullCountForNoEpoch(t *testing.T) {
	b := MustNew(Limit{10, 1}, WithLimit(Limit{20, 1}))
	for before, after := range map[int]int{5: 0, -decisionsAfterQueue: -decisionsAfterQueue} {
		b.busy.decisions = before
		b.queue.states[1].Anchor++
		b.noteDecisionLocked(second, price{all: 1})
		require.Equal(t, after, b.busy.decisions)
		b.noteDecisionLocked(second, price{all: 1})
		require.Equal(t, after+1, b.busy.decisions)
	}
}

// reserve queues a cost for each limit, or one for all.
func (q *queue) reserve(t *testing.T, now time.Duration, costs ...float64) *waiter {
	return q.enqueue(t, now, nil, costs...)
}

// addSleeper is like reserve, for a waiter that sleeps with its timer set.
func (q *queue) addSleeper(t *testing.T, now time.Duration, costs ...float64) *waiter {
	w := q.enqueue(t, now, make(chan struct{}, 1), costs...)
	q.sleep(w)
	return w
}

func (q *queue) enqueue(t *testing.T, now time.Duration, nudges chan struct{}, costs ...float64) *waiter {
	t.Helper()
	p := price{all: costs[0]}
	if len(costs) > 1 {
		var err error
		p, err = priceEach(&costs, len(q.limits))
		require.NoError(t, err)
	}
	w := &waiter{nudges: nudges}
	q.push(now, p, w)
	return w
}

// dues returns the instants of the turns in the order of the queue.
func (q *queue) dues() (dues []time.Duration) {
	for w := q.head; w != nil; w = w.next {
		q.plan(w)
		dues = append(dues, w.due)
	}
	return dues
}

func seconds(s ...float64) (instants []time.Duration) {
	for _, s := range s {
		instants = append(instants, time.Duration(s*1e9))
	}
	return instants
}

func TestTurnsFollowEveryChange(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(t *testing.T, q *queue, ws []*waiter)
		dues   []time.Duration
	}{
		{"nothing", func(*testing.T, *queue, []*waiter) {}, seconds(3, 4, 6)},
		{"a newcomer", func(t *testing.T, q *queue, _ []*waiter) { q.reserve(t, second, 10) }, seconds(3, 4, 6, 16)},
		{"the first gives up", func(_ *testing.T, q *queue, ws []*waiter) { q.abandon(second/2, ws[0], errGaveUp) }, seconds(1, 3)},
		{"the first gives up later", func(_ *testing.T, q *queue, ws []*waiter) { q.abandon(2*second, ws[0], errGaveUp) }, seconds(3)},
		{"the second gives up", func(_ *testing.T, q *queue, ws []*waiter) { q.abandon(second, ws[1], errGaveUp) }, seconds(3, 5)},
		{"the last gives up", func(_ *testing.T, q *queue, ws []*waiter) { q.abandon(second, ws[2], errGaveUp) }, seconds(3, 4)},
		{"time passes", func(_ *testing.T, q *queue, _ []*waiter) { q.advance(3 * second) }, seconds(4, 6)},
		{"the clock steps back", func(_ *testing.T, q *queue, _ []*waiter) { q.advance(3 * second); q.advance(0) }, seconds(4, 6)},
		{"a call comes late", func(_ *testing.T, q *queue, _ []*waiter) { q.advance(5 * second) }, seconds(6)},
		{"a charge", func(t *testing.T, q *queue, _ []*waiter) { require.NoError(t, q.charge(second, price{all: 10})) }, seconds(13, 14, 16)},
		{"a refund", func(t *testing.T, q *queue, _ []*waiter) { require.NoError(t, q.refund(second, price{all: 2})) }, seconds(2, 4)},
		{"a pause", func(_ *testing.T, q *queue, _ []*waiter) { q.pause(second, 9*second) }, seconds(13, 14, 16)},
		{"full again", func(_ *testing.T, q *queue, _ []*waiter) { q.fill(0) }, nil},
		{"a faster refill", func(_ *testing.T, q *queue, _ []*waiter) { q.setLimits(second, Limits{{10, 2}}) }, seconds(2, 2.5, 3.5)},
		{"a capacity that is too small for the first", func(_ *testing.T, q *queue, _ []*waiter) { q.setLimits(second, Limits{{2, 1}}) }, seconds(3)},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newQueue(0, Limit{10, 1})
			ws := []*waiter{q.reserve(t, 0, 3), q.reserve(t, 0, 1), q.reserve(t, 0, 2)}
			row.change(t, q, ws)
			require.Equal(t, row.dues, q.dues())
			requireSound(t, q)
		})
	}
}

// requireSound compares the sums and pointers of the queue with those that a walk along
// it finds.
func requireSound(t *testing.T, q *queue) {
	t.Helper()
	at, states := max(q.latest, q.opens), append([]State(nil), q.states...)
	if q.head != nil && q.begins > at {
		at = q.begins
	}
	var n, reservations, timers int
	var sleeper *waiter
	queued := make([]float64, len(q.limits))
	for w := q.head; w != nil; w = w.next {
		n++
		at = timeline.Later(at, q.limits.wait(states, at, w.price()))
		q.limits.spend(states, at, w.price())
		q.plan(w)
		require.Equal(t, at, w.due, "turn %d", n)
		require.Greater(t, w.due, q.latest, "turn %d", n)
		require.False(t, w.left)
		switch {
		case w.nudges == nil:
			reservations++
		case sleeper == nil:
			sleeper = w
		}
		if w.asleep && w.alarm > q.latest {
			timers++
		}
		for i := range queued {
			queued[i] += w.price().of(i)
		}
	}
	require.Equal(t, []int{n, reservations}, []int{q.len, q.reservations})
	require.Equal(t, reservations+timers, q.waiting(q.latest))
	require.Same(t, sleeper, q.sleeper)
	require.Equal(t, queued, q.queued)
	if sleeper != nil && len(sleeper.nudges) == 0 {
		require.LessOrEqual(t, sleeper.alarm, sleeper.due, "the first sleeper's timer rings too late")
	}
}

func TestQueueStaysSoundAfterAnything(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		limits := Limits{{16, 4}, {32, 2}, {64, 8}}[:1+random.IntN(3)]
		q := newQueue(0, limits...)
		var ws []*waiter
		for now := time.Duration(0); now < 40*second; now += time.Duration(random.IntN(3)) * second / 2 {
			ws = append(ws, changeQueue(t, q, random, now, ws)...)
			requireSound(t, q)
		}
	}
}

// changeQueue makes a random call and returns the new waiters.
func changeQueue(t *testing.T, q *queue, random *rand.Rand, now time.Duration, ws []*waiter) []*waiter {
	cost := price{all: float64(random.IntN(16))}
	if len(q.limits) > 1 && random.IntN(2) == 0 {
		costs := []float64{1, 2, 3}[:len(q.limits)]
		cost = price{each: &costs}
	}
	switch random.IntN(12) {
	case 0, 1, 2, 3:
		if _, ok := q.tryAcquire(now, cost); ok {
			return nil
		}
		w := newWaiter(random.IntN(2) == 0)
		q.push(now, cost, w)
		return []*waiter{w}
	case 4, 5, 6:
		for _, w := range ws {
			if w.nudges != nil && random.IntN(3) == 0 {
				wakeAndSleep(q, now, w)
			}
		}
	case 7:
		if len(ws) > 0 {
			q.abandon(now, ws[random.IntN(len(ws))], errGaveUp)
		}
	case 8:
		require.NoError(t, q.charge(now, cost))
	case 9:
		require.NoError(t, q.refund(now, cost))
	case 10:
		q.pause(now, time.Duration(random.IntN(4))*second+1)
	default:
		limits := append(Limits(nil), q.limits...)
		limits[0].RefillPerSec = float64(1 + random.IntN(4))
		q.setLimits(now, limits)
	}
	return nil
}

// wakeAndSleep does what the goroutine of a waiter does when it wakes.
func wakeAndSleep(q *queue, now time.Duration, w *waiter) {
	select {
	case <-w.nudges:
	default:
	}
	q.wakeUp(now, w)
	q.sleep(w)
}

// forgedDue marks turns that are planned. A turn that is planned again loses the mark.
const forgedDue = timeline.End

// replanned counts how many turns between the first and that of end a call plans again.
// The call may read the turns of the first and of end.
func replanned(q *queue, end *waiter, call func()) (turns int) {
	real := map[*waiter]time.Duration{}
	for w := q.head.next; w != nil && w != end; w = w.next {
		q.plan(w)
		real[w], w.due = w.due, forgedDue
	}
	call()
	for w, due := range real {
		if w.due != forgedDue {
			turns++
		}
		w.due = due
	}
	return turns
}

func TestLongQueueIsNotPlannedAnewForNewcomers(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		q := newQueue(0, Limit{10, 0.001})
		for range n {
			q.reserve(t, 0, 1)
		}
		last := q.addSleeper(t, 0, 1)
		var newcomer *waiter
		for _, row := range []struct {
			name string
			call func()
		}{
			{"a newcomer", func() { newcomer = q.reserve(t, 1, 5) }},
			{"it gives up", func() { q.abandon(2, newcomer, errGaveUp) }},
			{"a sleeper", func() { newcomer = q.addSleeper(t, 3, 5) }},
			{"it gives up", func() { q.abandon(4, newcomer, errGaveUp) }},
			{"a refusal", func() { q.take(new(Decision), 5, price{all: 1}) }},
			{"waiting", func() { require.Equal(t, n+1, q.waiting(6)) }},
			{"tokens", func() { require.InDelta(t, -n-1, q.tokens(7), 1) }},
			{"the last one wakes", func() { wakeAndSleep(q, 8, last) }},
		} {
			require.Zero(t, replanned(q, q.tail, row.call), "%s behind %d", row.name, n)
		}
		ahead := nth(q, n/2-1)
		require.Zero(t, replanned(q, ahead, func() { q.abandon(9, ahead.next, errGaveUp) }), "only turns behind it change")
		requireSound(t, q)
	}
}

func nth(q *queue, n int) *waiter {
	w := q.head
	for range n {
		w = w.next
	}
	return w
}

// TestNoWalkAlongALongQueue cuts the queue in the middle, where a walk along it would end.
func TestNoWalkAlongALongQueue(t *testing.T) {
	q := newQueue(0, Limit{10, 0.001})
	for range 1000 {
		q.reserve(t, 0, 1)
	}
	q.addSleeper(t, 0, 1)
	left, right := nth(q, 500), nth(q, 501)
	left.next, right.prev = nil, nil
	require.Equal(t, 1001, q.waiting(1))
	w := q.reserve(t, 1, 1)
	require.Equal(t, 1002*1000*second, w.due)
	require.True(t, q.abandon(1, w, errGaveUp))
	require.Equal(t, 1001, q.len)
	require.Equal(t, time.Duration(1000*second), nthDue(q, 0))
	q.advance(1000 * second) // serves the first, and looks whether the sleeper's timer is right
	require.Equal(t, 1000, q.waiting(1000*second))
}

func nthDue(q *queue, n int) time.Duration { return nth(q, n).due }

func TestOnlyTimersAheadCountAsWaiting(t *testing.T) {
	q := newQueue(0, Limit{10, 1})
	a, b, r := q.addSleeper(t, 0, 1), q.addSleeper(t, 0, 1), q.reserve(t, 0, 1)
	require.Equal(t, 3, q.waiting(0))
	require.NoError(t, q.charge(0, price{all: 10})) // turns at 11, 12 and 13 s, timers at 1 and 2 s
	require.Equal(t, 3, q.waiting(second-1))
	require.Equal(t, 2, q.waiting(second), "the first timer rings in vain")
	require.Equal(t, 1, q.waiting(2*second))
	wakeAndSleep(q, 2*second, b)
	require.Equal(t, 2, q.waiting(2*second))
	wakeAndSleep(q, 2*second, a)
	require.Equal(t, 3, q.waiting(2*second))
	require.NoError(t, q.refund(2*second, price{all: 9})) // turns at 2, 3 and 4 s
	require.True(t, a.left)
	require.Len(t, b.nudges, 1, "its timer would ring at 12 s")
	require.Equal(t, 1, q.waiting(2*second), "it is about to set another timer")
	require.Equal(t, 2*second, q.delay(2*second, r))
}

func TestNudgeOfAnEarlierPlaceIsDropped(t *testing.T) {
	q := newQueue(0, Limit{10, 1})
	w := q.addSleeper(t, 0, 1)
	q.advance(second)
	require.True(t, w.left)
	require.Len(t, w.nudges, 1, "it may not have woken yet")
	q.push(second, price{all: 2}, w)
	require.Empty(t, w.nudges)
	require.Equal(t, 3*second, w.alarm)
	q.wakeUp(3*second, w)
	require.True(t, w.left)
	require.Empty(t, w.nudges, "it is awake")
}
