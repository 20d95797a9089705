package redisbucket_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/redisbucket"
)

// askTogether lets 64 callers ask at the same time, and returns how many of their calls failed.
func (f *frail) askTogether() int {
	var group sync.WaitGroup
	var failed atomic.Int64
	for range 64 {
		group.Go(func() {
			if _, err := f.buckets.Take(background, "key", 0); err != nil {
				f.requireUnavailable(err)
				failed.Add(1)
			}
		})
	}
	group.Wait()
	return int(failed.Load())
}

// A connection gets a single request until one was answered, and again after a second.
func TestABatchFollowsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := func(int) bool { return true }
		require.Equal(t, []int{1, 16, 16, 7}, redisbucket.Drain(0, always, 40))
		require.Equal(t, []int{1, 1, 1, 16, 1, 4}, redisbucket.Drain(0, func(sends int) bool { return sends >= 3 && sends != 4 }, 24))
		require.Equal(t, []int{1, 9, 10}, redisbucket.Drain(sec-1, always, 10, 10))
		require.Equal(t, []int{1, 9, 1, 9}, redisbucket.Drain(sec, always, 10, 10))
	})
}

// Requests that are sent together do not fail together on connections that died while idle.
func TestIdleConnectionsThatDieFailOneCallEach(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Delay(ms)
		require.Zero(t, f.askTogether())
		for range 3 {
			time.Sleep(sec)
			before := f.Connections()
			f.Break()
			failed := f.askTogether()
			require.Positive(t, failed)
			require.LessOrEqual(t, failed, before, "one for each connection so far")
			require.LessOrEqual(t, f.Connections()-before, failed, "each is replaced")
			require.Zero(t, f.askTogether())
		}
	})
}

// A connection that breaks with requests on their way fails those, and no others.
func TestAConnectionThatBreaksFailsTheRequestsOnTheirWay(t *testing.T) {
	withFrail(t, func(f *frail) {
		f.Delay(ms)
		require.Zero(t, f.askTogether())
		time.AfterFunc(2*ms+500*us, f.Break) // the first answers have come, and batches are on their way
		failed := f.askTogether()
		require.Greater(t, failed, 2)
		require.LessOrEqual(t, failed, 2*16, "two batches")
		idle := f.askTogether()
		require.LessOrEqual(t, idle, 8, "one for each connection that was idle")
		require.Zero(t, f.askTogether())
		require.Len(t, f.failures, failed+idle)
	}, redisbucket.WithBreak(time.Minute))
}
