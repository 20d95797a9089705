package httplimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

type waiter interface {
	Wait(ctx context.Context, key string, cost float64) error
}

func TestLimitersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 1})
		require.NoError(t, err)
		all := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.5})
		limiter := httplimit.Both(httplimit.PerKey(clients), httplimit.Shared(all)).(waiter)
		start := time.Now()
		for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second} {
			require.NoError(t, limiter.Wait(t.Context(), "k", 1))
			require.Equal(t, want, time.Since(start), "wait %d", i)
		}
	})
}

func TestBothGivesBackWhenTheSecondWaitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 5, RefillPerSec: 0.001})
		common := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.001})
		limiter := httplimit.Both(httplimit.Shared(own), httplimit.Shared(common)).(waiter)
		require.NoError(t, limiter.Wait(t.Context(), "k", 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, limiter.Wait(ctx, "k", 1), context.DeadlineExceeded)
		require.Equal(t, 4.0, own.Tokens())
		require.ErrorIs(t, limiter.Wait(t.Context(), "k", 6), tokenbucket.ErrCostExceedsCapacity)
		require.Equal(t, 4.0, own.Tokens())
	})
}

func TestBothNeedsTwoLimitersThatWait(t *testing.T) {
	own := httplimit.Shared(tokenbucket.MustNew(tokenbucket.PerSecond(1)))
	limiter := httplimit.Both(own, takesOnly{own}).(waiter)
	require.ErrorIs(t, limiter.Wait(t.Context(), "k", 1), errors.ErrUnsupported)
}

// takesOnly is a limiter without further methods.
type takesOnly struct{ httplimit.Limiter }
