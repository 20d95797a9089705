package keyed_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/race"
	"github.com/aa014e13/tokenbucket/internal/testing/vectors"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

const sec = time.Second

func limit(capacity, refill float64) tokenbucket.Limit {
	return tokenbucket.Limit{Capacity: capacity, RefillPerSec: refill}
}

func newBuckets[K comparable](t testing.TB, clock tokenbucket.Clock, limits []tokenbucket.Limit, opts ...keyed.Option) *keyed.Buckets[K] {
	t.Helper()
	opts = append(opts, keyed.WithClock(clock))
	for _, l := range limits[1:] {
		opts = append(opts, keyed.WithLimit(l))
	}
	b, err := keyed.New[K](limits[0], opts...)
	require.NoError(t, err)
	return b
}

// oneKey is the bucket of one key, with the methods of a Bucket.
type oneKey struct {
	*keyed.Buckets[string]
	key string
}

func (k oneKey) TryAcquire(cost float64) (time.Duration, bool) {
	return k.Buckets.TryAcquire(k.key, cost)
}
func (k oneKey) Take(cost float64) tokenbucket.Decision { return k.Buckets.Take(k.key, cost) }
func (k oneKey) Wait(ctx context.Context, cost float64) error {
	return k.Buckets.Wait(ctx, k.key, cost)
}
func (k oneKey) Refund(cost float64) error { return k.Buckets.Refund(k.key, cost) }
func (k oneKey) Charge(cost float64) error { return k.Buckets.Charge(k.key, cost) }
func (k oneKey) Pause(d time.Duration)     { k.Buckets.Pause(k.key, d) }
func (k oneKey) Tokens() float64           { return k.Buckets.Tokens(k.key) }
func (k oneKey) Waiting() int              { return k.Buckets.Waiting(k.key) }

func TestVectors(t *testing.T) {
	for _, v := range vectors.All() {
		clock := new(waittest.Clock)
		taking, trying := newBuckets[string](t, clock, v.Limits), newBuckets[int](t, clock, v.Limits)
		for i, step := range v.Steps {
			clock.Set(step.At)
			d := taking.Take("key", step.Cost)
			wait, ok := trying.TryAcquire(7, step.Cost)
			require.Equal(t, step.OK, d.OK, "%s, step %d", v.Name, i)
			require.Equal(t, step.Wait, d.Wait, "%s, step %d", v.Name, i)
			require.Equal(t, step.OK, ok, "%s, step %d", v.Name, i)
			require.Equal(t, step.Wait, wait, "%s, step %d", v.Name, i)
			require.InDelta(t, step.Tokens, taking.Tokens("key"), 1e-9, "%s, step %d", v.Name, i)
		}
	}
}

func TestWaiting(t *testing.T) {
	waittest.Run(t, func(t testing.TB, clock tokenbucket.Clock, limits ...tokenbucket.Limit) waittest.Bucket {
		return oneKey{newBuckets[string](t, clock, limits), "key"}
	})
}

// The overflow bucket must pass the same tests.
func TestWaitingWithoutRoom(t *testing.T) {
	waittest.Run(t, func(t testing.TB, clock tokenbucket.Clock, limits ...tokenbucket.Limit) waittest.Bucket {
		b := newBuckets[string](t, clock, limits, keyed.WithMaxKeys(1))
		require.NoError(t, b.Charge("other", 1e12))
		return oneKey{b, "key"}
	})
}

// The model has one Bucket per key and never forgets a key.
func TestForgettingForgivesNobody(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 0))
		clock := new(waittest.Clock)
		limits := []tokenbucket.Limit{limit(10, 1), limit(20, 0.3)}[:1+seed%2]
		b := newBuckets[int](t, clock, limits)
		model := map[int]*tokenbucket.Bucket{}
		var now time.Duration
		for range 20_000 {
			now += time.Duration(random.Int64N(int64(sec / 10)))
			clock.Set(now)
			key := int(random.ExpFloat64() * 100)
			if model[key] == nil {
				model[key] = newModel(t, clock, limits)
			}
			same(t, b, model[key], key, random)
		}
		require.Less(t, b.Len(), len(model), "some have been forgotten")
	}
}

// This is the same test with a clock that steps back. The keys are so few that they are
// in one shard, so the latest reading of one of them counts for all.
func TestForgettingForgivesNobodyWhenTheClockStepsBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	clock := new(waittest.Clock)
	limits := []tokenbucket.Limit{limit(10, 1), limit(20, 0.3)}
	b := newBuckets[int](t, clock, limits, keyed.WithMaxKeys(200))
	model := make([]*tokenbucket.Bucket, 150)
	for key := range model {
		model[key] = newModel(t, clock, limits)
	}
	var now time.Duration
	for range 20_000 {
		if random.IntN(20) == 0 {
			for _, m := range model {
				m.Latest()
			}
			now = max(0, now-time.Duration(random.Int64N(int64(3*sec))))
		}
		now += time.Duration(random.Int64N(int64(sec / 2)))
		clock.Set(now)
		key, cost := random.IntN(len(model)), float64(random.IntN(23))/2
		want, got := model[key].Take(cost), b.Take(key, cost)
		want.Tokens, got.Tokens = math.Round(want.Tokens*1e9), math.Round(got.Tokens*1e9)
		require.Equal(t, want, got, "key %d, cost %v", key, cost)
	}
	require.Less(t, b.Len(), len(model), "some have been forgotten")
}

func newModel(t *testing.T, clock tokenbucket.Clock, limits []tokenbucket.Limit) *tokenbucket.Bucket {
	var opts []tokenbucket.Option
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	b, err := tokenbucket.New(limits[0], append(opts, tokenbucket.WithClock(clock))...)
	require.NoError(t, err)
	return b
}

func same(t *testing.T, b *keyed.Buckets[int], model *tokenbucket.Bucket, key int, random *rand.Rand) {
	t.Helper()
	cost := float64(random.IntN(23)) / 2
	switch random.IntN(12) {
	case 0:
		require.Equal(t, model.Refund(cost), b.Refund(key, cost))
	case 1:
		require.Equal(t, model.Charge(cost), b.Charge(key, cost))
	case 2:
		d := time.Duration(random.IntN(3)) * sec
		model.Pause(d)
		b.Pause(key, d)
	case 3:
		require.Equal(t, model.Tokens(), b.Tokens(key))
	default:
		want, got := model.Take(cost), b.Take(key, cost)
		want.Tokens, got.Tokens = math.Round(want.Tokens*1e9), math.Round(got.Tokens*1e9)
		require.Equal(t, want, got, "key %d, cost %v", key, cost)
	}
}

func TestApmServer1367FullTableForgivesNobody(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(1, 1)}, keyed.WithMaxKeys(2))
	try := func(key string, want bool) {
		t.Helper()
		_, ok := b.TryAcquire(key, 1)
		require.Equal(t, want, ok, key)
		require.LessOrEqual(t, b.Len(), 2)
	}
	try("a", true)
	try("b", true)
	try("c", true) // the overflow bucket's one
	try("d", false)
	try("a", false)
	try("b", false)
	clock.Set(sec / 2)
	try("a", false)
	clock.Set(sec)
	try("c", true) // there is room: its own, full
	try("d", true)
	try("c", false)
	try("e", true) // the overflow bucket is full again, too
	try("f", false)
}

func TestExactlyTheCapacityOnANewKey(t *testing.T) { // go-gallery#1480, limiters#71
	clock := new(waittest.Clock)
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(10, 1)})
	for round := range 20 {
		var admitted atomic.Int64
		var group sync.WaitGroup
		for i := range 200 {
			group.Go(func() {
				if _, ok := b.TryAcquire(-1-round, 1); ok {
					admitted.Add(1)
				}
				b.TryAcquire(i, 0.5) // and sweeps
			})
		}
		group.Wait()
		require.Equal(t, int64(10), admitted.Load())
		clock.Set(time.Duration(round) * 300 * time.Millisecond)
	}
}

func TestLemmy4560(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(2, 1)})
	b.TryAcquire("a", 2)
	clock.Set(sec / 2)
	wait, ok := b.TryAcquire("a", 1)
	require.False(t, ok)
	require.Equal(t, sec/2, wait)
	clock.Set(2 * sec)
	sweepAll(b)
	require.Zero(t, b.Len())
	require.Equal(t, 2.0, b.Tokens("a"))
}

// sweepAll calls Tokens for new keys until every shard has been swept. These keys are not
// remembered.
func sweepAll(b *keyed.Buckets[string]) {
	for i := 0; i < 100_000 || b.Len() > 0 && i < 400_000; i++ {
		b.Tokens("sweep " + strconv.Itoa(i))
	}
}

func TestMemoryIsGivenBack(t *testing.T) { // tollbooth#30, governor#171
	clock := new(waittest.Clock)
	before := heap()
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(1, 1)})
	for i := range 1_000_000 / shrinkage() {
		b.TryAcquire(strconv.Itoa(i), 1)
	}
	require.Equal(t, 1_000_000/shrinkage(), b.Len())
	clock.Set(sec)
	sweepAll(b)
	require.Zero(t, b.Len())
	require.Less(t, heap()-before, 2e6)
	runtime.KeepAlive(b)
}

func TestFloodLeavesMemoryAndKnownKeysAlone(t *testing.T) {
	clock := new(waittest.Clock)
	const known = 100
	random := rand.New(rand.NewPCG(1, 2))
	limits := []tokenbucket.Limit{limit(5, 0.01)}
	b := newBuckets[int](t, clock, limits, keyed.WithMaxKeys(100_000))
	model := map[int]*tokenbucket.Bucket{}
	for key := range known {
		model[key] = newModel(t, clock, limits)
		require.True(t, b.Take(key, 5).OK)
		require.True(t, model[key].Take(5).OK)
	}
	before := heap()
	for i := range 10_000_000 / shrinkage() {
		b.TryAcquire(known+int(random.Int64()>>1), 1)
		if i%1000 == 0 {
			clock.Set(time.Duration(i) * sec / 100_000)
			key := i / 1000 % known
			require.Equal(t, model[key].Take(0.25), b.Take(key, 0.25))
			require.LessOrEqual(t, b.Len(), 100_000)
		}
	}
	require.Less(t, heap()-before, 100_000*60.0)
	runtime.KeepAlive(b)
}

// shrinkage returns the number by which the sizes of large tests are divided, so that
// they do not take too long.
func shrinkage() int {
	if testing.Short() || race.Enabled {
		return 20
	}
	return 1
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func TestBytesPerKey(t *testing.T) {
	step := 100_000
	if shrinkage() > 1 {
		step = 50_000
	}
	keys := make([]string, 13*step)
	for i := range keys {
		keys[i] = "key " + strconv.Itoa(i)
	}
	for limits, most := range map[int]float64{1: 56, 2: 80} {
		before := heap()
		b := newBuckets[string](t, new(waittest.Clock), []tokenbucket.Limit{limit(10, 1), limit(20, 1)}[:limits])
		for i, key := range keys {
			b.TryAcquire(key, 1)
			if n := i + 1; n != 7*step && n != 10*step && n != 13*step {
				continue
			}
			perKey := (heap() - before) / float64(b.Len())
			t.Logf("%d keys, %d limits: %.1f bytes a key", b.Len(), limits, perKey)
			require.LessOrEqual(t, perKey, most)
		}
		require.Equal(t, len(keys), b.Len())
		runtime.KeepAlive(keys)
	}
}

func TestAllocations(t *testing.T) {
	b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(1e9, 1)})
	keys := make([]string, 20_000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	b.TryAcquire("known", 1)
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.TryAcquire("known", 1)
		b.Take("known", 1)
		_ = b.Wait(ctx, "known", 1)
		b.Tokens("unknown")
	}))
	next := 0
	require.LessOrEqual(t, testing.AllocsPerRun(1, func() {
		for range len(keys) / 2 {
			b.TryAcquire(keys[next], 1)
			next++
		}
	})/float64(len(keys)/2), 0.5, "a key allocates nothing, only now and then a table")
}

func TestNothingIsKeptForWhatTakesNothing(t *testing.T) {
	b := newBuckets[string](t, new(waittest.Clock), []tokenbucket.Limit{limit(10, 1)})
	b.TryAcquire("a", 0)
	b.TryAcquire("a", -1)
	b.TryAcquire("a", math.NaN())
	b.TryAcquire("a", 11)
	require.Equal(t, tokenbucket.Never, b.Take("a", 11).Wait)
	require.NoError(t, b.Refund("a", 5))
	require.ErrorIs(t, b.Charge("a", -1), tokenbucket.ErrInvalidCost)
	require.ErrorIs(t, b.Refund("a", math.Inf(1)), tokenbucket.ErrInvalidCost)
	require.ErrorIs(t, b.Wait(context.Background(), "a", 11), tokenbucket.ErrCostExceedsCapacity)
	require.ErrorIs(t, b.Wait(context.Background(), "a", -1), tokenbucket.ErrInvalidCost)
	b.Pause("a", 0)
	b.Pause("a", -sec)
	b.Forget("a")
	require.Equal(t, 10.0, b.Tokens("a"))
	require.Zero(t, b.Waiting("a"))
	require.Zero(t, b.Len())
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(2, 1)})
		b.TryAcquire("a", 2)
		require.Equal(t, 1, b.Len())
		b.Forget("a")
		require.Zero(t, b.Len())
		require.True(t, b.Take("a", 2).OK)

		b.Pause("a", time.Hour)
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { assert.NoError(t, b.Wait(context.Background(), "a", 1)) })
		}
		synctest.Wait()
		require.Equal(t, 2, b.Waiting("a"))
		require.Equal(t, 1, b.Len())
		b.Forget("a")
		group.Wait()
		require.Zero(t, b.Waiting("a"))
		require.Zero(t, b.Tokens("a"))

		b.Pause("a", time.Hour)
		b.Forget("a")
		require.Zero(t, b.Len())
		require.Equal(t, 2.0, b.Tokens("a"))
	})
}

func TestPausedKeysAreKeptUntilTheyAreFull(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(2, 1)})
	b.Pause("a", 10*sec)
	sweepAll(b)
	require.Equal(t, 1, b.Len())
	clock.Set(9 * sec)
	require.Equal(t, 2*sec, b.Take("a", 1).Wait)
	clock.Set(11 * sec)
	require.Equal(t, 1.0, b.Tokens("a"))
	require.Equal(t, 1, b.Len())
	clock.Set(12 * sec)
	sweepAll(b)
	require.Zero(t, b.Len())
}

func TestRefundedKeysAreForgottenAtOnce(t *testing.T) {
	for name, refund := range map[string]func(b *keyed.Buckets[int]) error{
		"Refund":     func(b *keyed.Buckets[int]) error { return b.Refund(1, 2) },
		"RefundEach": func(b *keyed.Buckets[int]) error { return b.RefundEach(1, 2) },
	} {
		b := newBuckets[int](t, new(waittest.Clock), []tokenbucket.Limit{limit(2, 1)}, keyed.WithMaxKeys(100))
		b.TryAcquire(1, 2)
		look := func() {
			for key := range 10 {
				b.Tokens(10 + key)
			}
		}
		look()
		require.Equal(t, 1, b.Len(), name)
		require.NoError(t, refund(b))
		look()
		require.Zero(t, b.Len(), name)
	}
}

func TestCallsOfKnownKeysSweep(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(2, 1)}, keyed.WithMaxKeys(200))
	for key := range 100 {
		b.TryAcquire(key, 1)
	}
	b.TryAcquire(0, 1)
	clock.Set(sec)
	for range 50 {
		b.Tokens(0)
	}
	require.Equal(t, 1, b.Len())
}

func TestKeysUnequalToThemselvesShareABucket(t *testing.T) {
	b := newBuckets[float64](t, new(waittest.Clock), []tokenbucket.Limit{limit(2, 1)})
	for i := range 5 {
		_, ok := b.TryAcquire(math.NaN(), 1)
		require.Equal(t, i < 2, ok)
	}
	b.Forget(math.NaN())
	require.Zero(t, b.Len())
	_, ok := b.TryAcquire(1, 2)
	require.True(t, ok)
}

func TestOptions(t *testing.T) {
	_, err := keyed.New[string](limit(1, 1), keyed.WithMaxKeys(0))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	_, err = keyed.New[string](limit(1, 1), keyed.WithMaxWaiters(-1))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	_, err = keyed.New[string](limit(1, 1), keyed.WithMaxKeys(1), nil)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	require.ErrorContains(t, err, "option 1 is nil")
	_, err = keyed.New[string](limit(0, 1))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit)
	_, err = keyed.New[string](limit(1, 1), keyed.WithLimit(limit(1, math.NaN())))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit)
	b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(1, 1), limit(2, 3)})
	require.Equal(t, []tokenbucket.Limit{limit(1, 1), limit(2, 3)}, b.Limits())
}

// Many keys get calls of Wait, TryAcquire, Pause and Forget at the same time.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets[int](t, nil, []tokenbucket.Limit{limit(3, 10)}, keyed.WithMaxKeys(20))
		var group sync.WaitGroup
		for i := range 400 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for range 20 {
					key := random.IntN(30)
					ctx, stop := context.WithTimeout(context.Background(), time.Duration(random.IntN(2000))*time.Millisecond)
					_ = b.Wait(ctx, key, float64(1+random.IntN(3)))
					stop()
					b.TryAcquire(random.IntN(30), 1)
					if random.IntN(50) == 0 {
						b.Pause(key, sec/2)
						b.Forget(random.IntN(30))
					}
					require.LessOrEqual(t, b.Len(), 20)
				}
			})
		}
		group.Wait()
		time.Sleep(time.Hour)
		for i := range 1000 {
			b.Tokens(i)
		}
		require.Zero(t, b.Len())
		for key := range 30 {
			require.Equal(t, 3.0, b.Tokens(key))
			require.Zero(t, b.Waiting(key))
		}
	})
}

// Keys that come and go do not make the tables grow and shrink all the time.
func TestAllocationsOfKeysThatComeAndGo(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(1, 1)})
	next := 0
	come := func() {
		for range 1000 {
			b.TryAcquire(next, 1)
			next++
			clock.Set(time.Duration(next) * 10 * time.Millisecond)
		}
	}
	for range 100 {
		come()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, come), 100.0)
	require.Less(t, b.Len(), 2000)
}

func TestMemoryOfAttendedKeysIsGivenBack(t *testing.T) {
	clock := new(waittest.Clock)
	before := heap()
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(1, 1)})
	for i := range 200_000 / shrinkage() {
		b.Pause(fmt.Sprint(i), sec)
	}
	require.Equal(t, 200_000/shrinkage(), b.Len())
	clock.Set(10 * sec)
	sweepAll(b)
	require.Zero(t, b.Len())
	require.Less(t, heap()-before, 2e6)
	runtime.KeepAlive(b)
}

// Keys that stay attended do not keep the memory of those that leave.
func TestMemoryOfAttendedKeysIsGivenBackBesideOthers(t *testing.T) {
	const stay = 256
	clock := new(waittest.Clock)
	before := heap()
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(1, 1)})
	for key := range 60_000 {
		if key < stay {
			b.Pause(key, tokenbucket.Never)
		} else {
			b.Pause(key, sec)
		}
	}
	clock.Set(10 * sec)
	for key := -1; b.Len() > stay && key > -1_000_000; key-- {
		b.Tokens(key)
	}
	require.Equal(t, stay, b.Len())
	require.Less(t, heap()-before, 1e6)
	runtime.KeepAlive(b)
}

// Paused keys that are full again make room.
func TestPausedKeysMakeRoom(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(1, 1)}, keyed.WithMaxKeys(100))
	for key := range 100 {
		b.Pause(key, sec)
	}
	b.TryAcquire(100, 1)
	_, ok := b.TryAcquire(101, 1)
	require.False(t, ok, "no room: both share a bucket")
	clock.Set(3 * sec)
	for key := range 100 {
		require.True(t, b.Take(200+key, 1).OK, key)
	}
}

// A key may get its own bucket while the clock has stepped back. It does not count as
// paused until the latest reading, and a pause of it counts from that reading.
func TestAttendedKeysWhileTheClockIsBehind(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)})
	clock.Set(10 * sec)
	for _, key := range []string{"paused", "waited for"} {
		require.True(t, b.Take(key, 1).OK)
	}
	clock.Set(5 * sec)
	b.Pause("paused", sec)
	require.Equal(t, 7*sec, b.Take("paused", 1).Wait, "a second's refill after 11 s")

	ctx, stop := context.WithCancel(context.Background())
	first, second := make(chan error), make(chan error)
	go func() { first <- b.Wait(ctx, "waited for", 10) }()
	for b.Waiting("waited for") < 1 {
		runtime.Gosched()
	}
	go func() { second <- b.Wait(context.Background(), "waited for", 9) }()
	for b.Waiting("waited for") < 2 {
		runtime.Gosched()
	}
	stop()
	require.ErrorIs(t, <-first, context.Canceled)
	require.NoError(t, <-second)
	require.Equal(t, 6*sec, b.Take("waited for", 1).Wait)
}

// The table may have seen a later reading of the clock than the key's own bucket. That
// does not end a pause.
func TestPausesWhileTheClockIsBehindTheTable(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(100))
	require.True(t, b.Take("in the same shard", 10).OK)
	b.Pause("paused", 4*sec)
	clock.Set(9 * sec)
	require.True(t, b.Take("in the same shard", 1).OK)
	clock.Set(5 * sec)
	b.Pause("paused", 3*sec)
	require.Equal(t, 4*sec, b.Take("paused", 1).Wait)
	clock.Set(9 * sec)
	require.Equal(t, 1.0, b.Tokens("paused"))
}

// A Bucket still works with such a clock, and so does a key that gets its own bucket.
func TestClocksThatReadFarAway(t *testing.T) {
	for _, far := range []time.Duration{math.MinInt64, -math.MaxInt64, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			clock := waittest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(1, 1)})
			clock.Set(far)
			require.True(t, b.Take("waited for", 1).OK)
			ctx, stop := context.WithTimeout(context.Background(), time.Hour)
			require.ErrorIs(t, b.Wait(ctx, "waited for", 1), context.DeadlineExceeded, far)
			require.Zero(t, time.Since(start), "at once, %d", far)
			stop()
			b.Pause("paused", sec)
			require.False(t, b.Take("paused", 1).OK, far)
		})
	}
}

// The table uses the latest reading of the clock that a key's own bucket has seen.
func TestKeysNoLongerAttendedWhileTheClockIsBehind(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)})
	require.True(t, b.Take("a", 10).OK)
	var deadline *tokenbucket.DeadlineError
	require.ErrorAs(t, b.Wait(&steppingContext{context.Background(), clock, 0}, "a", 10), &deadline)
	require.Equal(t, 2*sec, deadline.Wait)
	require.Equal(t, 8.0, b.Tokens("a"))
}

// steppingContext lets the clock read 8 s when the bucket looks at the context, and
// step back to 5 s when it looks at the deadline of 6 s.
type steppingContext struct {
	context.Context
	clock *waittest.Clock
	looks int
}

func (c *steppingContext) Err() error {
	if c.looks++; c.looks == 2 { // Buckets looks first
		c.clock.Set(8 * sec)
	}
	return nil
}

func (c *steppingContext) Deadline() (time.Time, bool) {
	c.clock.Set(5 * sec)
	return time.Time{}.Add(6 * sec), true
}

// Such a key panics, as in a Go map, and no lock stays locked.
func TestUncomparableKeysPanic(t *testing.T) {
	b := newBuckets[any](t, new(waittest.Clock), []tokenbucket.Limit{limit(2, 1)})
	bad := any([]byte("key"))
	for _, use := range []func(){
		func() { b.TryAcquire(bad, 1) },
		func() { b.Take(bad, 1) },
		func() { _ = b.Wait(context.Background(), bad, 1) },
		func() { _ = b.Charge(bad, 1) },
		func() { _ = b.Refund(bad, 1) },
		func() { b.Pause(bad, sec) },
		func() { b.Tokens(bad) },
		func() { b.Waiting(bad) },
		func() { b.Forget(bad) },
	} {
		require.Panics(t, use)
	}
	require.Zero(t, b.Len())
	for key := range 1000 {
		require.True(t, b.Take(key, 1).OK)
	}
	for range 3 {
		b.TryAcquire(any(math.NaN()), 1)
	}
	require.False(t, b.Take(any([1]float64{math.NaN()}), 1).OK, "all NaN share a bucket")
	require.True(t, b.Take(0.0, 2).OK)
	require.False(t, b.Take(math.Copysign(0, -1), 1).OK, "both zeros are one key")
	require.Equal(t, 1001, b.Len())
}

// Keys move between the table and their own buckets while calls wait for them, pause them
// and sweep them. Each key is compared with a Bucket that gets the same calls.
func TestAttendedKeysAreHeldToAModel(t *testing.T) {
	for _, limits := range [][]tokenbucket.Limit{{limit(10, 1)}, {limit(10, 1), limit(20, 0.3)}} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			b := newBuckets[int](t, nil, limits)
			model := map[int]*tokenbucket.Bucket{}
			for range 5000 {
				key := random.IntN(200)
				if model[key] == nil {
					model[key] = newModel(t, nil, limits)
				}
				if random.IntN(4) == 0 {
					requireSameWait(t, b, model[key], key, float64(1+random.IntN(10)), time.Duration(random.IntN(5000))*time.Millisecond)
				}
				same(t, b, model[key], key, random)
				synctest.Wait() // waiters that were nudged have set another timer
				require.Equal(t, model[key].Waiting(), b.Waiting(key))
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			for key := range 20_000 { // enough to reach every shard
				b.Tokens(key)
			}
			require.Zero(t, b.Len())
		})
	}
}

func requireSameWait(t *testing.T, b *keyed.Buckets[int], model *tokenbucket.Bucket, key int, cost float64, most time.Duration) {
	wait := func(acquire func(context.Context) error) <-chan error {
		result := make(chan error, 1)
		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(most, stop)
		go func() { result <- acquire(ctx) }()
		synctest.Wait()
		return result
	}
	want := wait(func(ctx context.Context) error { return model.Wait(ctx, cost) })
	got := wait(func(ctx context.Context) error { return b.Wait(ctx, key, cost) })
	go func() { assert.Equal(t, <-want, <-got, "key %d, cost %v", key, cost) }()
}
