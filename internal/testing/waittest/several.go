package waittest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

func several(t *testing.T, new New) {
	two := []tokenbucket.Limit{{Capacity: 3, RefillPerSec: 1}, {Capacity: 10, RefillPerSec: 0.25}}
	play(t, "the slower limit takes over", new, two, func(s *scene) {
		s.drain(3) // the first has 0 tokens now, the second has 7
		for i := range 12 {
			s.queue(fmt.Sprint(i), 1)
		}
		require.Equal(s.t, -12.0, s.Tokens())
		s.to(60 * sec)
		for i := range 9 { // 7 there and 2.25 refilled by 9 s
			s.requireLeft(fmt.Sprint(i), time.Duration(i+1)*sec)
		}
		s.requireLeft("9", 12*sec)
		s.requireLeft("10", 16*sec)
		s.requireLeft("11", 20*sec)
	})
	play(t, "one limit is full while callers wait for the other", new, []tokenbucket.Limit{{Capacity: 10, RefillPerSec: 1}, {Capacity: 4, RefillPerSec: 0.5}}, func(s *scene) {
		require.NoError(s.t, s.Charge(4)) // 6 and 0
		require.NoError(s.t, s.Charge(6)) // 0 and -6
		s.queue("a", 4)                   // 10 of the second at 20 s; the first is full at 10 s
		s.queue("b", 4)
		s.queue("c", 4)
		s.requireRefused(4, 44*sec)
		s.to(60 * sec)
		s.requireLeft("a", 20*sec)
		s.requireLeft("b", 28*sec)
		s.requireLeft("c", 36*sec)
	})
	play(t, "a refusal by one takes nothing from the other", new, two, func(s *scene) {
		s.drain(3)
		s.requireRefused(3, 3*sec)
		s.to(3 * sec)
		s.drain(3)
		require.Equal(s.t, 0.0, s.Tokens())
		s.to(6 * sec)
		s.drain(3)
		s.requireRefused(3, 3*sec) // the second has 2.5 left and would take 2 s
		s.to(9 * sec)
		s.drain(3)
		s.requireRefused(3, 11*sec)
	})
}
