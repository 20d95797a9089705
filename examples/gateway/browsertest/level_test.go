package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// reading is an answer as the page gets it, with instants in seconds. At an instant
// before the next answer, the test reads what the page knows.
type reading struct {
	Header                map[string]string
	Cost                  float64
	Sent, Received, Later float64
}

// known is what the page knows after a reading: the bounds of the level, and for each
// cost the instant from which a refused request would be admitted.
type known struct {
	Received, Later [2]float64
	Dues            []due
}

type due struct{ Cost, At float64 }

// replay passes the answers of runs to the page's own script.
const replay = `(async (runs) => {
	const { Due, Level, readFields } = await import("/page/level.js");
	return runs.map((run) => {
		let level;
		const dues = new Map();
		return run.map(({ Header, Cost, Sent, Received, Later }) => {
			const fields = readFields(new Headers(Header));
			level = level ? level.learn(fields, Cost, Sent, Received) : new Level(fields, Cost, Sent, Received);
			if (fields.retryAfter !== undefined) {
				const due = new Due(fields.retryAfter, Sent, Received);
				dues.set(Cost, dues.get(Cost)?.refine(due) ?? due);
			} else {
				dues.delete(Cost);
				dues.forEach((due, price) => due.spent(Cost, price, level));
			}
			dues.forEach((due, price) => due.agree(price, level));
			return { Received: level.range(Received), Later: level.range(Later),
				Dues: [...dues].map(([Cost, { at }]) => ({ Cost, At: at })) };
		});
	});
})(%s)`

// bucketRun is a bucket behind the middleware, and its states after each answer.
type bucketRun struct {
	limit   tokenbucket.Limit
	clock   *virtualClock
	handler http.Handler
	cost    float64 // of the next request

	readings []reading
	states   []tokenbucket.State // after each
}

func newBucketRun(t *testing.T, limit tokenbucket.Limit) *bucketRun {
	r := &bucketRun{limit: limit, clock: &virtualClock{}}
	buckets, err := keyed.New[string](limit, keyed.WithClock(r.clock))
	require.NoError(t, err)
	limited, err := httplimit.New(httplimit.PerKey(buckets),
		httplimit.WithCost(func(*http.Request) float64 { return r.cost }))
	require.NoError(t, err)
	r.handler = limited(http.NotFoundHandler())
	return r
}

// virtualClock is a clock that one goroutine sets and reads.
type virtualClock struct{ now time.Duration }

func (c *virtualClock) Now() time.Time                       { return time.Time{}.Add(c.now) }
func (c *virtualClock) Since(t time.Time) time.Duration      { return c.Now().Sub(t) }
func (c *virtualClock) After(time.Duration) <-chan time.Time { return nil } // no call waits

// ask sends a request that takes a time to the gateway and a time back, and then lets
// more time pass.
func (r *bucketRun) ask(cost float64, there, back, after time.Duration) {
	heard := reading{Header: map[string]string{}, Cost: cost, Sent: r.clock.now.Seconds()}
	r.clock.now += there
	last := r.limit.Full(0)
	if len(r.states) > 0 {
		last = r.states[len(r.states)-1]
	}
	state, _ := r.limit.Take(last, r.clock.now, cost)
	r.cost = cost
	answer := httptest.NewRecorder()
	r.handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	for name := range answer.Header() {
		heard.Header[name] = answer.Header().Get(name)
	}
	r.clock.now += back
	heard.Received = r.clock.now.Seconds()
	r.clock.now += after
	heard.Later = r.clock.now.Seconds()
	r.readings, r.states = append(r.readings, heard), append(r.states, state)
}

// requireSound compares what the page knows after each answer with the bucket.
func (r *bucketRun) requireSound(t *testing.T, all []known) {
	t.Helper()
	require.Len(t, all, len(r.readings))
	for i, k := range all {
		heard, state := r.readings[i], r.states[i]
		message := []any{"%+v, answer %d: %+v: %+v", r.limit, i, heard, k}
		for at, levels := range map[float64][2]float64{heard.Received: k.Received, heard.Later: k.Later} {
			level := r.limit.Tokens(state, nanoseconds(at))
			require.LessOrEqual(t, levels[0], level+1e-6, message...)
			require.GreaterOrEqual(t, levels[1], level-1e-6, message...)
		}
		for _, due := range k.Dues {
			_, d := r.limit.Take(state, nanoseconds(due.At)+time.Microsecond, due.Cost)
			require.True(t, d.OK, message...)
		}
	}
}

func nanoseconds(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }

// learn returns what the page knows after each answer of runs.
func learn(t *testing.T, page context.Context, runs ...*bucketRun) [][]known {
	t.Helper()
	var all [][]reading
	for _, r := range runs {
		all = append(all, r.readings)
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	return evaluate[[][]known](t, page, fmt.Sprintf(replay, text))
}

func TestWhatThePageKnows(t *testing.T) {
	s := newStage(t)
	s.do(chromedp.Navigate(s.url))
	for name, test := range map[string]func(*testing.T, context.Context){
		"the level is where it is drawn":                   testLevelIsWhereItIsDrawn,
		"a range, from one answer":                         testOneAnswerTellsARange,
		"exactly, from a full bucket on":                   testLevelIsKnownExactlyFromAFullBucketOn,
		"spending from a full bucket puts off nothing":     testSpendingFromAFullBucketPutsOffNothing,
		"refusals tell the instant better and better":      testRefusalsTellTheInstantBetterAndBetter,
		"that somebody else at the address spends as well": testSomebodyElseAtTheAddressIsNoticed,
		"that the bucket has filled unseen":                testBucketThatFilledUnseenIsNoticed,
	} {
		t.Run(name, func(t *testing.T) { test(t, s.ctx) })
	}
}

func testLevelIsWhereItIsDrawn(t *testing.T, page context.Context) {
	random := rand.New(rand.NewPCG(1, 2))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	var runs []*bucketRun
	for _, limit := range []tokenbucket.Limit{
		{Capacity: 10, RefillPerSec: 0.5}, {Capacity: 3, RefillPerSec: 0.5}, {Capacity: 10, RefillPerSec: 3},
		{Capacity: 7, RefillPerSec: 0.3}, {Capacity: 100, RefillPerSec: 30}, {Capacity: 1, RefillPerSec: 10}, {Capacity: 5, RefillPerSec: 1. / 3},
	} {
		for range 5 {
			r := newBucketRun(t, limit)
			prices := []float64{0, 1, limit.Capacity / 2, limit.Capacity / 3, limit.Capacity}
			for range 60 {
				r.ask(prices[random.IntN(len(prices))], upTo(80*time.Millisecond), upTo(80*time.Millisecond), upTo(3*time.Second))
			}
			runs = append(runs, r)
		}
	}
	for i, all := range learn(t, page, runs...) {
		runs[i].requireSound(t, all)
	}
}

func testLevelIsKnownExactlyFromAFullBucketOn(t *testing.T, page context.Context) {
	r := newBucketRun(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	r.ask(0, 0, 0, time.Second)
	r.ask(5, 0, 0, 0)
	r.ask(5, 0, 0, 0)
	r.ask(5, 0, 0, 4*time.Second) // refused: wait 10 s
	r.ask(1, 0, 0, 0)             // now the wait ends 2 s later
	all := learn(t, page, r)[0]
	r.requireSound(t, all)
	for i, level := range []float64{10, 5, 0, 0} {
		require.Equal(t, [2]float64{level, level}, all[i].Received)
	}
	require.Equal(t, []due{{5, 11}}, all[3].Dues)
	require.Equal(t, []due{{5, 13}}, all[4].Dues)
}

func testOneAnswerTellsARange(t *testing.T, page context.Context) {
	r := newBucketRun(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	r.ask(5, 0, 0, 1800*time.Millisecond)
	r.ask(0, 0, 0, 0) // 5.9 tokens, full in 8.2 s: reported as 5, and as 9
	r.readings, r.states = r.readings[1:], r.states[1:]
	known := learn(t, page, r)[0][0].Received
	require.InDelta(t, 10-9*10./19, known[0], 1e-9, "an empty bucket is full in more than 19 s")
	require.InDelta(t, 10-8*10./20, known[1], 1e-9, "and in 20 s at most")
}

func testSpendingFromAFullBucketPutsOffNothing(t *testing.T, page context.Context) {
	r := newBucketRun(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	r.ask(10, 0, 0, 0)
	r.ask(5, 0, 0, 30*time.Second) // refused: wait 10 s
	r.ask(1, 0, 0, 0)
	all := learn(t, page, r)[0]
	r.requireSound(t, all)
	require.Equal(t, []due{{5, 30}}, all[2].Dues)
}

func testRefusalsTellTheInstantBetterAndBetter(t *testing.T, page context.Context) {
	r := newBucketRun(t, tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.4}) // full in 2.5 s
	r.ask(1, 0, 0, 100*time.Millisecond)
	r.ask(1, 0, 0, 300*time.Millisecond) // 2.4 s are reported as 3, but an empty bucket is full in 3 s
	r.ask(1, 0, 0, 200*time.Millisecond) // 2.1 s are reported as 3: no news
	r.ask(1, 0, 0, 0)                    // 1.9 s are reported as 2, so at 2.6 s
	all := learn(t, page, r)[0]
	r.requireSound(t, all)
	for i, want := range []float64{3, 3, 2.6} {
		require.InDelta(t, want, all[i+1].Dues[0].At, 1e-9)
	}
}

func testSomebodyElseAtTheAddressIsNoticed(t *testing.T, page context.Context) {
	for _, next := range []float64{6, 0} { // the same request refused again; a look
		r := newBucketRun(t, tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
		r.ask(0, 0, 0, 0)
		r.ask(6, 0, 0, 0)
		r.ask(6, 0, 0, 0) // refused: wait 4 s
		r.ask(4, 0, 0, 0) // sent by another client
		r.ask(next, 0, 0, 0)
		r.readings, r.states = append(r.readings[:3], r.readings[4]), append(r.states[:3], r.states[4])
		all := learn(t, page, r)[0]
		r.requireSound(t, all)
		require.Equal(t, []due{{6, 4}}, all[2].Dues)
		require.Equal(t, []due{{6, 12}}, all[3].Dues)
	}
}

// The gateway has been restarted, or the machine of the browser has slept.
func testBucketThatFilledUnseenIsNoticed(t *testing.T, page context.Context) {
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}
	before, after := newBucketRun(t, limit), newBucketRun(t, limit)
	before.ask(10, 0, 0, 0)
	before.ask(5, 0, 0, time.Second) // refused: wait 10 s
	after.clock.now = before.clock.now
	after.ask(0, 0, 0, 0)
	after.readings = append(before.readings, after.readings...)
	all := learn(t, page, after)[0]
	require.Equal(t, []due{{5, 10}}, all[1].Dues)
	require.Equal(t, []due{{5, 1}}, all[2].Dues)
}
