package windowtest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/windowtest"
)

func TestSurplusIsThatOfTheWorstWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		passes := make([]windowtest.Pass, 1+random.IntN(20))
		var at time.Duration
		for i := range passes {
			at += time.Duration(random.IntN(3)) * time.Second
			passes[i] = windowtest.Pass{At: at, Amount: float64(random.IntN(8))}
		}
		var want float64
		for i := range passes {
			var sum float64
			for _, p := range passes[i:] {
				sum += p.Amount
				want = max(want, sum-2*(p.At-passes[i].At).Seconds())
			}
		}
		require.Equal(t, want, windowtest.Surplus(passes, 2), "%v", passes)
	}
	require.Zero(t, windowtest.Surplus(nil, 2))
}
