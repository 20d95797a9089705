package waittest

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

func change(t *testing.T, new New) {
	play(t, "Refund fills up first, then serves", new, limits(10, 1), refundFillsFirst)
	play(t, "Refund never passes the capacity", new, limits(10, 1), refundUpToCapacity)
	play(t, "Charge moves every later turn", new, limits(10, 1), chargeMovesTurns)
	play(t, "later, then sooner again", new, limits(10, 1), laterThenSooner)
}

func refundFillsFirst(s *scene) {
	s.drain(10)
	for i := range 20 {
		s.queue(fmt.Sprint(i), 1)
	}
	s.to(500 * ms)
	require.NoError(s.t, s.Refund(100))
	synctest.Wait()
	for i := range 10 {
		s.requireLeft(fmt.Sprint(i), 500*ms)
	}
	s.requireWaits("10")
	s.to(1500 * ms)
	s.requireLeft("10", 1500*ms)
	s.requireWaits("11")
}

func refundUpToCapacity(s *scene) {
	require.NoError(s.t, s.Refund(1e300))
	require.NoError(s.t, s.Refund(1e300))
	require.Equal(s.t, 10.0, s.Tokens())
	s.drain(10)
	s.requireRefused(1, sec)
	require.NoError(s.t, s.Refund(0.25))
	s.requireRefused(1, 750*ms)
	require.ErrorIs(s.t, s.Refund(-1), tokenbucket.ErrInvalidCost)
	require.ErrorIs(s.t, s.Refund(math.NaN()), tokenbucket.ErrInvalidCost)
	require.ErrorIs(s.t, s.Refund(math.Inf(1)), tokenbucket.ErrInvalidCost)
	require.Equal(s.t, 0.25, s.Tokens())
}

func chargeMovesTurns(s *scene) {
	s.drain(10)
	s.queue("one", 1)
	s.queue("two", 2)
	s.to(500 * ms)
	require.NoError(s.t, s.Charge(2))
	require.Equal(s.t, -4.5, s.Tokens())
	s.to(3*sec - 1)
	s.requireWaits("one")
	s.to(3 * sec)
	s.requireLeft("one", 3*sec)
	s.to(5 * sec)
	s.requireLeft("two", 5*sec)
	require.NoError(s.t, s.Charge(1000))
	require.Equal(s.t, -1000.0, s.Tokens())
	s.requireRefused(1, 1001*sec)
	require.ErrorIs(s.t, s.Charge(-1), tokenbucket.ErrInvalidCost)
	require.ErrorIs(s.t, s.Charge(math.Inf(1)), tokenbucket.ErrInvalidCost)
}

func laterThenSooner(s *scene) {
	s.drain(10)
	s.queue("one", 1)
	s.queue("two", 1)
	require.NoError(s.t, s.Charge(5))
	s.to(2 * sec) // both have woken too early
	require.NoError(s.t, s.Refund(4.5))
	synctest.Wait()
	s.requireWaits("two")
	s.requireLeft("one", 2*sec)
	s.to(2500 * ms)
	s.requireLeft("two", 2500*ms)
}
