package waittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// scripts plays long random scripts. It compares every answer, and the instant at which each
// waiter leaves, with the oracle.
func scripts(t *testing.T, new New) {
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 7))
		grid := coarse
		if seed%2 == 0 {
			grid = fine
		}
		limits := grid.limits(random, 1+int(seed/2)%3)
		play(t, fmt.Sprintf("%d: %v", seed, limits), new, limits, func(s *scene) {
			a := &actor{scene: s, grid: grid, random: random, oracle: NewOracle(limits...), least: limits[0].Capacity}
			for _, l := range limits {
				a.least = min(a.least, l.Capacity)
			}
			for i := range 120 {
				a.step(i)
			}
			a.finish()
		})
	}
}

// grid holds the numbers that a script may contain. A pause stores the level as a
// float64. That is exact only if the instants are fractions of a second with few binary
// digits, so scripts with pauses use only those.
type grid struct {
	pauses  bool
	refills []float64
	ticks   []time.Duration // steps of time are multiples of one of them
}

var (
	fine   = grid{false, []float64{1, 3, 7, 10}, []time.Duration{1, 1e7, 333333333, 987654321}}
	coarse = grid{true, []float64{1, 2, 4, 8}, []time.Duration{sec / 32, sec / 4, sec}}
)

func (g grid) limits(random *rand.Rand, n int) []tokenbucket.Limit {
	limits := make([]tokenbucket.Limit, n)
	for i := range limits {
		limits[i] = tokenbucket.Limit{Capacity: float64(1 + random.IntN(12)), RefillPerSec: pick(random, g.refills)}
	}
	return limits
}

func (g grid) tick(random *rand.Rand) time.Duration {
	return pick(random, g.ticks) * time.Duration(random.IntN(4))
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

type actor struct {
	*scene
	grid   grid
	random *rand.Rand
	oracle *Oracle
	least  float64 // capacity
	queued []client
}

type client struct {
	name   string
	place  *Place
	cancel func()
}

func (a *actor) step(i int) {
	if a.random.IntN(2) == 0 {
		a.to(a.now() + a.grid.tick(a.random))
	}
	a.oracle.Advance(a.now())
	a.act(fmt.Sprint(i))
	synctest.Wait()
	a.check(i)
}

func (a *actor) act(name string) {
	tokens := float64(a.random.IntN(20)) / 4
	cost := float64(a.random.IntN(int(a.least)*4+1)) / 4
	switch a.random.IntN(9) {
	case 0, 1, 2:
		a.queued = append(a.queued, client{name, a.oracle.Wait(cost), a.queue(name, cost)})
	case 3:
		a.giveUp()
	case 4:
		wait, ok := a.TryAcquire(cost)
		a.requireAnswer(cost, wait, ok)
	case 5:
		d := a.Take(cost)
		a.requireAnswer(cost, d.Wait, d.OK)
	case 6:
		a.oracle.Refund(tokens)
		require.NoError(a.t, a.Refund(tokens))
	case 7:
		a.oracle.Charge(tokens)
		require.NoError(a.t, a.Charge(tokens))
	case 8:
		a.pause()
	}
}

func (a *actor) requireAnswer(cost float64, wait time.Duration, ok bool) {
	a.t.Helper()
	wantWait, wantOK := a.oracle.Try(cost)
	require.Equal(a.t, wantOK, ok, "cost %v at %v", cost, a.now())
	require.Equal(a.t, wantWait, wait, "cost %v at %v", cost, a.now())
}

func (a *actor) giveUp() {
	if len(a.queued) == 0 {
		return
	}
	i := a.random.IntN(len(a.queued))
	c := a.queued[i]
	c.cancel()
	if a.oracle.Cancel(c.place) {
		a.requireFailed(c.name, a.now(), context.Canceled)
		a.queued = slices.Delete(a.queued, i, i+1)
	}
}

func (a *actor) pause() {
	if !a.grid.pauses {
		return
	}
	d := a.grid.tick(a.random)
	a.Pause(d)
	if d > 0 {
		a.oracle.Pause(d)
	}
}

func (a *actor) check(i int) {
	a.t.Helper()
	a.queued = slices.DeleteFunc(a.queued, func(c client) bool {
		if c.place.Served {
			a.requireLeft(c.name, c.place.Due)
		} else {
			a.requireWaits(c.name)
		}
		return c.place.Served
	})
	require.Equal(a.t, a.oracle.Waiting(), a.Waiting(), "step %d", i)
	require.InDelta(a.t, a.oracle.Tokens(), a.Tokens(), 1e-9, "step %d", i)
}

// finish waits until the remaining waiters have left.
func (a *actor) finish() {
	for a.oracle.Waiting() > 0 {
		a.to(a.now() + sec)
		a.oracle.Advance(a.now())
		a.check(-1)
	}
}
