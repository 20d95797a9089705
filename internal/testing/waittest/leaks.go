package waittest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaks cancels ten thousand waits on the real clock, whose turns are days away. No
// goroutine, no timer and no place in the queue may be left (golang/go#33868).
func leaks(t *testing.T, new New) {
	b := new(t, nil, limits(1, 1e-6)...)
	b.TryAcquire(1)
	cancelCrowd(t, b) // the first time allocates memory that stays in use
	goroutines, objects := runtime.NumGoroutine(), liveObjects()
	for range 10 {
		cancelCrowd(t, b)
	}
	require.Zero(t, b.Waiting())
	requireGoroutines(t, goroutines)
	require.Less(t, liveObjects(), objects+2000, "10,000 timers would be 10,000 objects or more")
}

// requireGoroutines waits until at most the given number of goroutines are left. A goroutine that
// has returned may still be counted for a short time.
func requireGoroutines(t *testing.T, most int) {
	t.Helper()
	for range 30_000 {
		if runtime.NumGoroutine() <= most {
			return
		}
		time.Sleep(ms)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), most, "a goroutine leaks")
}

func cancelCrowd(t *testing.T, b Bucket) {
	ctx, stop := context.WithCancel(background)
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() { assert.ErrorIs(t, b.Wait(ctx, 1), context.Canceled) })
	}
	for b.Waiting() < 1000 {
		time.Sleep(ms)
	}
	stop()
	group.Wait()
}

func liveObjects() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapObjects)
}
