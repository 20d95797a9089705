package waittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// storm lets many waiters come and give up at random, with charges and refunds between,
// and counts the tokens: none may be lost or minted.
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
