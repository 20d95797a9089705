package tokenbucket_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// All methods are called at once, for the race detector: no waiter is forgotten, and no more
// tokens are taken than the bucket had.
func TestEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refill = 50
		start := time.Now()
		bucket := tokenbucket.MustNew(Limit{20, refill}, tokenbucket.WithLimit(Limit{40, refill}), tokenbucket.WithMaxWaiters(100))
		var taken, refunded atomic.Int64
		var group sync.WaitGroup
		for worker := range uint64(40) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(worker, 5))
				for range 60 {
					refunded.Add(meddle(t, bucket, random))
					taken.Add(takeSome(bucket, random))
					time.Sleep(time.Duration(random.IntN(20)) * 10 * ms)
				}
			})
		}
		group.Wait()
		require.LessOrEqual(t, float64(taken.Load()), 20+refill*time.Since(start).Seconds()+float64(refunded.Load()))
		time.Sleep(time.Hour)
		require.Zero(t, bucket.Waiting())
		require.Equal(t, 20.0, bucket.Tokens(), "the first of the limits is full")
	})
}

func meddle(t *testing.T, bucket *tokenbucket.Bucket, random *rand.Rand) (refunded int64) {
	switch random.IntN(30) {
	case 0:
		bucket.Pause(time.Duration(random.IntN(20)) * 10 * ms)
	case 1:
		assert.NoError(t, bucket.SetLimits(Limit{20, 50}, Limit{float64(20 + random.IntN(40)), 50}))
	case 2:
		assert.NoError(t, bucket.Refund(3))
		return 3
	case 3:
		assert.NoError(t, bucket.Charge(2))
	}
	return 0
}

// takeSome tries to take a random cost by a random method, and returns the number of
// tokens it got.
func takeSome(bucket *tokenbucket.Bucket, random *rand.Rand) int64 {
	cost := int64(1 + random.IntN(20))
	ok := false
	switch random.IntN(4) {
	case 0:
		_, ok = bucket.TryAcquire(float64(cost))
	case 1:
		ok = bucket.Take(float64(cost)).OK
	case 2:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(300))*10*ms)
		defer cancel()
		ok = bucket.Wait(ctx, float64(cost)) == nil
	case 3:
		ok = sleepOff(bucket, float64(cost), time.Duration(random.IntN(300))*10*ms)
	}
	if ok {
		return cost
	}
	return 0
}

// sleepOff sleeps until a reservation is due, or cancels it if that takes too long.
func sleepOff(bucket *tokenbucket.Bucket, cost float64, patience time.Duration) bool {
	reservation, err := bucket.Reserve(cost)
	if err != nil {
		return false
	}
	for delay := reservation.Delay(); delay > 0; delay = reservation.Delay() {
		if delay > patience && reservation.Cancel() {
			return false
		}
		time.Sleep(min(delay, time.Minute))
	}
	return true
}

// tempest makes random calls of a bucket at the same time. Its sums are in quarters of a
// token.
type tempest struct {
	bucket *tokenbucket.Bucket
	spent  atomic.Int64
}

func (s *tempest) pay(quarters int) { s.spent.Add(int64(quarters)) }

func (s *tempest) strike(t *testing.T, random *rand.Rand) {
	quarters := random.IntN(40)
	tokens := float64(quarters) / 4
	switch random.IntN(8) {
	case 0, 1, 2:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(30*sec))))
		defer cancel()
		if s.bucket.Wait(ctx, tokens) == nil {
			s.pay(quarters)
		}
	case 3:
		s.reserve(t, random, quarters)
	case 4:
		if _, ok := s.bucket.TryAcquire(tokens); ok {
			s.pay(quarters)
		}
	case 5:
		if s.bucket.Take(tokens).OK {
			s.pay(quarters)
		}
	case 6:
		assert.NoError(t, s.bucket.Refund(tokens))
		s.pay(-quarters)
	case 7:
		assert.NoError(t, s.bucket.Charge(tokens))
		s.pay(quarters)
	}
}

func (s *tempest) reserve(t *testing.T, random *rand.Rand, quarters int) {
	r, err := s.bucket.Reserve(float64(quarters) / 4)
	if !assert.NoError(t, err) {
		return
	}
	patience := random.IntN(4)
	for delay := r.Delay(); delay > 0; delay = r.Delay() {
		if patience--; patience < 0 && r.Cancel() {
			return
		}
		time.Sleep(max(1, delay/2))
	}
	s.pay(quarters)
}

// rage runs many goroutines that use one bucket, in virtual time.
func (s *tempest) rage(t *testing.T, seed uint64, disturb func(random *rand.Rand)) {
	var group sync.WaitGroup
	for i := range uint64(40) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, i))
			for range 30 {
				time.Sleep(time.Duration(random.Int64N(int64(2 * sec))))
				s.strike(t, random)
				disturb(random)
			}
		})
	}
	group.Wait()
	require.Zero(t, s.bucket.Waiting())
}

func TestStormOfAllMethodsLosesAndMintsNothing(t *testing.T) {
	for seed := range uint64(4) {
		for _, limits := range [][]Limit{{{1 << 20, 64}}, {{1 << 20, 64}, {1 << 20, 128}}} {
			t.Run(fmt.Sprint(seed, limits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					s := &tempest{bucket: newBucket(t, nil, limits...)}
					s.bucket.TryAcquire(1 << 20)
					s.rage(t, seed, func(*rand.Rand) {})
					seconds := int64(time.Since(start)/sec) + 1
					time.Sleep(time.Duration(seconds)*sec - time.Since(start)) // so that all levels are exact
					require.Equal(t, float64(64*4*seconds-s.spent.Load())/4, s.bucket.Tokens())
				})
			})
		}
	}
}
