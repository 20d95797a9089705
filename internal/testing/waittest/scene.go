package waittest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// New makes a full bucket for a test. A nil clock is the system clock.
type New func(t testing.TB, clock tokenbucket.Clock, limits ...tokenbucket.Limit) Bucket

// scene is a bucket and its waiters in a synctest bubble. Its clock is the system clock
// of the bubble, or a mock.
type scene struct {
	Bucket
	t     testing.TB
	mock  *Clock // nil for the system clock
	start time.Time
	ctx   context.Context // of the callers in the queue

	mu   sync.Mutex
	left map[string]departure
}

type departure struct {
	at  time.Duration
	err error
}

// play runs a scene once with each clock.
func play(t *testing.T, name string, new New, limits []tokenbucket.Limit, act func(s *scene)) {
	t.Run(name+"/system", func(t *testing.T) { playOn(t, nil, new, limits, act) })
	t.Run(name+"/mock", func(t *testing.T) { playMock(t, new, limits, act) })
}

func playMock(t *testing.T, new New, limits []tokenbucket.Limit, act func(s *scene)) {
	playOn(t, NewClock(time.Unix(0, 0)), new, limits, act)
}

func playOn(t *testing.T, mock *Clock, new New, limits []tokenbucket.Limit, act func(s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, mock: mock, left: map[string]departure{}}
		if mock == nil {
			s.Bucket = new(t, nil, limits...)
			s.start = time.Now()
		} else {
			s.Bucket = new(t, mock, limits...)
			s.start = mock.Now()
		}
		ctx, stop := context.WithCancel(context.Background())
		s.ctx = ctx
		defer func() { // the remaining waiters leave
			stop()
			synctest.Wait()
		}()
		act(s)
	})
}

// drain takes all tokens at the start of a scene.
func (s *scene) drain(capacity float64) *scene {
	s.t.Helper()
	_, ok := s.TryAcquire(capacity)
	require.True(s.t, ok)
	return s
}

func (s *scene) now() time.Duration {
	if s.mock == nil {
		return time.Since(s.start)
	}
	return s.mock.Since(s.start)
}

// to waits until all waiters sleep, and then advances the clock to an instant of the
// scene. A mock stops at each timer on the way, so that its waiter leaves at that
// instant.
func (s *scene) to(at time.Duration) {
	synctest.Wait()
	if s.mock == nil {
		time.Sleep(at - s.now())
	} else {
		s.mock.advance(at, synctest.Wait)
	}
	synctest.Wait()
}

// wait starts a waiter, and returns once the waiter is queued or has left.
func (s *scene) wait(ctx context.Context, name string, cost float64) {
	go func() {
		err := s.Wait(ctx, cost)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left[name] = departure{s.now(), err}
	}()
	synctest.Wait()
}

// queue starts a waiter that can be cancelled.
func (s *scene) queue(name string, cost float64) (cancel func()) {
	ctx, cancelContext := context.WithCancel(s.ctx)
	s.wait(ctx, name, cost)
	return func() {
		cancelContext()
		synctest.Wait()
	}
}

func (s *scene) departure(name string) (departure, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.left[name]
	return d, ok
}

// requireLeft checks that a waiter got its tokens exactly at an instant.
func (s *scene) requireLeft(name string, at time.Duration) {
	s.t.Helper()
	d, ok := s.departure(name)
	require.True(s.t, ok, "%s still waits", name)
	require.NoError(s.t, d.err, name)
	require.Equal(s.t, at, d.at, name)
}

func (s *scene) requireFailed(name string, at time.Duration, want error) {
	s.t.Helper()
	d, ok := s.departure(name)
	require.True(s.t, ok, "%s still waits", name)
	require.ErrorIs(s.t, d.err, want, name)
	require.Equal(s.t, at, d.at, name)
}

func (s *scene) requireWaits(name string) {
	s.t.Helper()
	_, ok := s.departure(name)
	require.False(s.t, ok, "%s has left", name)
}

func (s *scene) requireRefused(cost float64, want time.Duration) {
	s.t.Helper()
	wait, ok := s.TryAcquire(cost)
	require.False(s.t, ok)
	require.Equal(s.t, want, wait)
}
