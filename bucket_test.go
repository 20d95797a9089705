package tokenbucket_test

import (
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/model"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

type (
	Limit    = tokenbucket.Limit
	Limits   = tokenbucket.Limits
	State    = tokenbucket.State
	Decision = tokenbucket.Decision
)

const (
	Never = tokenbucket.Never
	ms    = time.Millisecond
	sec   = time.Second
	year  = 365 * 24 * time.Hour
)

func newBucket(t testing.TB, clock tokenbucket.Clock, limits ...Limit) *tokenbucket.Bucket {
	t.Helper()
	opts := []tokenbucket.Option{tokenbucket.WithClock(clock)}
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	bucket, err := tokenbucket.New(limits[0], opts...)
	require.NoError(t, err)
	return bucket
}

// TestBucketMatchesTheModel uses a clock that steps back now and then: an earlier reading
// counts as the latest one, and the wait of a refusal counts from the reading.
func TestBucketMatchesTheModel(t *testing.T) {
	ask := []func(*tokenbucket.Bucket, float64) (time.Duration, bool){
		(*tokenbucket.Bucket).TryAcquire,
		func(b *tokenbucket.Bucket, cost float64) (time.Duration, bool) {
			d := b.Take(cost)
			return d.Wait, d.OK
		},
	}
	random := rand.New(rand.NewPCG(15, 16))
	for i := range 300 {
		limits, fractions := make([]Limit, 1+i%3), make([]model.Limit, 1+i%3)
		for i := range limits {
			capacity, refill := 1+random.Int64N(60), 1+random.Int64N(100)
			limits[i] = Limit{float64(capacity) / 2, float64(refill) / 7}
			fractions[i] = model.Limit{Capacity: big.NewRat(capacity, 2), RefillPerSec: big.NewRat(refill, 7)}
		}
		mock, exact := new(waittest.Clock), model.NewExact(fractions...)
		bucket := newBucket(t, mock, limits...)
		var latest time.Duration
		for range 60 {
			now := max(0, latest+time.Duration(random.Int64N(int64(3*sec)))-sec)
			latest = max(latest, now)
			mock.Set(now)
			tokens := float64(random.IntN(24)) / 4
			switch random.IntN(8) {
			case 0:
				require.NoError(t, bucket.Charge(tokens))
				exact.Charge(latest, model.Exact(tokens))
			case 1:
				require.NoError(t, bucket.Refund(tokens))
				exact.Refund(latest, model.Exact(tokens))
			default:
				want, wantOK := exact.Take(latest, model.Exact(tokens))
				if !wantOK && want != Never {
					want += latest - now
				}
				wait, ok := ask[random.IntN(2)](bucket, tokens)
				require.Equal(t, wantOK, ok, "%+v at %v", limits, now)
				require.Equal(t, want, wait, "%+v at %v", limits, now)
			}
			left, _ := exact.At(latest).Least().Float64()
			require.InDelta(t, left, bucket.Tokens(), 1e-12)
		}
	}
}

func TestFrozenClockAdmitsTheCapacityAndNoMore(t *testing.T) {
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1}, Limit{20, 1})
	var admitted atomic.Int64
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			if _, ok := bucket.TryAcquire(1); ok {
				admitted.Add(1)
			}
		})
	}
	group.Wait()
	require.Equal(t, int64(10), admitted.Load())
}

func TestInvalidCosts(t *testing.T) {
	ctx := context.Background()
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1}, Limit{5, 1})
	for _, cost := range []float64{-1, math.NaN(), math.Inf(-1), math.Inf(1), 5.5, math.Copysign(5e-324, -1)} {
		want := tokenbucket.ErrInvalidCost
		if cost > 5 {
			want = tokenbucket.ErrCostExceedsCapacity
		}
		wait, ok := bucket.TryAcquire(cost)
		require.Equal(t, Never, wait)
		require.False(t, ok)
		d := bucket.Take(cost)
		require.False(t, d.OK)
		require.Equal(t, Never, d.Wait)
		require.ErrorIs(t, bucket.Wait(ctx, cost), want, cost)
		_, err := bucket.Reserve(cost)
		require.ErrorIs(t, err, want, cost)
		if cost != 5.5 {
			require.ErrorIs(t, bucket.Refund(cost), tokenbucket.ErrInvalidCost)
			require.ErrorIs(t, bucket.Charge(cost), tokenbucket.ErrInvalidCost)
		}
	}
	require.Equal(t, 5.0, bucket.Tokens(), "nothing was taken")
	require.Zero(t, bucket.Waiting())
}

func TestCostZeroIsAlwaysAdmitted(t *testing.T) {
	ctx := context.Background()
	bucket := newBucket(t, new(waittest.Clock), Limit{10, 1}, Limit{5, 1})
	require.NoError(t, bucket.Charge(100), "above the capacity, on purpose")
	require.Equal(t, -95.0, bucket.Tokens())
	bucket.Pause(sec)
	for _, zero := range []float64{0, math.Copysign(0, -1)} {
		wait, ok := bucket.TryAcquire(zero)
		require.True(t, ok)
		require.Zero(t, wait)
		require.True(t, bucket.Take(zero).OK)
		require.NoError(t, bucket.Wait(ctx, zero))
		reservation, err := bucket.Reserve(zero)
		require.NoError(t, err)
		require.Zero(t, reservation.Delay())
		require.NoError(t, bucket.Refund(zero))
		require.NoError(t, bucket.Charge(zero))
	}
	require.Equal(t, -95.0, bucket.Tokens())
}

func TestZeroBucketAdmitsNothing(t *testing.T) {
	ctx := context.Background()
	var bucket tokenbucket.Bucket
	wait, ok := bucket.TryAcquire(1)
	require.Equal(t, Never, wait)
	require.False(t, ok)
	_, ok = bucket.TryAcquire(0)
	require.True(t, ok)
	require.Equal(t, Never, bucket.Take(1).Wait)
	require.True(t, bucket.Take(0).OK)
	require.ErrorIs(t, bucket.Wait(ctx, 1), tokenbucket.ErrCostExceedsCapacity)
	require.NoError(t, bucket.Wait(ctx, 0))
	_, err := bucket.Reserve(1)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
	require.NoError(t, bucket.Refund(1))
	require.NoError(t, bucket.Charge(1))
	bucket.Pause(sec)
	bucket.Pause(Never)
	bucket.Fill()
	require.NoError(t, bucket.SetLimits())
	require.ErrorIs(t, bucket.SetLimits(Limit{1, 1}), tokenbucket.ErrInvalidLimit)
	require.Empty(t, bucket.Limits())
	require.Zero(t, bucket.Tokens())
	require.Zero(t, bucket.Waiting())
	_, states := bucket.State()
	require.Empty(t, states)
	var decision Decision
	require.Zero(t, decision.Reset())
	require.Zero(t, decision.Remaining())
	var reservation tokenbucket.Reservation
	require.Zero(t, reservation.Delay())
	require.False(t, reservation.Cancel())
}

func TestNothingIsAllocated(t *testing.T) {
	ctx := context.Background()
	one, two := Limit{1 << 40, 1}, tokenbucket.WithLimit(Limit{1 << 40, 2})
	states := []State{one.Full(0)}
	for name, bucket := range map[string]*tokenbucket.Bucket{
		"one": tokenbucket.MustNew(one), "two": tokenbucket.MustNew(one, two),
		"empty": tokenbucket.MustNew(one, tokenbucket.WithTokens(0)), "two, empty": tokenbucket.MustNew(one, two, tokenbucket.WithTokens(0)),
	} {
		_, admitted := bucket.TryAcquire(1e9)
		for method, call := range map[string]func(){
			"TryAcquire": func() { bucket.TryAcquire(1e9) },
			"Take":       func() { bucket.Take(1e9) },
			"Tokens":     func() { bucket.Tokens() },
			"Wait": func() {
				if admitted {
					_ = bucket.Wait(ctx, 1)
				}
			},
			"Limit.Take":  func() { one.Take(states[0], 0, 1) },
			"Limits.Take": func() { Limits{one}.Take(states, 0, 1) },
		} {
			require.Zero(t, testing.AllocsPerRun(100, call), "%s: %s", name, method)
		}
	}
}

func TestBlockedWaitAllocatesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := tokenbucket.MustNew(Limit{1, 1}, tokenbucket.WithTokens(0))
		allocs := testing.AllocsPerRun(100, func() {
			if err := bucket.Wait(context.Background(), 1); err != nil {
				t.Error(err)
			}
		})
		require.LessOrEqual(t, allocs, 5.0)
	})
}

func TestBucketMadeOutsideOfABubble(t *testing.T) {
	bucket := tokenbucket.MustNew(Limit{1, 1})
	synctest.Test(t, func(t *testing.T) {
		bucket.TryAcquire(1)
		bucket.TryAcquire(1)
		require.LessOrEqual(t, bucket.Tokens(), 1.0)
	})
}

func TestFillServesTheQueueAndEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		bucket := newBucket(t, nil, Limit{10, 1}, Limit{20, 1})
		require.NoError(t, bucket.Charge(50))
		bucket.Pause(Never)
		first := takePlace(t, bucket, start, 6, false)
		second := takePlace(t, bucket, start, 3, true)
		third := takePlace(t, bucket, start, 4, false)
		time.Sleep(sec)
		require.Equal(t, Never, second.reserved.Delay())
		bucket.Fill()
		first.due, second.due, third.due = sec, sec, 4*sec
		for _, p := range []*place{first, second, third} {
			requireLeftAt(t, start, p)
		}
		require.Zero(t, bucket.Tokens())
		require.Zero(t, bucket.Waiting())
	})
}
