package tokenbucket_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestWaiting(t *testing.T) {
	waittest.Run(t, func(t testing.TB, clock tokenbucket.Clock, limits ...Limit) waittest.Bucket {
		return newBucket(t, clock, limits...)
	})
}

// place is a waiter or a reservation, with the instant at which it must leave.
type place struct {
	cost     float64
	due      time.Duration
	reserved *tokenbucket.Reservation // nil: a waiter
	cancel   context.CancelFunc
	left     chan time.Duration // when a waiter got its tokens
}

func takePlace(t *testing.T, bucket *tokenbucket.Bucket, start time.Time, cost float64, reserve bool) *place {
	p := &place{cost: cost}
	if reserve {
		var err error
		p.reserved, err = bucket.Reserve(cost)
		require.NoError(t, err)
		p.cancel = func() { require.True(t, p.reserved.Cancel()) }
		return p
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel, p.left = cancel, make(chan time.Duration, 1)
	go func() {
		defer cancel()
		if bucket.Wait(ctx, cost) == nil {
			p.left <- time.Since(start)
		}
	}()
	synctest.Wait()
	return p
}

// turns computes the turns of a single limit in closed form: the sum of the costs up to
// and including the turn, minus the level, divided by the refill, rounded up. All numbers
// are whole billionths of a token.
func turns(now time.Duration, level, refill int64, places []*place) {
	for _, p := range places {
		level -= int64(p.cost * 1e9)
		p.due = now + time.Duration(max(0, (-level+refill-1)/refill))
	}
}

// After each change of the queue, each waiter leaves at the instant that is then right.
func TestTurnsOfWaitersAndReservationsAfterAnyChange(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) { changeTurns(t, rand.New(rand.NewPCG(seed, 3))) })
	}
}

func changeTurns(t *testing.T, random *rand.Rand) {
	start := time.Now()
	refill := []int64{1, 2, 3, 7}[random.IntN(4)]
	bucket := newBucket(t, nil, Limit{16, float64(refill)})
	bucket.TryAcquire(16)
	var places []*place
	for range 1 + random.IntN(8) {
		places = append(places, takePlace(t, bucket, start, float64(1+random.IntN(32))/4, random.IntN(2) == 0))
	}
	turns(0, 0, refill, places)
	now := time.Duration(1)
	if last := places[len(places)-1].due; last > 1 {
		now = 1 + time.Duration(random.Int64N(int64(last)-1)) // before the last has left
	}
	level := refill * int64(now)
	time.Sleep(now)
	synctest.Wait()
	for places[0].due <= now {
		level -= int64(places[0].cost * 1e9)
		requireLeftAt(t, start, places[0])
		places = places[1:]
	}
	amount := random.Int64N(80)
	switch random.IntN(4) {
	case 0:
		require.NoError(t, bucket.Refund(float64(amount)/4))
		level = min(16e9, level+amount*25e7)
	case 1:
		require.NoError(t, bucket.Charge(float64(amount)/4))
		level -= amount * 25e7
	case 2:
		bucket.Pause(time.Duration(amount))
		if amount > 0 {
			level = min(0, level) - refill*amount
		}
	case 3:
		gone := random.IntN(len(places))
		places[gone].cancel()
		synctest.Wait()
		places = append(places[:gone:gone], places[gone+1:]...)
	}
	turns(now, level, refill, places)
	for _, p := range places {
		requireLeftAt(t, start, p)
	}
	synctest.Wait()
	require.Zero(t, bucket.Waiting())
}

func requireLeftAt(t *testing.T, start time.Time, p *place) {
	t.Helper()
	if p.reserved == nil {
		require.Equal(t, p.due, <-p.left)
		return
	}
	if wait := p.due - time.Since(start); wait > 0 {
		require.Equal(t, wait, p.reserved.Delay())
		time.Sleep(wait - 1)
		require.Equal(t, time.Duration(1), p.reserved.Delay())
		time.Sleep(time.Nanosecond)
	}
	require.Zero(t, p.reserved.Delay())
	require.False(t, p.reserved.Cancel())
}
