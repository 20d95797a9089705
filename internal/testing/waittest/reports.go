package waittest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func reports(t *testing.T, new New) {
	play(t, "golang/go#56924", new, limits(1, 1), reportGo56924)
	play(t, "golang/go#69419", new, limits(10, 10), reportGo69419)
	play(t, "gkit#134", new, limits(1, 1), reportGkit134)
	play(t, "rollout-operator#441", new, limits(10, 10), reportRollout441)
	play(t, "sidekiq#5315", new, limits(5, 1), reportSidekiq5315)
	play(t, "gocryptotrader#2371", new, limits(1, 60), reportGocryptotrader2371)
	play(t, "kubernetes#104623", new, limits(1, 1), reportKubernetes104623)
	t.Run("golang/go#33868", func(t *testing.T) {
		before := runtime.NumGoroutine()
		playOn(t, nil, new, limits(1, 1), func(s *scene) {
			s.drain(1)
			ctx, stop := context.WithCancel(background)
			var group sync.WaitGroup
			for range 10_000 {
				group.Go(func() { _ = s.Wait(ctx, 1) })
			}
			synctest.Wait()
			require.Equal(s.t, 10_000, s.Waiting())
			stop()
			group.Wait()
			require.Zero(s.t, s.Waiting())
		})
		requireGoroutines(t, before)
	})
	play(t, "aiolimiter#73", new, limits(1, 10), reportAiolimiter73)
}

func reportGo56924(s *scene) {
	s.drain(1)
	cancel := s.queue("A", 1)
	s.queue("B", 1)
	s.to(500 * ms)
	cancel()
	s.to(2 * sec)
	s.requireLeft("B", sec)
	require.Equal(s.t, 1.0, s.Tokens())
}

func reportGo69419(s *scene) {
	s.drain(10)
	cancel := s.queue("5", 5)
	s.queue("2", 2)
	s.queue("1", 1)
	s.to(100 * ms)
	cancel()
	s.to(sec)
	require.Equal(s.t, 7.0, s.Tokens())
}

func reportGkit134(s *scene) {
	ctx, stop := context.WithCancel(background)
	stop()
	require.ErrorIs(s.t, s.Wait(ctx, 1), context.Canceled)
	require.Equal(s.t, 1.0, s.Tokens())
}

func reportRollout441(s *scene) {
	s.drain(10)
	ctx, stop := context.WithCancel(background)
	for i := range 1000 {
		s.wait(ctx, fmt.Sprint(i), 1)
	}
	s.to(50 * ms)
	stop()
	synctest.Wait()
	s.to(sec)
	require.Equal(s.t, 10.0, s.Tokens())
}

func reportSidekiq5315(s *scene) {
	s.drain(5)
	s.queue("five", 5)
	for i := range 4 {
		s.to(time.Duration(i+1) * sec)
		_, ok := s.TryAcquire(1)
		require.False(s.t, ok)
	}
	s.to(5 * sec)
	s.requireLeft("five", 5*sec)
}

func reportGocryptotrader2371(s *scene) {
	s.drain(1)
	first := s.queue("first", 1)
	second := s.queue("second", 1)
	second()
	require.Equal(s.t, -1.0, s.Tokens())
	first()
	require.Zero(s.t, s.Tokens())
	s.requireRefused(1, 16666667)
}

func reportKubernetes104623(s *scene) {
	s.drain(1)
	s.queue("one", 1)
	s.to(sec - 1)
	s.requireWaits("one")
	s.to(sec)
	s.requireLeft("one", sec)
}

func reportAiolimiter73(s *scene) {
	s.drain(1)
	for i := range 1000 {
		s.queue(fmt.Sprint(i), 1)
	}
	s.to(100 * sec)
	for i := range 1000 {
		s.requireLeft(fmt.Sprint(i), time.Duration(i+1)*100*ms)
	}
}
