package redisbucket_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/redisbucket"
)

// askTogether lets 64 callers ask at the same time, and returns how many of their calls failed.
func (f *frail) askTogether() int {
	var group sync.WaitGroup
	var failed atomic.Int64
	for range 64 {
		group.Go(func() {
			if _, err := f.buckets.Take(background, "key", 0); err != nil {
				f.requireUnavailable(err)
				failed.Add(1)
			}
		})
	}
	group.Wait()
	return int(failed.Load())
}

// A connection gets a single request until one was answered, and again after a second.
func TestABatchFollowsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := func(int) bool { return true }
		require.Equal(t, []int{1, 16, 16, 7}, redisbucket.Drain(0, always, 40))
		require.Equal(t, []int{1, 1, 1, 16, 1, 4}, redisbucket.Drain(0, func(sends int) bool { return sends >= 3 && sends != 4 }, 24))
		require.Equal(t, []int{1, 9, 10}, redisbucket.Drain(sec-1, always, 10, 10))
		require.Equal(t, []int{1, 9, 1, 9}, redisbucket.Drain(sec, always, 10, 10))
	})
}

// heldSends are the sends of a batch. Each ends when the test answers it.
type heldSends struct {
	*redisbucket.Batch
	t    *testing.T
	sent chan heldSend
}

type heldSend struct {
	n        int // requests
	answered chan bool
}

// withHeldSends runs a test with two sends of one request each: the first began alone, and
// the second beside it. 20 more requests wait.
func withHeldSends(t *testing.T, run func(h *heldSends, alone, second heldSend)) {
	synctest.Test(t, func(t *testing.T) {
		h := &heldSends{t: t, sent: make(chan heldSend)}
		h.Batch = redisbucket.NewBatch(func(n int) bool {
			send := heldSend{n, make(chan bool)}
			h.sent <- send
			return <-send.answered
		})
		h.Add(1)
		alone := h.requireSent(1)
		h.Add(1)
		second := h.requireSent(1)
		h.Add(20)
		run(h, alone, second)
	})
}

// requireSent checks how many requests are sent together next.
func (h *heldSends) requireSent(n int) heldSend {
	h.t.Helper()
	next := <-h.sent
	require.Equal(h.t, n, next.n)
	return next
}

// end answers a send, and checks how many requests its sender sends together next.
func (h *heldSends) end(s heldSend, answered bool, next int) heldSend {
	h.t.Helper()
	s.answered <- answered
	return h.requireSent(next)
}

// An answer proves the connection only for sends that begin with as many others under way.
// Sends with another number of others use another connection.
func TestAnAnswerProvesOneConnection(t *testing.T) {
	withHeldSends(t, func(h *heldSends, alone, second heldSend) {
		first := h.end(alone, true, 1) // it begins beside the second, and no such send was answered yet
		second = h.end(second, true, 16)
		first = h.end(first, true, 3)
		first.answered <- true
		second.answered <- true
	})
}

// A failure shows that any connection may be dead.
func TestAFailureProvesNoConnection(t *testing.T) {
	withHeldSends(t, func(h *heldSends, alone, second heldSend) {
		second = h.end(second, true, 16)
		first := h.end(alone, false, 1)
		first = h.end(first, false, 1)
		second = h.end(second, true, 2)
		first.answered <- true
		second.answered <- true
	})
}

// scripted is a client whose RunAll returns the next of several rounds of answers.
type scripted struct {
	redisbucket.Client
	rounds [][]redisbucket.Answer
}

func (s *scripted) RunAll(context.Context, []redisbucket.Run) []redisbucket.Answer {
	answers := s.rounds[0]
	s.rounds = s.rounds[1:]
	return answers
}

func (*scripted) Server(string) string { return "scripted" }

func (*scripted) Kind(err error) redisbucket.ErrorKind {
	if errors.Is(err, io.EOF) {
		return redisbucket.KindBroken
	}
	return redisbucket.KindReply
}

var (
	given    = redisbucket.Answer{Text: "1 0 0 "}
	broken   = redisbucket.Answer{Err: io.EOF}
	noScript = redisbucket.Answer{Err: errors.New("NOSCRIPT No matching script")}
	loading  = redisbucket.Answer{Err: errors.New("LOADING Redis is loading the dataset in memory")}
)

// Requests that were sent together prove a connection if the server answered all of them, in
// both round trips if there are two.
func TestOnlyAnswersToAllProveAConnection(t *testing.T) {
	type rounds = [][]redisbucket.Answer
	for name, c := range map[string]struct {
		rounds rounds
		failed []bool
		want   bool
	}{
		"all":                            {rounds{{given, given}}, []bool{false, false}, true},
		"an error is an answer":          {rounds{{loading, given}}, []bool{true, false}, true},
		"the last one broke":             {rounds{{given, broken}}, []bool{false, true}, false},
		"all after the script was sent":  {rounds{{noScript, given}, {given}}, []bool{false, false}, true},
		"an error to the script":         {rounds{{noScript, given}, {loading}}, []bool{true, false}, true},
		"it broke, but not the script":   {rounds{{noScript, broken}, {given}}, []bool{false, true}, false},
		"the script broke":               {rounds{{noScript, given}, {broken}}, []bool{true, false}, false},
		"one of several scripts broke":   {rounds{{noScript, noScript}, {given, broken}}, []bool{false, true}, false},
		"none, as answers were missing":  {rounds{{given}}, []bool{true, true}, false},
		"none, as there were none":       {rounds{nil}, []bool{true, true}, false},
		"none, as there were too many":   {rounds{{given, given, given}}, []bool{true, true}, false},
		"too few after the script":       {rounds{{noScript, given}, nil}, []bool{true, false}, false},
		"too many after the script":      {rounds{{noScript, given}, {given, given}}, []bool{true, false}, false},
		"missing, and no script is sent": {rounds{{noScript}}, []bool{true, true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := &scripted{rounds: c.rounds}
			errs, answered := redisbucket.SendTogether(client, 2)
			require.Equal(t, c.want, answered)
			require.Empty(t, client.rounds)
			for i, err := range errs {
				require.Equal(t, c.failed[i], err != nil)
				if err != nil {
					require.ErrorIs(t, err, redisbucket.ErrUnavailable)
				}
			}
		})
	}
}

// miscounting is a client whose RunAll returns one answer too many, or too few.
type miscounting struct {
	scripted
	by int
}

func (m *miscounting) RunAll(_ context.Context, runs []redisbucket.Run) []redisbucket.Answer {
	time.Sleep(ms) // so that no caller waits for the answer itself
	return make([]redisbucket.Answer, len(runs)+m.by)
}

// Earlier versions panicked in a goroutine of their own if answers were missing.
func TestARunAllThatMiscountsFailsEveryCaller(t *testing.T) {
	for _, by := range []int{-1, 1} {
		synctest.Test(t, func(t *testing.T) {
			var reported atomic.Int64
			b, err := redisbucket.NewWithClient(&miscounting{by: by}, limit(10, 1),
				redisbucket.WithErrorHandler(func(error) { reported.Add(1) }))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			for range 2 { // no break begins after the first time: the server is not to blame
				var group sync.WaitGroup
				for range 20 {
					group.Go(func() {
						_, err := b.Take(ctx, "key", 1)
						require.ErrorIs(t, err, redisbucket.ErrUnavailable)
						require.ErrorContains(t, err, "one answer for each run")
						require.NotContains(t, err.Error(), "no request is sent")
					})
				}
				group.Wait()
			}
			require.Equal(t, int64(40), reported.Load())
		})
	}
}

// Requests that are sent together do not fail together on connections that died while idle.
func TestIdleConnectionsThatDieFailOneCallEach(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Delay(ms)
		require.Zero(t, f.askTogether())
		for range 3 {
			time.Sleep(sec)
			before := f.Connections()
			f.Break()
			failed := f.askTogether()
			require.Positive(t, failed)
			require.LessOrEqual(t, failed, before, "one for each connection so far")
			require.LessOrEqual(t, f.Connections()-before, failed, "each is replaced")
			require.Zero(t, f.askTogether())
		}
	})
}

// A connection that breaks with requests on their way fails those, and no others.
func TestAConnectionThatBreaksFailsTheRequestsOnTheirWay(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Delay(ms)
		require.Zero(t, f.askTogether())
		time.AfterFunc(2*ms+500*us, f.Break) // the first answers have come, and batches are on their way
		failed := f.askTogether()
		require.Greater(t, failed, 2)
		require.LessOrEqual(t, failed, 2*16, "two batches")
		idle := f.askTogether()
		require.LessOrEqual(t, idle, 8, "one for each connection that was idle")
		require.Zero(t, f.askTogether())
		require.Len(t, f.failures, failed+idle)
	}, redisbucket.WithBreak(time.Minute))
}
