package waittest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func cancel(t *testing.T, new New) {
	for gone := range 6 {
		play(t, fmt.Sprintf("those behind %d move up", gone), new, limits(10, 1), func(s *scene) {
			s.drain(10)
			costs := []float64{3, 1, 5, 2, 4, 1}
			cancels := make([]func(), len(costs))
			for i, cost := range costs {
				cancels[i] = s.queue(fmt.Sprint(i), cost)
			}
			s.to(500 * ms)
			cancels[gone]()
			s.requireFailed(fmt.Sprint(gone), 500*ms, context.Canceled)
			s.to(20 * sec)
			at := time.Duration(0)
			for i, cost := range costs {
				if i != gone {
					at += time.Duration(cost * float64(sec))
					s.requireLeft(fmt.Sprint(i), at)
				}
			}
		})
	}
	play(t, "the first gives up, and all others that can be served leave at once", new, limits(10, 1), allAtOnce)
	play(t, "nil exactly if the tokens were taken", new, limits(1, 1), nilExactlyIfTaken)
	t.Run("at the instant it is due", func(t *testing.T) {
		playOn(t, nil, new, limits(1, 1), func(s *scene) {
			s.drain(1)
			spent := 1.0
			for i := range 50 {
				ctx, stop := context.WithTimeout(background, sec)
				err := s.Wait(ctx, 1)
				require.NoError(s.t, err, "due exactly at the deadline is in time: %d", i)
				spent++
				stop()
			}
			s.requireSpent(spent, 1, 1)
		})
	})
}

func allAtOnce(s *scene) {
	s.drain(10)
	cancel := s.queue("ten", 10)
	s.queue("five", 5)
	s.queue("four", 4)
	s.to(9500 * ms)
	cancel()
	s.requireLeft("five", 9500*ms)
	s.requireLeft("four", 9500*ms)
	require.Equal(s.t, 0.5, s.Tokens())
}

func nilExactlyIfTaken(s *scene) {
	s.drain(1)
	taken := 0
	for i := range 50 {
		ctx, stop := context.WithCancel(background)
		s.wait(ctx, fmt.Sprint(i), 1)
		go stop() // at the instant when it is due
		s.to(s.now() + sec)
		if d, _ := s.departure(fmt.Sprint(i)); d.err == nil {
			taken++
		}
		stop()
	}
	s.requireSpent(1+float64(taken), 1, 1)
}

// requireSpent checks the level of a bucket after a number of tokens has been spent. The
// bucket must not have been full since its start.
func (s *scene) requireSpent(spent, capacity, refill float64) {
	s.t.Helper()
	want := min(capacity, capacity+s.now().Seconds()*refill-spent)
	require.InDelta(s.t, want, s.Tokens(), 1e-9)
}
