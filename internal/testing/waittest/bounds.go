package waittest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

var (
	quick = tokenbucket.Limit{Capacity: 10, RefillPerSec: 10}
	slow  = tokenbucket.Limit{Capacity: 30, RefillPerSec: 1}
)

// bounds tests which of several limits binds the waiters.
func bounds(t *testing.T, new New) {
	for i, order := range [][]tokenbucket.Limit{{quick, slow}, {slow, quick}} {
		play(t, fmt.Sprintf("first the quick one binds, then the slow one: %d", i), new, order, func(s *scene) {
			s.drain(10) // quick has 0 tokens now, slow has 20
			for i := range 6 {
				s.queue(fmt.Sprint(i), 5)
			}
			s.requireRefused(5, 15*sec)
			s.to(20 * sec)
			for i, at := range []time.Duration{500 * ms, sec, 1500 * ms, 2 * sec, 5 * sec, 10 * sec} {
				s.requireLeft(fmt.Sprint(i), at)
			}
			require.NoError(s.t, s.Refund(30)) // both are full, the quick one for long
			s.drain(10)
			s.requireRefused(5, 500*ms)
		})
	}
	play(t, "the slow one binds at first, then the quick one", new, []tokenbucket.Limit{quick, slow}, slowBindsFirst)
	play(t, "nothing is left for a newcomer behind the queue of either", new, []tokenbucket.Limit{{Capacity: 100, RefillPerSec: 0.001}, quick}, nothingLeftBehindEither)
	play(t, "the figures behind a queue are those of the limit that binds", new, []tokenbucket.Limit{quick, slow}, figuresBehindQueue)
	play(t, "a pause closes all of them", new, []tokenbucket.Limit{quick, slow}, pauseClosesAll)
	play(t, "0 is admitted though every limit is in debt", new, []tokenbucket.Limit{quick, slow}, zeroInDebt)
}

func slowBindsFirst(s *scene) {
	s.to(sec)
	for range 3 { // at 4 s, quick has 10 tokens and slow has 3
		s.drain(10)
		s.to(s.now() + sec)
	}
	require.NoError(s.t, s.Charge(s.Tokens())) // quick has 7 now, and slow has 0
	s.queue("two", 2)
	s.to(5 * sec)
	require.NoError(s.t, s.Refund(29)) // both are full now: quick has 10, and slow has 30
	synctest.Wait()
	s.requireLeft("two", 5*sec)
	s.drain(8)
	s.requireRefused(10, sec)
}

func nothingLeftBehindEither(s *scene) {
	s.drain(10) // 90 and 0
	s.queue("five", 5)
	for _, cost := range []float64{0, 1, 6} {
		d := s.Take(cost)
		require.Equal(s.t, cost == 0, d.OK)
		require.Zero(s.t, d.Remaining(), "cost %v: %+v", cost, d)
	}
	require.Equal(s.t, -5.0, s.Tokens())
}

func figuresBehindQueue(s *scene) {
	s.drain(10)
	require.NoError(s.t, s.Charge(10))
	require.NoError(s.t, s.Refund(10)) // 0 and 20
	s.queue("ten", 10)
	d := s.Take(5)
	require.Equal(s.t, quick, d.Limit)
	require.Equal(s.t, 1500*ms, d.Wait)
	require.Equal(s.t, -10.0, d.Tokens)
	s.queue("also ten", 10)
	d = s.Take(5) // the slow one has 2 at 2 s
	require.Equal(s.t, slow, d.Limit)
	require.Equal(s.t, 5*sec, d.Wait)
	require.Equal(s.t, 0.0, d.Tokens)
	require.Equal(s.t, 30*sec, d.Reset())
	require.Zero(s.t, d.Remaining())
}

func pauseClosesAll(s *scene) {
	require.NoError(s.t, s.Charge(12)) // -2 and 18
	s.Pause(sec)                       // -2 and 0
	s.queue("one", 1)
	s.requireRefused(1, 3*sec)
	s.to(3 * sec)
	s.requireLeft("one", 2*sec)
	require.Equal(s.t, 1.0, s.Tokens())
}

func zeroInDebt(s *scene) {
	require.NoError(s.t, s.Charge(50))
	d := s.Take(0)
	require.True(s.t, d.OK)
	require.Equal(s.t, quick, d.Limit, "no limit makes 0 wait: the first")
}
