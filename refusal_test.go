package tokenbucket

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/race"
)

func TestRefusalIsTheSecondOneByTheLatestWord(t *testing.T) {
	var r refusal
	wait := func(word, cost uint64, now time.Duration) time.Duration {
		var present atomic.Uint64
		present.Store(word)
		return r.wait(&present, word, cost, now)
	}
	require.Zero(t, wait(0, 0, -5), "there is none")
	require.Zero(t, wait(0, 1, -5))

	r.note(0, 1, 100, 20)
	require.Equal(t, 20*time.Nanosecond, wait(0, 1, 100))
	require.Equal(t, 1*time.Nanosecond, wait(0, 1, 119))
	require.Zero(t, wait(0, 1, 120), "it is due")
	require.Zero(t, wait(0, 1, 130))
	require.Zero(t, wait(0, 2, 100), "another cost")
	require.Zero(t, wait(1, 1, 100), "another word")

	r.note(0, 2, 100, 30)
	require.Zero(t, wait(0, 2, 100), "another cost came first")
	r.note(7, 1, 100, 30)
	require.Zero(t, wait(7, 1, 100), "it is the first one")
	r.note(7, 2, 100, 30)
	require.Equal(t, 30*time.Nanosecond, wait(7, 2, 100))
	var present atomic.Uint64
	present.Store(8)
	require.Zero(t, r.wait(&present, 7, 2, 100), "the word has changed meanwhile")
	for range 2 {
		r.note(6, 1, 100, 40)
		require.Zero(t, wait(6, 1, 100), "an earlier word")
		r.note(8, 1, 100, Never)
		require.Zero(t, wait(8, 1, 100), "it is never due")
		r.note(9, 1, 100, Never-100)
		require.Zero(t, wait(9, 1, 100), "it is due too late")
	}
}

// Words get later while goroutines note refusals and read them. Each pair of word and cost has
// an instant of its own at which it is due.
func TestRefusalIsNotMixedWithAnotherOne(t *testing.T) {
	var r refusal
	var present atomic.Uint64
	var group sync.WaitGroup
	for worker := range uint64(4) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(51, worker))
			latest := uint64(0)
			for range race.Fewer(500_000) {
				word, cost := present.Load(), 1+random.Uint64N(2)
				due := time.Duration(4*word + cost)
				if random.IntN(8) == 0 {
					present.CompareAndSwap(word, word+1)
				}
				r.note(word, cost, 0, due)
				wait := r.wait(&present, word, cost, 0)
				next := r.next.Load()
				isRight := wait == 0 || wait == due
				if !assert.True(t, isRight && next >= latest, "word %d, cost %d: %d", word, cost, wait) {
					return
				}
				if latest = next; next == epochOver {
					latest = 0 // being written
				}
			}
		})
	}
	group.Wait()
}
