package keyed_test

import (
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
	"github.com/aa014e13/tokenbucket/keyed"
)

// saved is the data that callers store of Buckets.
type saved[K comparable] struct {
	limits []tokenbucket.Limit
	origin time.Time
	latest time.Duration
	states map[K][]tokenbucket.State
}

func save[K comparable](b *keyed.Buckets[K]) saved[K] {
	states := maps.Collect(b.All())
	return saved[K]{b.Limits(), b.Origin(), b.Latest(), states}
}

func (s saved[K]) restore(b *keyed.Buckets[K]) error {
	return b.Restore(s.limits, s.origin, s.latest, maps.All(s.states))
}

// restart returns Buckets that continue from others, with new limits.
func restart[K comparable](t testing.TB, b *keyed.Buckets[K], clock tokenbucket.Clock, limits []tokenbucket.Limit, opts ...keyed.Option) *keyed.Buckets[K] {
	t.Helper()
	restored := newBuckets[K](t, clock, limits, opts...)
	require.NoError(t, save(b).restore(restored))
	return restored
}

func TestRestoredBucketsGoOn(t *testing.T) { // governor#179, contracts-sui#350
	for _, c := range []struct {
		before, after tokenbucket.Limit
		taken         float64
		down          time.Duration
		tokens        float64
		wait          time.Duration // for 5
	}{
		{limit(10, 0.5), limit(10, 0.5), 9, 4 * sec, 3, 4 * sec},
		{limit(10, 0.5), limit(10, 50), 9, 4 * sec, 3, sec / 25},
		{limit(10, 0.5), limit(5, 0.5), 3, 0, 5, 0},
		{limit(10, 0.5), limit(100, 1), 9, 20 * sec, 100, 0}, // full by then
		{limit(10, 0.5), limit(10, 0.5), 9, 20 * sec, 10, 0},
	} {
		clock := waittest.NewClock(time.Unix(1e9, 0))
		b := newBuckets[string](t, clock, []tokenbucket.Limit{c.before})
		require.True(t, b.Take("key", c.taken).OK)
		kept := save(b)
		clock.Set(c.down)
		restored := newBuckets[string](t, clock, []tokenbucket.Limit{c.after})
		require.NoError(t, kept.restore(restored))
		require.Equal(t, c.tokens, restored.Tokens("key"), c)
		require.Equal(t, c.wait, restored.Peek("key", 5).Wait, c)
	}
}

func TestRestoredPausesAndDebts(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1e9, 0))
	limits := []tokenbucket.Limit{limit(10, 1), limit(20, 2)}
	b := newBuckets[string](t, clock, limits)
	b.Pause("paused", 60*sec)
	b.Pause("banned", tokenbucket.Never)
	require.NoError(t, b.Charge("in debt", 110))
	b.Pause("paused in debt", 60*sec)
	require.NoError(t, b.Charge("paused in debt", 5))
	b.Pause("paused and full", 60*sec)
	require.NoError(t, b.Refund("paused and full", 20))
	kept := save(b)
	require.Len(t, kept.states, 5)
	clock.Set(30 * sec)
	restored := newBuckets[string](t, clock, limits)
	require.NoError(t, kept.restore(restored))
	require.Equal(t, 5, restored.Len())
	require.Equal(t, 31*sec, restored.Take("paused", 1).Wait)
	require.Equal(t, tokenbucket.Never, restored.Take("banned", 1).Wait)
	require.Equal(t, -70.0, restored.Tokens("in debt"))
	require.Equal(t, 36*sec, restored.Take("paused in debt", 1).Wait)
	require.Equal(t, 30*sec, restored.Take("paused and full", 10).Wait)
	require.NoError(t, restored.Refund("in debt", 80))
	require.Equal(t, 10.0, restored.Tokens("in debt"))
}

// The latest reading counts until the clock reaches it again.
func TestRestoredWhereTheClockSteppedBack(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1e9, 0))
	b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)})
	clock.Set(50 * sec)
	require.True(t, b.Take("drained", 10).OK)
	b.Pause("paused", 5*sec)
	kept := save(b)
	require.Equal(t, 50*sec, kept.latest)
	clock.Set(20 * sec)
	restored := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)})
	require.NoError(t, kept.restore(restored))
	require.Equal(t, 0.0, restored.Tokens("drained"))
	require.Equal(t, 31*sec, restored.Take("drained", 1).Wait)
	require.Equal(t, 36*sec, restored.Take("paused", 1).Wait)
	require.Equal(t, 50*sec, restored.Latest())
	require.True(t, restored.Take("unknown", 10).OK)
	clock.Set(52 * sec)
	require.Equal(t, 2.0, restored.Tokens("drained"))
	require.Equal(t, 2.0, restored.Tokens("unknown"))
}

// Each key is compared with a Bucket that is restored in the same way.
func TestRestoreIsHeldToAModel(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 2))
		clock := waittest.NewClock(time.Unix(1e9, 0))
		n := 1 + int(seed%2)
		limits := randomLimits(random, n)
		b := newBuckets[int](t, clock, limits)
		model := map[int]*tokenbucket.Bucket{}
		var now time.Duration
		for range 20 {
			for range 500 {
				now += time.Duration(random.Int64N(int64(sec / 10)))
				clock.Set(now)
				key := int(random.ExpFloat64() * 50)
				if model[key] == nil {
					model[key] = newModel(t, clock, limits)
				}
				same(t, b, model[key], key, random)
			}
			for _, m := range model {
				m.Latest() // all keys have seen this reading
			}
			kept := save(b)
			now += time.Duration(random.Int64N(int64(8*sec))) - 2*sec
			clock.Set(now)
			restored := limits
			if random.IntN(2) == 0 {
				restored = randomLimits(random, n)
			}
			b = newBuckets[int](t, clock, restored)
			require.NoError(t, kept.restore(b))
			for key, m := range model {
				model[key] = restoredModel(t, m, clock, limits)
			}
			if &restored[0] != &limits[0] {
				changeModel(t, model, restored)
			}
			limits = restored
			for key, m := range model {
				require.InDelta(t, m.Tokens(), b.Tokens(key), 1e-9, key)
			}
			now = max(now, kept.latest) // a new model knows no later reading
		}
	}
}

func restoredModel(t *testing.T, m *tokenbucket.Bucket, clock tokenbucket.Clock, limits []tokenbucket.Limit) *tokenbucket.Bucket {
	origin, states := m.State()
	opts := []tokenbucket.Option{tokenbucket.WithClock(clock), tokenbucket.WithState(origin, states), tokenbucket.WithLatest(m.Latest())}
	for _, l := range limits[1:] {
		opts = append(opts, tokenbucket.WithLimit(l))
	}
	restored, err := tokenbucket.New(limits[0], opts...)
	require.NoError(t, err)
	return restored
}

func TestAllYieldsWhatIsNotFull(t *testing.T) {
	clock := new(waittest.Clock)
	b := newBuckets[float64](t, clock, []tokenbucket.Limit{limit(10, 1)}, keyed.WithMaxKeys(5))
	b.TryAcquire(1, 1)
	b.TryAcquire(2, 2)
	b.TryAcquire(math.NaN(), 2)
	b.Pause(3, sec)
	b.Pause(4, 5*sec)
	b.Pause(5, sec)
	b.TryAcquire(6, 1) // shared
	clock.Set(sec)
	require.NoError(t, b.Refund(3, 10))
	all := maps.Collect(b.All())
	require.Equal(t, map[float64][]tokenbucket.State{
		2: {{Balance: 8}}, 4: {{Anchor: 5 * sec}}, 5: {{Anchor: sec}},
	}, all)
	require.Equal(t, time.Time{}, b.Origin())
	require.Equal(t, sec, b.Latest())

	all[2][0].Balance = 5
	_ = append(all[2], tokenbucket.State{Balance: 7})
	require.Equal(t, 9.0, b.Tokens(2), "the slices are the caller's")
	for range b.All() {
		require.True(t, b.Take(2, 1).OK, "no shard is locked")
		break
	}
}

// A key that another call adds or changes during All is yielded once or not at all.
func TestAllYieldsEachKeyOnce(t *testing.T) {
	b := newBuckets[int](t, new(waittest.Clock), []tokenbucket.Limit{limit(10, 1), limit(5, 1)})
	for key := range 5000 {
		b.TryAcquire(key, 1)
	}
	seen := map[int]bool{}
	for key, states := range b.All() {
		require.False(t, seen[key], key)
		seen[key] = true
		require.Len(t, states, 2)
		b.Pause((key+2500)%5000, sec)
		b.TryAcquire(5000+key, 1)
	}
	for key := range 5000 {
		require.True(t, seen[key], key)
	}
}

func TestRestoreRefusesWhatIsWrong(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1e9, 0))
	two := []tokenbucket.Limit{limit(10, 1), limit(20, 1)}
	good := []tokenbucket.State{{Balance: 1}, {Balance: 2}}
	twice := func(yield func(string, []tokenbucket.State) bool) {
		full := []tokenbucket.State{{Balance: 10}, {Balance: 20}}
		_ = yield("a", full) && yield("b", good) && yield("a", good)
	}
	pausedTwice := func(yield func(string, []tokenbucket.State) bool) {
		_ = yield("a", []tokenbucket.State{{Anchor: sec}, {}}) && yield("a", good)
	}
	one := func(states ...tokenbucket.State) iter.Seq2[string, []tokenbucket.State] {
		return maps.All(map[string][]tokenbucket.State{"a": states})
	}
	for name, c := range map[string]struct {
		limits []tokenbucket.Limit
		origin time.Time
		all    iter.Seq2[string, []tokenbucket.State]
	}{
		"a limit too few":    {two[:1], clock.Now(), one(good...)},
		"a limit too many":   {append(two, two[0]), clock.Now(), one(good...)},
		"an invalid limit":   {[]tokenbucket.Limit{two[0], {}}, clock.Now(), one(good...)},
		"an origin far away": {two, time.Time{}, one(good...)},
		"a state too few":    {two, clock.Now(), one(good[0])},
		"a state too many":   {two, clock.Now(), one(good[0], good[0], good[0])},
		"NaN":                {two, clock.Now(), one(good[0], tokenbucket.State{Balance: math.NaN()})},
		"infinite":           {two, clock.Now(), one(tokenbucket.State{Balance: math.Inf(1)}, good[0])},
		"too deep":           {two, clock.Now(), one(tokenbucket.State{Balance: -1e300}, good[0])},
		"a key twice":        {two, clock.Now(), twice},
		"a paused key twice": {two, clock.Now(), pausedTwice},
	} {
		b := newBuckets[string](t, clock, two)
		require.ErrorIs(t, b.Restore(c.limits, c.origin, 0, c.all), tokenbucket.ErrInvalidOption, name)
		require.Zero(t, b.Len(), name)
		require.NoError(t, b.Restore(two, clock.Now(), 0, one(good...)), "nothing was restored: %s", name)
		require.Equal(t, 1.0, b.Tokens("a"))
	}
}

func TestRestoreRefusesUsedBuckets(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1e9, 0))
	kept := save(newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)}))
	for name, use := range map[string]func(b *keyed.Buckets[string]){
		"TryAcquire": func(b *keyed.Buckets[string]) { b.TryAcquire("a", 0) },
		"Tokens":     func(b *keyed.Buckets[string]) { b.Tokens("a") },
		"Pause":      func(b *keyed.Buckets[string]) { b.Pause("a", sec) },
		"Forget":     func(b *keyed.Buckets[string]) { b.Forget("a") },
		"Restore":    func(b *keyed.Buckets[string]) { require.NoError(t, kept.restore(b)) },
	} {
		b := newBuckets[string](t, clock, []tokenbucket.Limit{limit(10, 1)})
		require.Zero(t, b.Len())
		require.NoError(t, b.SetLimits(b.Limits()...))
		use(b)
		require.ErrorIs(t, kept.restore(b), tokenbucket.ErrInvalidOption, name)
	}
}

// The keys that take longest to fill keep their places.
func TestRestoreWithLittleRoom(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1e9, 0))
	b := newBuckets[int](t, clock, []tokenbucket.Limit{limit(100, 1)})
	for key := range 100 {
		b.TryAcquire(key, float64(key+1))
	}
	for key := range 10 {
		b.Pause(1000+key, time.Duration(key)*sec+time.Millisecond) // full after 100 s and more
	}
	for _, most := range []int{1, 5, 10, 11, 60, 109, 110, 1000} {
		restored := restart(t, b, clock, b.Limits(), keyed.WithMaxKeys(most))
		require.Equal(t, min(most, 110), restored.Len())
		for key := range restored.All() {
			rank := 109 - key
			if key >= 1000 {
				rank = 1009 - key
			}
			require.Less(t, rank, most, key)
		}
	}
	equal := newBuckets[int](t, clock, []tokenbucket.Limit{limit(100, 1)})
	for key := range 50 {
		equal.TryAcquire(key, 7)
	}
	require.Equal(t, 20, restart(t, equal, clock, b.Limits(), keyed.WithMaxKeys(20)).Len())
}

func TestRestoreIgnoresNaN(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1e9, 0))
	b := newBuckets[float64](t, clock, []tokenbucket.Limit{limit(10, 1)})
	states := []tokenbucket.State{{Balance: 1}}
	err := b.Restore(b.Limits(), clock.Now(), 0, func(yield func(float64, []tokenbucket.State) bool) {
		for _, key := range []float64{math.NaN(), math.NaN(), 1} {
			if !yield(key, states) {
				return
			}
		}
	})
	require.NoError(t, err)
	require.Equal(t, 1, b.Len())
	require.Equal(t, 10.0, b.Tokens(math.NaN()))
}

// With the system clock, a stored origin continues in monotonic time.
func TestRestoreByTheSystemClock(t *testing.T) {
	b := newBuckets[string](t, nil, []tokenbucket.Limit{limit(10, 1e-9)})
	require.NoError(t, b.Charge("key", 15))
	kept := save(b)
	kept.origin = kept.origin.Round(0)
	restored := newBuckets[string](t, nil, []tokenbucket.Limit{limit(10, 1e-9)})
	require.NoError(t, kept.restore(restored))
	require.InDelta(t, -5, restored.Tokens("key"), 1e-3)
}
