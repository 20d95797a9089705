package tokenbucket_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/sleeper"
	"github.com/aa014e13/tokenbucket/internal/testing/race"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/internal/timeline"
)

// steadily is a bucket, and the state that it must have.
type steadily struct {
	bucket *tokenbucket.Bucket
	start  time.Time
	limits Limits
	states []State
}

// pass lets a part of the time to fill pass, at most about a day.
func (s *steadily) pass(part float64) {
	fill := s.limits[0].Capacity / s.limits[0].RefillPerSec
	time.Sleep(time.Duration(min(30*float64(time.Hour), part*fill*1e9)))
}

// decide requests a cost from both, by one of the methods.
func (s *steadily) decide(t *testing.T, random *rand.Rand, cost float64) {
	now := time.Since(s.start)
	want := s.limits.Take(s.states, now, cost)
	switch {
	case random.IntN(2) == 0:
		wait, ok := s.bucket.TryAcquire(cost)
		require.Equal(t, want.OK, ok, "%+v at %v", s.limits, now)
		require.Equal(t, want.Wait, wait, "%+v at %v", s.limits, now)
	case want.OK && random.IntN(2) == 0:
		require.NoError(t, s.bucket.Wait(t.Context(), cost))
	default:
		require.Equal(t, want, s.bucket.Take(cost), "%+v at %v", s.limits, now)
	}
}

// disturb makes a call after which the lock decides again.
func (s *steadily) disturb(t *testing.T, random *rand.Rand) {
	now := time.Since(s.start)
	switch random.IntN(6) {
	case 0:
		tokens := float64(random.IntN(40)) / 4
		require.NoError(t, s.bucket.Refund(tokens))
		require.NoError(t, s.limits.Refund(s.states, now, tokens))
	case 1:
		debt := math.Ceil(random.Float64() * 2 * s.limits[0].Capacity)
		require.NoError(t, s.bucket.Charge(debt))
		require.NoError(t, s.limits.Charge(s.states, now, debt))
		return // the debt comes next
	case 2:
		reservation, err := s.bucket.Reserve(s.limits[0].Capacity)
		require.NoError(t, err)
		if reservation.Delay() > 0 {
			require.True(t, reservation.Cancel())
			return
		}
		s.limits.Take(s.states, now, s.limits[0].Capacity)
	case 3:
		require.NoError(t, s.bucket.SetLimits(s.limits...))
	}
	_, states := s.bucket.State()
	require.Equal(t, s.states, states)
	require.Equal(t, s.limits.Tokens(s.states, now), s.bucket.Tokens())
}

func TestDecisionsWithoutTheLockAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(31, 32))
		for range 400 {
			limit := Limit{float64(1+random.Int64N(1<<random.IntN(40))) / 2, float64(1+random.Int64N(1<<random.IntN(30))) / 8}
			limits := Limits{limit, {limit.Capacity * 2, limit.RefillPerSec / 2}}[:1+random.IntN(2)]
			s := steadily{newBucket(t, nil, limits...), time.Now(), limits, make([]State, len(limits))}
			limits.Fill(s.states, 0)
			for range 12 {
				few := 1 / float64(1+random.IntN(1000))
				for range random.IntN(80) {
					s.pass(random.Float64() * few)
					s.decide(t, random, math.Ceil(random.Float64()*limit.Capacity/float64(1+random.IntN(8))))
				}
				s.pass(random.Float64() * 2) // it may be full now, or far from its anchor
				s.decide(t, random, []float64{0, -1, 0.5, 2.25, 1, math.Ceil(limit.Capacity) + 1}[random.IntN(6)])
				s.disturb(t, random)
			}
		}
	})
}

// The limits refill a token in about a whole number of nanoseconds. The requests come a few
// nanoseconds before and after the instants at which they are full.
func TestDecisionsWithoutTheLockKnowTheNanosecondAtWhichALimitIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(41, 42))
		for range 500 {
			limit := Limit{float64(1 + random.Int64N(1<<random.IntN(20))), 1e9 / float64(1+random.IntN(1<<random.IntN(12)))}
			limit.RefillPerSec *= []float64{1, math.Nextafter(1, 0), math.Nextafter(1, 2), 1000}[random.IntN(4)]
			limits := Limits{limit, {limit.Capacity + 1, limit.RefillPerSec * float64(1+random.IntN(2))}}[:1+random.IntN(2)]
			s := steadily{newBucket(t, nil, limits...), time.Now(), limits, make([]State, len(limits))}
			limits.Fill(s.states, 0)
			for range 100 {
				s.decide(t, random, math.Ceil(random.Float64()*limit.Capacity))
				if random.IntN(3) == 0 {
					full := s.limits.UntilFull(s.states, time.Since(s.start))
					time.Sleep(max(0, full+time.Duration(random.IntN(7)-3)))
				}
			}
			_, states := s.bucket.State()
			require.Equal(t, s.states, states)
		}
	})
}

func TestDecisionsWithoutTheLockAnchorFarLedgersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random, limit := rand.New(rand.NewPCG(35, 36)), Limit{4, 1}
		s := steadily{newBucket(t, nil, limit), time.Now(), Limits{limit}, []State{limit.Full(0)}}
		for range 3000 { // the ledger is 6000 deep in the end
			s.decide(t, random, 2)
			time.Sleep(2 * sec)
		}
		s.decide(t, random, 1)
		_, states := s.bucket.State()
		require.Equal(t, s.states, states)
		require.Greater(t, states[0].Balance, -1025*limit.Capacity)
	})
}

// With the lock, a cost of 0 anchors a deep ledger anew after half of the debt was paid.
func TestDecisionsWithoutTheLockAnchorDeepLedgersAnewForACostOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random, limits := rand.New(rand.NewPCG(45, 46)), Limits{{4, 1}}
		s := steadily{newBucket(t, nil, limits...), time.Now(), limits, []State{{4, 0}}}
		require.NoError(t, s.bucket.Charge(10_000))
		require.NoError(t, limits.Charge(s.states, 0, 10_000))
		for range 20 {
			s.decide(t, random, 1)
		}
		time.Sleep(6000 * sec)
		s.decide(t, random, 0)
		_, states := s.bucket.State()
		require.Equal(t, []State{{-3996, 6000 * sec}}, s.states)
		require.Equal(t, s.states, states)
	})
}

func TestDecisionsWithoutTheLockAnchorOldLedgersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random, limits := rand.New(rand.NewPCG(43, 44)), Limits{{1000, 1e-3}}
		for _, age := range []time.Duration{10 * time.Hour, 25 * time.Hour} {
			s := steadily{newBucket(t, nil, limits...), time.Now(), limits, []State{limits[0].Full(0)}}
			for range 100 {
				s.decide(t, random, 5)
			}
			time.Sleep(age)
			s.decide(t, random, 1)
			_, states := s.bucket.State()
			require.Equal(t, s.states, states)
		}
	})
}

// A call of Tokens takes the lock and ends the epoch. This must not change which subtractions
// are rounded.
func TestDecisionsWithoutTheLockRoundOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(37, 38))
		for range 500 {
			limit := Limit{1 + math.Exp2(40*random.Float64()), math.Exp2(30 * random.Float64())}
			limits := Limits{limit, {1.5 * limit.Capacity, limit.RefillPerSec}}[:1+random.IntN(2)]
			s := steadily{newBucket(t, nil, limits...), time.Now(), limits, make([]State, len(limits))}
			limits.Fill(s.states, 0)
			for range 200 {
				s.pass(random.Float64() / 3)
				s.decide(t, random, math.Ceil(random.Float64()*limit.Capacity/2))
			}
			_, states := s.bucket.State()
			require.Equal(t, s.states, states)
		}
	})
}

func TestRefusalsNeedNoLockWhateverIsToBeAnchoredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := func(bucket *tokenbucket.Bucket) func() {
			return func() {
				for range 100 {
					_, ok := bucket.TryAcquire(1)
					require.False(t, ok)
				}
			}
		}
		deep := newBucket(t, nil, Limit{1, 1e-3})
		require.NoError(t, deep.Charge(5000))
		require.Equal(t, 0.0, testing.AllocsPerRun(20, refusals(deep)))

		oneIsFull := newBucket(t, nil, Limit{1, 1e-3}, Limit{10, 10})
		require.True(t, oneIsFull.Take(1).OK)
		time.Sleep(sec)
		require.Equal(t, 0.0, testing.AllocsPerRun(20, refusals(oneIsFull)))
	})
}

// Otherwise the readings of the clock of these decisions would be lost.
func TestLimitsAndTheirWrongNumberLeaveDecisionsWithoutTheLock(t *testing.T) {
	bucket := newBucket(t, nil, Limit{1 << 40, 1})
	allocs := func(decisions int) float64 {
		return testing.AllocsPerRun(5, func() {
			for range 100 {
				require.ErrorIs(t, bucket.SetLimits(), tokenbucket.ErrInvalidLimit)
				require.Len(t, bucket.Limits(), 1)
				for range decisions {
					bucket.TryAcquire(1)
				}
			}
		})
	}
	require.InDelta(t, allocs(0), allocs(20), 50, "less than one each time")
}

func TestDecisionsWithoutTheLockNeedAClockThatNeverStepsBack(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{100, 1})
	for range 50 {
		bucket.TryAcquire(1)
	}
	mock.Set(20 * sec)
	bucket.TryAcquire(1)
	mock.Set(10 * sec)
	require.Equal(t, 69.0, bucket.Tokens(), "as of the latest reading")
}

func TestDecisionsWithoutTheLockHeedALaterReadingThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit{100, 1}
		bucket := tokenbucket.MustNew(limit, tokenbucket.WithState(time.Now(), []State{{0, 0}}), tokenbucket.WithLatest(50*sec))
		for range 50 {
			_, ok := bucket.TryAcquire(1)
			require.True(t, ok, "there are 50 as of the latest reading")
		}
	})
}

// stalled is a bucket with 10 tokens at most and 1 more a second, and the latest decision of
// a caller that is held up after some readings of the clock.
type stalled struct {
	*tokenbucket.Bucket
	saw  func()
	late tokenbucket.Decision
}

func newStalled(tokens float64) *stalled {
	s := &stalled{saw: func() {}}
	watched := timeline.Watched{Saw: func(time.Duration) { s.saw() }}
	s.Bucket = tokenbucket.MustNew(Limit{10, 1}, tokenbucket.WithClock(watched), tokenbucket.WithTokens(tokens))
	return s
}

// begin makes enough decisions for an epoch.
func (s *stalled) begin() {
	for range 20 {
		s.Take(11)
	}
}

// take takes a cost in a goroutine of its own. After its first reading of the clock, it calls
// the first function before it continues, and so on.
func (s *stalled) take(cost float64, stalls ...func()) {
	reading, called := make(chan struct{}), make(chan struct{})
	own := func() { reading <- struct{}{}; <-called }
	s.saw = own
	done := make(chan struct{})
	go func() { defer close(done); s.late = s.Take(cost) }()
	for _, stall := range stalls {
		<-reading
		s.saw = func() {}
		stall()
		s.saw = own
		called <- struct{}{}
	}
	for {
		select {
		case <-reading:
			called <- struct{}{}
		case <-done:
			s.saw = func() {}
			return
		}
	}
}

// A caller is held up before it gets the lock. Meanwhile an epoch begins, admits a cost at a
// later reading, and ends for a call that returns an error. The caller then counts as one at
// the later reading.
func TestDecisionsWithoutTheLockLeaveTheirReadingsBehindAnError(t *testing.T) {
	for _, invalid := range []float64{-1, 11} {
		synctest.Test(t, func(t *testing.T) {
			s := newStalled(0)
			s.take(1, func() {
				s.begin()
				time.Sleep(5 * sec)
				require.True(t, s.Take(1).OK)
				require.Error(t, s.Wait(t.Context(), invalid))
			})
			require.True(t, s.late.OK, "%+v", s.late)
			require.Equal(t, 3.0, s.late.Tokens)
		})
	}
}

// A caller is held up, and the word changes. The caller must not be refused by its own reading
// and the later word, whatever was refused meanwhile.
func TestDecisionsWithoutTheLockRefuseByAReadingAfterTheWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := func(s *stalled, tokens float64) {
			d := s.Take(1)
			require.True(t, d.OK)
			require.Equal(t, tokens, d.Tokens)
		}
		refuse := func(s *stalled, cost float64) { require.False(t, s.Take(cost).OK) }
		for _, stalls := range [][]func(*stalled){
			{func(s *stalled) { time.Sleep(6 * sec); admit(s, 5) }},
			{func(s *stalled) { time.Sleep(6 * sec); admit(s, 5); refuse(s, 6) }},
			{func(s *stalled) { time.Sleep(5 * sec); admit(s, 4); refuse(s, 5); refuse(s, 5); time.Sleep(sec) }},
			{
				func(s *stalled) { time.Sleep(sec); admit(s, 0) },
				func(s *stalled) { time.Sleep(6 * sec); admit(s, 5) },
			},
		} {
			s := newStalled(0)
			s.begin()
			var calls []func()
			for _, stall := range stalls {
				calls = append(calls, func() { stall(s) })
			}
			s.take(5, calls...)
			require.True(t, s.late.OK, "%+v", s.late)
			require.Equal(t, 0.0, s.Tokens())
		}
	})
}

// A cost of 0 leaves the bucket full at its reading. A caller with an earlier reading takes
// tokens from then on.
func TestDecisionsWithoutTheLockCountAtTheAnchorIfTheyAreEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStalled(10)
		s.begin()
		s.take(1, func() {
			time.Sleep(5 * sec)
			require.True(t, s.Take(0).OK)
		})
		require.True(t, s.late.OK)
		_, states := s.State()
		require.Equal(t, []State{{9, 5 * sec}}, states)
	})
}

// allocations returns the number of allocations of ten times as many decisions. It calls one
// function after each decision and another one after each ten.
func allocations(bucket *tokenbucket.Bucket, cost float64, decisions int, each, after func()) float64 {
	return testing.AllocsPerRun(20, func() {
		for range 10 {
			for range decisions {
				bucket.TryAcquire(cost)
				each()
			}
			after()
		}
	})
}

func TestDecisionsWithoutTheLockBeginAfterSixteenOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := newBucket(t, nil, Limit{1 << 40, 1 << 40})
		look, nothing := func() { bucket.Tokens() }, func() {}
		look()
		require.Equal(t, 10.0, allocations(bucket, 1, 16, nothing, look))
		require.Equal(t, 10.0, allocations(bucket, 1, 1000, nothing, look))
		require.Equal(t, 5.0, allocations(bucket, 1, 8, nothing, look))
		require.Equal(t, 0.0, allocations(bucket, 0.5, 1000, nothing, look), "no epoch counts halves")
	})
}

func TestDecisionsWithoutTheLockGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newBucket(t, nil, Limit{100, 1e6}), newBucket(t, nil, Limit{100, 1e6}, Limit{200, 1e7})
		nothing, sleep := func() {}, func() { time.Sleep(ms) }
		for _, bucket := range []*tokenbucket.Bucket{one, two} {
			require.Equal(t, 0.0, allocations(bucket, 1, 100, sleep, nothing), "it is full each time")
			require.Equal(t, 0.0, allocations(bucket, 100, 100, sleep, nothing), "by then")
			require.Equal(t, 10.0, allocations(bucket, 1, 100, nothing, func() {
				bucket.TryAcquire(0)
				bucket.TryAcquire(101)
				bucket.Limits()
			}), "Limits returns a copy")
		}
	})
}

func TestRarelyUsedBucketsAllocateNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limits := range [][]Limit{{{100, 1}}, {{100, 1}, {1000, 1}}, {{1 << 40, 1}}} {
			bucket := newBucket(t, nil, limits...)
			require.Equal(t, 0.0, allocations(bucket, 1, 100, func() { time.Sleep(5 * time.Minute) }, func() {}))
		}
	})
}

// The test spends as many tokens as the word of an epoch can count, and more.
func TestDecisionsWithoutTheLockSpendALot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(39, 40))
		for _, capacity := range []float64{1, 1 << 18, 1<<18 + 0.5, 1 << 30, 1 << 42} {
			limit := Limit{capacity, capacity * 1e3}
			s := steadily{newBucket(t, nil, limit), time.Now(), Limits{limit}, []State{limit.Full(0)}}
			s.decide(t, random, math.Floor(capacity))
			for range 2000 {
				time.Sleep(ms / 2)
				s.decide(t, random, math.Ceil(capacity/4))
				s.decide(t, random, math.Ceil(capacity/4))
			}
			_, states := s.bucket.State()
			require.Equal(t, s.states, states)
		}
	})
}

// A goroutine first takes the cost from a copy of the states. If the copy admits it, the
// bucket must admit it, too, although other goroutines take tokens and call Tokens at the
// same time. A fault shows in some of the rounds.
func TestDecisionsWithoutTheLockRefuseNoneWithoutCause(t *testing.T) {
	for round := range uint64(race.Fewer(30)) {
		limit := Limit{1 << 40, 4e6}
		bucket := tokenbucket.MustNew(limit, tokenbucket.WithTokens(0))
		origin, states := bucket.State()
		var copied sync.Mutex
		var group sync.WaitGroup
		for worker := range uint64(4) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(round, worker))
				for range 30_000 {
					now := time.Since(origin)
					copied.Lock()
					_, paid := Limits{limit}.TryAcquire(states, now, 1)
					copied.Unlock()
					if !paid {
						continue
					}
					if random.IntN(30) == 0 {
						bucket.Tokens() // then the lock decides for a while
					}
					_, ok := bucket.TryAcquire(1)
					assert.True(t, ok)
				}
			})
		}
		group.Wait()
	}
}

// Nothing is refilled during the test, so every token can be accounted for.
func TestDecisionsWithoutTheLockLoseAndMintNothing(t *testing.T) {
	const capacity = 1 << 16
	limit := Limit{capacity, 1e-9}
	for seed := range uint64(20) {
		bucket := newBucket(t, nil, limit)
		var taken atomic.Int64
		var group sync.WaitGroup
		for worker := range uint64(8) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, worker))
				for range 2000 {
					taken.Add(takeOrInterfere(t, bucket, random))
				}
				for ok := true; ok; {
					if _, ok = bucket.TryAcquire(1); ok {
						taken.Add(1)
					}
				}
			})
		}
		group.Wait()
		require.Equal(t, int64(capacity), taken.Load())
		require.Equal(t, 0.0, math.Floor(bucket.Tokens()))
	}
}

func takeOrInterfere(t *testing.T, bucket *tokenbucket.Bucket, random *rand.Rand) (taken int64) {
	cost := 1 + random.Int64N(4)
	switch ok := bucket.Take(float64(cost)).OK; {
	case !ok:
		return 0
	case random.IntN(100) > 0:
	case random.IntN(2) == 0:
		assert.NoError(t, bucket.Refund(float64(cost)))
		return 0
	default:
		assert.NoError(t, bucket.SetLimits(bucket.Limits()...))
	}
	return cost
}

// A waiter ends an epoch. So bursts of decisions with waits between them start no epoch,
// and a long series of decisions after a wait starts one.
func TestShortBurstsBetweenWaitsKeepTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, bucket, waiter := time.Now(), newBucket(t, nil, Limit{1000, 1000}), sleeper.Sleeper{}
		burst := func(decisions int) float64 {
			return testing.AllocsPerRun(10, func() {
				bucket.Fill()
				for range decisions {
					_, ok := bucket.TryAcquire(1)
					require.True(t, ok)
				}
				require.NoError(t, waiter.Wait(t.Context(), bucket, 1000))
			})
		}
		require.Zero(t, burst(200))
		require.NotZero(t, burst(300))
		require.Equal(t, 11*200*ms+11*300*ms, time.Since(start))
	})
}
