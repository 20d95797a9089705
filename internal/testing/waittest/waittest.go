// Package waittest is what every bucket that can be waited on is held to: the
// queue, the clock, and what moves the level while somebody waits.
package waittest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// Bucket is what is tested: a tokenbucket.Bucket, or one key of many.
type Bucket interface {
	TryAcquire(cost float64) (time.Duration, bool)
	Take(cost float64) tokenbucket.Decision
	Wait(ctx context.Context, cost float64) error
	Refund(cost float64) error
	Charge(cost float64) error
	Pause(d time.Duration)
	Tokens() float64
	Waiting() int
}

const (
	never = tokenbucket.Never
	ms    = time.Millisecond
	sec   = time.Second
)

var background = context.Background()

// Run runs the suite.
func Run(t *testing.T, new New) {
	for name, run := range map[string]func(*testing.T, New){
		"Queue": queue, "Cancel": cancel, "Deadline": deadline, "Change": change, "Pause": pause, "Clock": steppedClock,
		"Late": late, "Reports": reports, "Several": several, "Wakeups": wakeups, "Storm": storm, "Scripts": scripts,
		"Contexts": contexts, "Edges": edges, "Lateness": lateness, "Leaks": leaks, "Bounds": bounds,
		"Mocks": mocks,
	} {
		t.Run(name, func(t *testing.T) { run(t, new) })
	}
}

func limits(capacity, refill float64) []tokenbucket.Limit {
	return []tokenbucket.Limit{{Capacity: capacity, RefillPerSec: refill}}
}

func queue(t *testing.T, new New) {
	play(t, "first come first served, one large among 100", new, limits(50, 10), func(s *scene) {
		s.drain(50)
		at, want := time.Duration(0), map[string]time.Duration{}
		for i := range 100 {
			cost := 1.0
			if i == 40 {
				cost = 50
			}
			name := fmt.Sprint(i)
			s.queue(name, cost)
			at += time.Duration(cost * float64(100*ms))
			want[name] = at
		}
		require.Equal(s.t, 100, s.Waiting())
		require.Equal(s.t, -149.0, s.Tokens())
		s.to(at)
		for name, at := range want {
			s.requireLeft(name, at)
		}
		require.Zero(s.t, s.Waiting())
		require.Zero(s.t, s.Tokens())
	})
	play(t, "a thousand of mixed costs leave at the exact instants", new, limits(11, 3), func(s *scene) {
		s.drain(11)
		random := rand.New(rand.NewPCG(1, 1))
		thirds, want := int64(0), make([]time.Duration, 1000) // of seconds
		for i := range want {
			cost := 1 + random.Int64N(10)
			thirds += cost
			want[i] = time.Duration((thirds*int64(sec) + 2) / 3) // rounded up
			s.queue(fmt.Sprint(i), float64(cost))
		}
		s.to(want[len(want)-1])
		for i, at := range want {
			s.requireLeft(fmt.Sprint(i), at)
		}
	})
	play(t, "nobody barges", new, limits(10, 1), func(s *scene) {
		s.drain(10)
		s.queue("eight", 8)
		s.queue("two", 2)
		s.to(5 * sec)
		s.requireRefused(1, 6*sec) // 11 in all, 5 there
		d := s.Take(1)
		require.Equal(s.t, 6*sec, d.Wait)
		require.Equal(s.t, -5.0, d.Tokens)
		require.Zero(s.t, d.Remaining())
		require.Equal(s.t, 15*sec, d.Reset())
		require.Equal(s.t, -5.0, s.Tokens())
		s.requireRefused(11, never)
		s.requireRefused(math.NaN(), never)
		s.requireRefused(-1, never)
		s.to(8 * sec)
		s.requireLeft("eight", 8*sec)
		s.to(10 * sec)
		s.requireLeft("two", 10*sec)
	})
	play(t, "0 is free behind a queue and in debt", new, limits(1, 1), func(s *scene) {
		s.drain(1)
		require.NoError(s.t, s.Charge(5))
		s.queue("one", 1)
		_, ok := s.TryAcquire(0)
		require.True(s.t, ok)
		require.True(s.t, s.Take(0).OK)
		require.NoError(s.t, s.Wait(background, 0))
		s.to(6 * sec)
		s.requireLeft("one", 6*sec)
	})
	play(t, "never blocks until the context ends", new, limits(1, 1e-11), func(s *scene) {
		s.drain(1)
		cancel := s.queue("one", 1)
		behind := s.queue("behind", 1)
		s.requireRefused(1, never)
		require.Equal(s.t, -2.0, s.Tokens())
		s.to(1000 * time.Hour)
		s.requireWaits("one")
		cancel()
		behind()
		s.requireFailed("one", 1000*time.Hour, context.Canceled)
		s.requireFailed("behind", 1000*time.Hour, context.Canceled)
		require.Zero(s.t, s.Waiting())
	})
}

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
	play(t, "all at once where the first gives up what the others can have", new, limits(10, 1), func(s *scene) {
		s.drain(10)
		cancel := s.queue("ten", 10)
		s.queue("five", 5)
		s.queue("four", 4)
		s.to(9500 * ms)
		cancel()
		s.requireLeft("five", 9500*ms)
		s.requireLeft("four", 9500*ms)
		require.Equal(s.t, 0.5, s.Tokens())
	})
	play(t, "nil exactly if the tokens were taken", new, limits(1, 1), func(s *scene) {
		s.drain(1)
		taken := 0
		for i := range 50 {
			ctx, stop := context.WithCancel(background)
			s.wait(ctx, fmt.Sprint(i), 1)
			go stop() // at the very instant
			s.to(s.now() + sec)
			if d, _ := s.departure(fmt.Sprint(i)); d.err == nil {
				taken++
			}
			stop()
		}
		s.requireSpent(1+float64(taken), 1, 1)
	})
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

// requireSpent checks the level against what has been spent of a bucket that has
// not been full since its first second.
func (s *scene) requireSpent(spent, capacity, refill float64) {
	s.t.Helper()
	want := min(capacity, capacity+s.now().Seconds()*refill-spent)
	require.InDelta(s.t, want, s.Tokens(), 1e-9)
}

func deadline(t *testing.T, new New) {
	system := func(name string, act func(s *scene)) {
		t.Run(name, func(t *testing.T) {
			playOn(t, nil, new, limits(10, 1), func(s *scene) { act(s.drain(10)) })
		})
	}
	system("one that can't be met fails at once", func(s *scene) {
		s.wait(s.within(5*sec-1), "five", 5)
		s.requireFailed("five", 0, context.DeadlineExceeded)
		d, _ := s.departure("five")
		var err *tokenbucket.DeadlineError
		require.ErrorAs(s.t, d.err, &err)
		require.Equal(s.t, 5*sec, err.Wait)
		require.True(s.t, err.Timeout())
		require.Zero(s.t, s.Waiting())
		require.Zero(s.t, s.Tokens())
	})
	system("it counts those ahead", func(s *scene) {
		s.queue("three", 3)
		s.wait(s.within(5*sec), "late", 3)
		s.requireFailed("late", 0, context.DeadlineExceeded)
		s.wait(s.within(6*sec), "in time", 3)
		s.to(6 * sec)
		s.requireLeft("in time", 6*sec)
	})
	system("one met at first can be missed later", func(s *scene) {
		s.wait(s.within(3*sec), "two", 2)
		s.to(sec)
		require.NoError(s.t, s.Charge(5))
		s.to(3 * sec)
		s.requireFailed("two", 3*sec, context.DeadlineExceeded)
		require.Equal(s.t, -2.0, s.Tokens())
	})
	system("the order of the checks", func(s *scene) {
		done, cancel := context.WithCancelCause(background)
		cancel(errors.New("cause"))
		err := s.Wait(done, math.NaN())
		require.Equal(s.t, context.Canceled, err, "the context first, its error and not its cause")
		require.Equal(s.t, context.Canceled, s.Wait(done, 0))
		require.ErrorIs(s.t, s.Wait(s.within(1), -1), tokenbucket.ErrInvalidCost)
		require.ErrorIs(s.t, s.Wait(s.within(1), 11), tokenbucket.ErrCostExceedsCapacity)
		require.ErrorIs(s.t, s.Wait(s.within(1), math.Inf(1)), tokenbucket.ErrCostExceedsCapacity)
		require.ErrorIs(s.t, s.Wait(s.within(1), 1), context.DeadlineExceeded)
		require.Zero(s.t, s.Tokens())
	})
	t.Run("never with a deadline", func(t *testing.T) {
		playOn(t, nil, new, limits(1, 1e-11), func(s *scene) {
			s.drain(1)
			require.ErrorIs(s.t, s.Wait(s.within(290*365*24*time.Hour), 1), context.DeadlineExceeded)
		})
	})
	t.Run("by the mock clock and by the real one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mock := NewClock(time.Now().Add(2 * time.Hour))
			b := new(t, mock, limits(1, 1)...)
			b.TryAcquire(1)
			var advanced time.Duration
			wait := func(deadline time.Time) error {
				ctx, cancel := context.WithDeadline(background, deadline)
				defer cancel()
				go func() {
					time.Sleep(ms) // until it is queued
					advanced += 10 * sec
					mock.Set(advanced)
				}()
				err := b.Wait(ctx, 1)
				time.Sleep(2 * ms)
				return err
			}
			require.NoError(t, wait(mock.Now().Add(2*sec)), "in time by both")
			b.TryAcquire(1)
			require.NoError(t, wait(time.Now().Add(2*sec)), "in time by the real clock, missed by the mock")
			b.TryAcquire(1)
			require.ErrorIs(t, wait(time.Now().Add(sec/2)), context.DeadlineExceeded, "missed by both")
		})
	})
}

func change(t *testing.T, new New) {
	play(t, "Refund fills up first, then serves", new, limits(10, 1), func(s *scene) {
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
	})
	play(t, "Refund never passes the capacity", new, limits(10, 1), func(s *scene) {
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
	})
	play(t, "Charge moves every later turn", new, limits(10, 1), func(s *scene) {
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
	})
	play(t, "later, then sooner again", new, limits(10, 1), func(s *scene) {
		s.drain(10)
		s.queue("one", 1)
		s.queue("two", 1)
		require.NoError(s.t, s.Charge(5))
		s.to(2 * sec) // both woke in vain
		require.NoError(s.t, s.Refund(4.5))
		synctest.Wait()
		s.requireWaits("two")
		s.requireLeft("one", 2*sec)
		s.to(2500 * ms)
		s.requireLeft("two", 2500*ms)
	})
}

func pause(t *testing.T, new New) {
	play(t, "nothing but 0 before its end, then from empty", new, limits(10, 2), func(s *scene) {
		s.Pause(3 * sec)
		require.Zero(s.t, s.Tokens())
		s.requireRefused(1, 3500*ms)
		s.requireRefused(1e-300, 3*sec)
		d := s.Take(1)
		require.False(s.t, d.OK)
		require.Zero(s.t, d.Remaining())
		require.Equal(s.t, 8*sec, d.Reset())
		_, ok := s.TryAcquire(0)
		require.True(s.t, ok)
		require.NoError(s.t, s.Wait(background, 0))
		s.queue("one", 1)
		s.to(3 * sec)
		require.Equal(s.t, -1.0, s.Tokens())
		s.requireWaits("one")
		s.to(3500 * ms)
		s.requireLeft("one", 3500*ms)
	})
	play(t, "refunds are kept for afterwards", new, limits(10, 1), func(s *scene) {
		s.Pause(3 * sec)
		s.queue("four", 4)
		require.NoError(s.t, s.Refund(7))
		s.requireWaits("four")
		s.to(2 * sec)
		s.requireRefused(3, sec)
		d := s.Take(3)
		require.Equal(s.t, sec, d.Wait)
		require.Zero(s.t, d.Remaining())
		require.Equal(s.t, 8*sec, d.Reset())
		s.to(3*sec - 1)
		s.requireWaits("four")
		s.to(3 * sec)
		s.requireLeft("four", 3*sec)
		require.Equal(s.t, 3.0, s.Tokens())
	})
	play(t, "debt stays", new, limits(10, 1), func(s *scene) {
		require.NoError(s.t, s.Charge(14))
		s.Pause(sec)
		require.Equal(s.t, -4.0, s.Tokens())
		require.NoError(s.t, s.Charge(1))
		s.requireRefused(1, 7*sec)
	})
	play(t, "with waiters", new, limits(10, 1), func(s *scene) {
		s.drain(10)
		s.queue("one", 1)
		s.queue("two", 1)
		s.to(500 * ms)
		s.Pause(10 * sec)
		s.to(11500*ms - 1)
		s.requireWaits("one")
		s.to(20 * sec)
		s.requireLeft("one", 11500*ms)
		s.requireLeft("two", 12500*ms)
	})
	play(t, "a shorter one does not shorten it", new, limits(10, 1), func(s *scene) {
		s.Pause(10 * sec)
		s.Pause(sec)
		s.Pause(0)
		s.Pause(-sec)
		s.requireRefused(1, 11*sec)
		s.to(5 * sec)
		s.Pause(6 * sec)
		s.requireRefused(1, 7*sec)
	})
	play(t, "0 and less do nothing", new, limits(10, 1), func(s *scene) {
		s.Pause(0)
		s.Pause(math.MinInt64)
		require.Equal(s.t, 10.0, s.Tokens())
	})
	play(t, "Never lasts for good", new, limits(10, 1), func(s *scene) {
		s.to(sec)
		s.Pause(never)
		cancel := s.queue("one", 1)
		s.requireRefused(1, never)
		require.Equal(s.t, never, s.Take(1).Reset())
		require.NoError(s.t, s.Refund(10))
		s.to(100_000 * time.Hour)
		s.requireWaits("one")
		cancel()
		s.requireFailed("one", 100_000*time.Hour, context.Canceled)
	})
}

// What the clock does that it should not.
func steppedClock(t *testing.T, new New) {
	start := func(t *testing.T, capacity, refill float64) (*Clock, Bucket) {
		c := &Clock{}
		c.Set(100 * sec)
		return c, new(t, c, limits(capacity, refill)...)
	}
	try := func(t *testing.T, b Bucket, cost float64, want time.Duration) {
		t.Helper()
		wait, ok := b.TryAcquire(cost)
		require.Equal(t, want, wait)
		require.Equal(t, want == 0, ok)
	}
	t.Run("golang/go#56287", func(t *testing.T) {
		c, b := start(t, 10, 1)
		c.Set(110 * sec)
		try(t, b, 10, 0)
		c.Set(109 * sec)
		try(t, b, 1, 2*sec) // from this reading on
		require.Equal(t, 2*sec, b.Take(1).Wait)
		c.Set(110 * sec)
		try(t, b, 1, sec)
		c.Set(111 * sec)
		try(t, b, 1, 0)
	})
	t.Run("no part of a burst is refused", func(t *testing.T) {
		c, b := start(t, 10, 1)
		b.TryAcquire(10)
		c.Set(110 * sec)
		for i := range 10 {
			c.Set(110*sec - time.Duration(i)*sec)
			try(t, b, 1, 0)
		}
		try(t, b, 1, 10*sec)
		require.Zero(t, b.Tokens())
	})
	t.Run("nothing is minted", func(t *testing.T) {
		c, b := start(t, 10, 1)
		b.TryAcquire(10)
		admitted := 0
		for range 100 {
			for _, at := range []time.Duration{100, 90, 105, 0, 110} {
				c.Set(at * sec)
				if _, ok := b.TryAcquire(1); ok {
					admitted++
				}
			}
		}
		require.Equal(t, 10, admitted)
	})
	t.Run("before the origin", func(t *testing.T) {
		c, b := start(t, 2, 1)
		c.Set(0)
		try(t, b, 2, 0)
		require.NoError(t, b.Refund(1))
		require.NoError(t, b.Charge(1))
		try(t, b, 1, 101*sec)
		b.Pause(sec)
		wait, ok := b.TryAcquire(1)
		require.False(t, ok)
		require.Equal(t, 102*sec, wait)
	})
}

// Timers are late; turns are not.
func late(t *testing.T, new New) {
	t.Run("grants count at the instants they fell due", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Clock{}
			b := new(t, c, limits(2, 1)...)
			b.TryAcquire(2)
			var group sync.WaitGroup
			for range 10 {
				group.Go(func() { assert.NoError(t, b.Wait(background, 1)) })
				synctest.Wait()
			}
			c.Set(10500 * ms) // everybody wakes at once, late
			group.Wait()
			require.Equal(t, 0.5, b.Tokens(), "nothing was lost to the cap")
			require.Zero(t, b.Waiting())
		})
	})
	t.Run("a call that comes first serves those who are due", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Clock{}
			b := new(t, c, limits(1, 1)...)
			b.TryAcquire(1)
			var group sync.WaitGroup
			group.Go(func() { assert.NoError(t, b.Wait(background, 1)) })
			synctest.Wait()
			c.SetLate(5 * sec) // the timer is later still
			wait, ok := b.TryAcquire(1)
			require.True(t, ok, wait)
			require.Zero(t, b.Waiting())
			group.Wait()
		})
	})
}

func reports(t *testing.T, new New) {
	play(t, "golang/go#56924", new, limits(1, 1), func(s *scene) {
		s.drain(1)
		cancel := s.queue("A", 1)
		s.queue("B", 1)
		s.to(500 * ms)
		cancel()
		s.to(2 * sec)
		s.requireLeft("B", sec)
		require.Equal(s.t, 1.0, s.Tokens())
	})
	play(t, "golang/go#69419", new, limits(10, 10), func(s *scene) {
		s.drain(10)
		cancel := s.queue("5", 5)
		s.queue("2", 2)
		s.queue("1", 1)
		s.to(100 * ms)
		cancel()
		s.to(sec)
		require.Equal(s.t, 7.0, s.Tokens())
	})
	play(t, "gkit#134", new, limits(1, 1), func(s *scene) {
		ctx, stop := context.WithCancel(background)
		stop()
		require.ErrorIs(s.t, s.Wait(ctx, 1), context.Canceled)
		require.Equal(s.t, 1.0, s.Tokens())
	})
	play(t, "rollout-operator#441", new, limits(10, 10), func(s *scene) {
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
	})
	play(t, "sidekiq#5315", new, limits(5, 1), func(s *scene) {
		s.drain(5)
		s.queue("five", 5)
		for i := range 4 {
			s.to(time.Duration(i+1) * sec)
			_, ok := s.TryAcquire(1)
			require.False(s.t, ok)
		}
		s.to(5 * sec)
		s.requireLeft("five", 5*sec)
	})
	play(t, "gocryptotrader#2371", new, limits(1, 60), func(s *scene) {
		s.drain(1)
		first := s.queue("first", 1)
		second := s.queue("second", 1)
		second()
		require.Equal(s.t, -1.0, s.Tokens())
		first()
		require.Zero(s.t, s.Tokens())
		s.requireRefused(1, 16666667)
	})
	play(t, "kubernetes#104623", new, limits(1, 1), func(s *scene) {
		s.drain(1)
		s.queue("one", 1)
		s.to(sec - 1)
		s.requireWaits("one")
		s.to(sec)
		s.requireLeft("one", sec)
	})
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
	play(t, "aiolimiter#73", new, limits(1, 10), func(s *scene) {
		s.drain(1)
		for i := range 1000 {
			s.queue(fmt.Sprint(i), 1)
		}
		s.to(100 * sec)
		for i := range 1000 {
			s.requireLeft(fmt.Sprint(i), time.Duration(i+1)*100*ms)
		}
	})
}

func several(t *testing.T, new New) {
	two := []tokenbucket.Limit{{Capacity: 3, RefillPerSec: 1}, {Capacity: 10, RefillPerSec: 0.25}}
	play(t, "the slower limit takes over", new, two, func(s *scene) {
		s.drain(3) // 0 and 7
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
	play(t, "one is capped while the other makes wait", new, []tokenbucket.Limit{{Capacity: 10, RefillPerSec: 1}, {Capacity: 4, RefillPerSec: 0.5}}, func(s *scene) {
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

// A waiter sets one timer and wakes once, unless the state changed under it.
func wakeups(t *testing.T, new New) {
	synctest.Test(t, func(t *testing.T) {
		c := &Clock{}
		b := new(t, c, limits(10, 1)...)
		b.TryAcquire(10)
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { assert.NoError(t, b.Wait(background, 1)) })
			synctest.Wait()
		}
		require.Equal(t, 100, c.Afters())
		for i := range 100 {
			c.Set(time.Duration(i+1) * sec)
			synctest.Wait()
			require.Equal(t, 99-i, b.Waiting())
		}
		group.Wait()
		require.Equal(t, 100, c.Afters(), "a grant wakes one, not all")
	})
	t.Run("ten thousand cancellations do not wake everybody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &Clock{}
			b := new(t, c, limits(10, 1)...)
			b.TryAcquire(10)
			ctx, stop := context.WithCancel(background)
			var group sync.WaitGroup
			for i := range 20_000 {
				own := background
				if i%2 == 0 {
					own = ctx
				}
				group.Go(func() { _ = b.Wait(own, 1) })
			}
			synctest.Wait()
			before := c.Afters()
			stop()
			synctest.Wait()
			require.Equal(t, 10_000, b.Waiting())
			require.LessOrEqual(t, c.Afters()-before, 100, "only the head needs a timer that is right")
			require.NoError(t, b.Charge(1e6))
			_ = b.Refund(1)
			c.Set(2_000_000 * sec)
			group.Wait()
		})
	})
}

// storm lets many waiters come, give up, be charged and refunded at random, and
// counts the tokens: none is lost, none is minted.
func storm(t *testing.T, new New) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			playOn(t, nil, new, limits(1<<20, 100), func(s *scene) { (&weather{scene: s.drain(1 << 20)}).blow(seed) })
		})
	}
}

type weather struct {
	*scene
	mu    sync.Mutex
	spent float64
}

func (w *weather) blow(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	var group sync.WaitGroup
	for range 300 {
		cost := float64(1+random.IntN(20)) / 2
		patience := time.Duration(random.Int64N(int64(40 * sec)))
		group.Go(func() { w.attempt(cost, patience) })
		w.disturb(random)
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(300 * ms))))
		}
	}
	group.Wait()
	require.Zero(w.t, w.Waiting())
	require.InDelta(w.t, 100*w.now().Seconds()-w.spent, w.Tokens(), 1e-6)
}

func (w *weather) attempt(cost float64, patience time.Duration) {
	ctx, stop := context.WithTimeout(background, patience)
	defer stop()
	if w.Wait(ctx, cost) == nil {
		w.pay(cost)
	}
}

func (w *weather) disturb(random *rand.Rand) {
	tokens := float64(random.IntN(16)) / 4
	switch random.IntN(6) {
	case 0:
		require.NoError(w.t, w.Charge(tokens))
		w.pay(tokens)
	case 1:
		require.NoError(w.t, w.Refund(tokens))
		w.pay(-tokens)
	case 2:
		if _, ok := w.TryAcquire(tokens); ok {
			w.pay(tokens)
		}
	}
}

func (w *weather) pay(cost float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spent += cost
}
