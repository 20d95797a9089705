package redisbucket_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// scene is a server whose clock the test sets.
type scene struct {
	*miniredis.Miniredis
	t      *testing.T
	client *redis.Client
	start  time.Time
}

func newScene(t *testing.T) *scene {
	m := miniredis.RunT(t)
	s := &scene{m, t, newClient(t, m.Addr()), time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	s.to(0)
	return s
}

// to sets the clock, and lets keys expire.
func (s *scene) to(at time.Duration) {
	s.SetTime(s.start.Add(at))
}

func (s *scene) buckets(limits ...tokenbucket.Limit) *redisbucket.Buckets {
	return newBuckets(s.t, s.client, limits)
}

func (s *scene) take(b *redisbucket.Buckets, cost float64) tokenbucket.Decision {
	s.t.Helper()
	d, err := b.Take(background, "key", cost)
	require.NoError(s.t, err)
	return d
}

func (s *scene) requireTaken(b *redisbucket.Buckets, cost float64) {
	s.t.Helper()
	require.True(s.t, s.take(b, cost).OK)
}

// requireWait checks the wait, and that the request is admitted after the wait but not a
// microsecond earlier.
func (s *scene) requireWait(b *redisbucket.Buckets, cost float64, want time.Duration) {
	s.t.Helper()
	wait, ok, err := b.TryAcquire(background, "key", cost)
	require.NoError(s.t, err)
	require.False(s.t, ok)
	require.Equal(s.t, want, wait)
}

func TestDecisions(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(10, 0.5))
	d := s.take(b, 5)
	require.Equal(t, int64(5), d.Remaining())
	require.Equal(t, 10*sec, d.Reset())
	s.requireTaken(b, 1)
	d = s.take(b, 5)
	require.False(t, d.OK)
	require.Equal(t, 2*sec, d.Wait)
	require.Equal(t, int64(4), d.Remaining())
	require.Equal(t, 12*sec, d.Reset())
	require.Equal(t, limit(10, 0.5), d.Limit)
	seconds, ok := d.RetryAfter()
	require.True(t, ok)
	require.Equal(t, int64(2), seconds)
	s.to(2*sec - us)
	s.requireWait(b, 5, us)
	s.to(2 * sec)
	s.requireTaken(b, 5)
	require.Equal(t, []tokenbucket.Limit{limit(10, 0.5)}, b.Limits())
}

func TestSeveralLimitsAreDecidedTogether(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(3, 1), limit(10, 0.25))
	s.requireTaken(b, 3)
	s.requireWait(b, 3, 3*sec)
	s.to(3 * sec)
	s.requireTaken(b, 3)
	s.to(6 * sec)
	s.requireTaken(b, 3)
	d := s.take(b, 3) // the second has 2.5 left and would take 2 s
	require.Equal(t, 3*sec, d.Wait)
	require.Equal(t, limit(3, 1), d.Limit)
	s.to(9 * sec)
	s.requireTaken(b, 3)
	d = s.take(b, 3)
	require.Equal(t, 11*sec, d.Wait)
	require.Equal(t, limit(10, 0.25), d.Limit)
	require.Equal(t, 0.25, d.Tokens)
	require.Len(t, s.Keys(), 1)
}

func TestCosts(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(3, 1.5))
	for _, cost := range []float64{4, math.Nextafter(3, 4), 1e300, math.MaxFloat64, math.Inf(1), -5, math.NaN(), math.Inf(-1)} { // bucket4j#220, limits#362
		d := s.take(b, cost)
		require.False(t, d.OK, cost)
		require.Equal(t, never, d.Wait, cost)
		require.Equal(t, 3.0, d.Tokens, cost)
		wait, ok, err := b.TryAcquire(background, "key", cost)
		require.NoError(t, err)
		require.False(t, ok, cost)
		require.Equal(t, never, wait, cost)
	}
	require.Empty(t, s.Keys(), "nothing was taken")
	for _, cost := range []float64{0, math.Copysign(0, -1)} {
		d := s.take(b, cost)
		require.True(t, d.OK)
		require.Equal(t, 3.0, d.Tokens)
		_, ok, err := b.TryAcquire(background, "key", cost)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Empty(t, s.Keys())
	s.requireTaken(b, 3)
	require.True(t, s.take(b, 0).OK, "free when empty")
	s.requireTaken(b, 5e-324)
	ctx, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	require.ErrorIs(t, b.Wait(ctx, "key", 4), tokenbucket.ErrCostExceedsCapacity)
	require.ErrorIs(t, b.Wait(ctx, "key", math.Inf(1)), tokenbucket.ErrCostExceedsCapacity)
	require.ErrorIs(t, b.Wait(ctx, "key", -1), tokenbucket.ErrInvalidCost)
	require.ErrorIs(t, b.Wait(ctx, "key", math.NaN()), tokenbucket.ErrInvalidCost)
	require.NoError(t, b.Wait(ctx, "key", 0))
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, b.Refund(ctx, "key", cost), tokenbucket.ErrInvalidCost, cost)
	}
}

func TestRefundAndForget(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(10, 1), limit(20, 1))
	s.requireTaken(b, 10)
	require.NoError(t, b.Refund(background, "key", 0))
	require.NoError(t, b.Refund(background, "key", 0.25))
	s.requireWait(b, 1, 750*ms)
	require.NoError(t, b.Refund(background, "key", 5))
	require.Equal(t, 5.25, s.take(b, 0).Tokens)
	require.NoError(t, b.Refund(background, "key", 1e300))
	require.Empty(t, s.Keys(), "full is forgotten")
	require.NoError(t, b.Refund(background, "key", math.MaxFloat64))
	require.Empty(t, s.Keys())
	require.Equal(t, 10.0, s.take(b, 0).Tokens)

	s.requireTaken(b, 10)
	require.NoError(t, b.Forget(background, "key"))
	require.NoError(t, b.Forget(background, "key"))
	require.Empty(t, s.Keys())
	s.requireTaken(b, 10)
}

func TestKeys(t *testing.T) {
	s := newScene(t)
	long := strings.Repeat("x", redisbucket.MaxKey)
	names := []string{"", " ", "a b", "{x}y", "\x00\r\n\xff", "*3\r\n$3\r\nDEL", "');redis.call('FLUSHALL')--", long, long + "x", long + "y"}
	b := newBuckets(t, s.client, []tokenbucket.Limit{limit(1, 0.001)}, redisbucket.WithPrefix("p%s:"))
	for _, name := range names {
		d, err := b.Take(background, name, 1)
		require.NoError(t, err)
		require.True(t, d.OK, "%q", name)
	}
	require.Len(t, s.Keys(), len(names), "a bucket for each")
	for _, name := range names {
		d, err := b.Take(background, name, 1)
		require.NoError(t, err)
		require.False(t, d.OK, "%q", name)
		if len(name) <= redisbucket.MaxKey {
			require.True(t, s.Exists("p%s:"+name), "%q", name)
		}
	}
	for _, stored := range s.Keys() {
		require.LessOrEqual(t, len(stored), len("p%s:")+len("sha256:")+64)
		d, err := b.Take(background, strings.TrimPrefix(stored, "p%s:"), 1)
		require.NoError(t, err)
		require.Equal(t, len(stored) > len("p%s:")+redisbucket.MaxKey, d.OK, "no key can be made up that shares a long one's bucket")
	}
	other := newBuckets(t, s.client, []tokenbucket.Limit{limit(1, 0.001)})
	d, err := other.Take(background, "", 1)
	require.NoError(t, err)
	require.True(t, d.OK, "a prefix of its own")
}

func TestForeignKeyIsNamed(t *testing.T) {
	s := newScene(t)
	b := newBuckets(t, s.client, []tokenbucket.Limit{limit(1, 1)}, redisbucket.WithFallback(local(t)))
	_, err := s.Lpush("tokenbucket:list", "x")
	require.NoError(t, err)
	values := map[string]string{
		"text": "hello", "empty": "", "cut off": "tb1:1:1 1800000000 0", "half a ledger": "tb1:1:1 1700000000 0 1",
		"no number": "tb1:1:1 1700000000 0 nan 1700000000000000", "infinite": "tb1:1:1 1800000000 0 inf 1800000000000000",
		"no time": "tb1:1:1 1800000000 0 1 -1", "another version": "tb2:1:1 1800000000 0 1 1800000000000000",
		"no limits": "tb1:x:y 1800000000 0 1 1800000000000000", "others, cut off": "tb1:2:2 1800000000 0",
		"one ledger more": "tb1:1:1 1700000000 0 1 1700000000000000 1 1700000000000000", "others, no number": "tb1:2:2 1800000000 0 -nan 1800000000000000",
	}
	for name, value := range values {
		require.NoError(t, s.Set("tokenbucket:"+name, value))
	}
	for _, name := range append(slices.Collect(maps.Keys(values)), "list") {
		_, err := b.Take(background, name, 1)
		require.ErrorIs(t, err, redisbucket.ErrForeignKey, name)
		require.ErrorContains(t, err, fmt.Sprintf("%q", "tokenbucket:"+name))
		require.ErrorContains(t, err, s.Addr())
		_, _, err = b.TryAcquire(background, name, 1)
		require.ErrorIs(t, err, redisbucket.ErrForeignKey)
		require.ErrorIs(t, b.Wait(background, name, 1), redisbucket.ErrForeignKey)
		require.ErrorIs(t, b.Refund(background, name, 1), redisbucket.ErrForeignKey)
		require.ErrorIs(t, b.Forget(background, name), redisbucket.ErrForeignKey)
		if name != "list" {
			value, err := s.Get("tokenbucket:" + name)
			require.NoError(t, err)
			require.Equal(t, values[name], value, "it is somebody's")
		}
	}
}

// local is a fallback that has ten tokens for each key.
func local(t testing.TB) *keyed.Buckets[string] { return localOf(t, 10) }

func localOf(t testing.TB, tokens float64) *keyed.Buckets[string] {
	t.Helper()
	b, err := keyed.New[string](limit(tokens, 1e-6))
	require.NoError(t, err)
	return b
}

// During a rollout, two processes with different limits take from the same bucket. After
// each write, the bucket counts by the limits of the process that wrote.
func TestLimitsChange(t *testing.T) { // contracts-sui#350
	s := newScene(t)
	slow, fast, small := s.buckets(limit(100, 1)), s.buckets(limit(100, 100)), s.buckets(limit(5, 100))
	s.requireTaken(slow, 100)
	s.to(10 * sec)
	require.Equal(t, 10.0, s.take(fast, 0).Tokens, "what was refilled before stays as it was")
	require.Equal(t, 5.0, s.take(small, 0).Tokens)
	s.to(20 * sec)
	require.Equal(t, 5.0, s.take(small, 0).Tokens)
	require.Equal(t, 5.0, s.take(slow, 0).Tokens, "a smaller capacity cut it off")

	s.requireTaken(slow, 5)
	s.requireWait(fast, 1, 10*ms)
	s.to(20*sec + 10*ms)
	s.requireTaken(fast, 1)

	several := s.buckets(limit(100, 100), limit(7, 1))
	require.Equal(t, 0.0, s.take(several, 0).Tokens)
	s.to(21*sec + 10*ms)
	s.requireTaken(several, 7) // an additional limit starts full
	s.requireWait(several, 1, sec)
	require.Equal(t, 93.0, s.take(fast, 0).Tokens, "a limit less is forgotten")
}

func TestServerClockStepsBack(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(10, 1))
	s.to(time.Hour)
	s.requireTaken(b, 10)
	s.requireWait(b, 4, 4*sec)
	s.to(0) // a replica takes over whose clock is an hour behind
	s.requireWait(b, 4, 4*sec)
	s.to(4*sec - us)
	s.requireWait(b, 4, us)
	s.to(4 * sec)
	s.requireTaken(b, 4)
	s.requireWait(b, 1, sec)
	s.to(2 * sec) // the clock steps back again, by less
	require.NoError(t, b.Refund(background, "key", 1))
	s.requireTaken(b, 1)
	s.requireWait(b, 1, sec)
}

// The value written then lives until all limits are full, the first as well as the last.
func TestClockStepsBackUnderSeveralLimits(t *testing.T) {
	for _, limits := range [][]tokenbucket.Limit{
		{limit(10, 0.1), limit(10, 1)},
		{limit(10, 1), limit(10, 0.1)},
	} {
		s := newScene(t)
		b := s.buckets(limits...)
		s.requireTaken(b, 10)
		s.to(-sec)
		s.requireWait(b, 1, 10*sec)
		require.Equal(t, 100*sec, s.TTL("tokenbucket:key"))
	}
}

func TestNothingIsMintedByAClockThatJumps(t *testing.T) { // golang/go#56287
	s := newScene(t)
	b := s.buckets(limit(10, 1))
	s.requireTaken(b, 10)
	admitted := 0.0
	for range 100 {
		for _, at := range []time.Duration{5, 4, 3, 2, 1, 0} {
			s.to(at * sec)
			if s.take(b, 1).OK {
				admitted++
			}
		}
	}
	// In each round the clock advances by 5 s once, which cannot be distinguished from
	// time that has passed. The way back does not count.
	require.LessOrEqual(t, admitted, 100*5.0)
}

// A clock jumps at random. Each token was in the bucket at the start or was refilled in
// time, and no request waits longer than the bucket needs to fill.
func TestClockThatJumpsAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		s := newScene(t)
		random := rand.New(rand.NewPCG(seed, 0))
		bs := []*redisbucket.Buckets{s.buckets(limit(10, 1), limit(25, 0.5)), s.buckets(limit(10, 1), limit(25, 0.5))}
		now, forward, admitted := time.Hour, time.Duration(0), 0.0
		for range 300 {
			step := time.Duration(random.Int64N(int64(4 * sec))).Truncate(us)
			if random.IntN(3) == 0 {
				step = -step
			}
			now += step
			forward += max(0, step)
			s.to(now)
			cost := float64(1 + random.IntN(5))
			d := s.take(bs[random.IntN(2)], cost)
			if d.OK {
				admitted += cost
			}
			require.LessOrEqual(t, d.Wait, 50*sec)
			require.LessOrEqual(t, admitted, 10+forward.Seconds(), "seed %d", seed)
			require.LessOrEqual(t, admitted, 25+forward.Seconds()/2, "seed %d", seed)
		}
	}
}

func TestTimeToLive(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []tokenbucket.Limit
		cost   float64
		want   time.Duration
	}{
		{"node-rate-limiter-flexible#221", []tokenbucket.Limit{limit(1, 3)}, 1, 334 * ms},
		{"aspnetcore-redis#46", []tokenbucket.Limit{limit(3, 1.0/15)}, 3, 45 * sec},
		{"a third of a millisecond", []tokenbucket.Limit{limit(1, 3000)}, 1, ms},
		{"the slower limit", []tokenbucket.Limit{limit(1, 1), limit(10, 0.1)}, 1, 10 * sec},
		{"the slower limit, first", []tokenbucket.Limit{limit(10, 0.1), limit(1, 1)}, 1, 10 * sec},
		{"a million years", []tokenbucket.Limit{limit(1<<42, 0.1)}, 1 << 42, 9e12 * ms},
		{"a refill beyond all numbers", []tokenbucket.Limit{limit(1, math.MaxFloat64)}, 1, ms},
		{"no refill to speak of", []tokenbucket.Limit{limit(1, 5e-324)}, 1, 9e12 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.to(123_456 * us)
			b := s.buckets(c.limits...)
			s.requireTaken(b, c.cost)
			require.Equal(t, c.want, s.TTL("tokenbucket:key"))
			s.to(123_456*us + c.want)
			require.True(t, c.want == 9e12*ms || s.take(b, c.cost).OK, "full by then")
		})
	}
}

func TestRedis1118AllDigitsSurvive(t *testing.T) {
	s := newScene(t)
	s.start = time.UnixMicro(1_999_999_999_999_999)
	s.to(0)
	b := s.buckets(limit(1<<42, 1.0/3))
	s.requireTaken(b, 1<<42)
	require.NoError(t, b.Refund(background, "key", 0.1))
	require.NoError(t, b.Refund(background, "key", 1<<41))
	value, err := s.Get("tokenbucket:key")
	require.NoError(t, err)
	require.Equal(t, "tb1:4398046511104:0.33333333333333331 1999999999 999999 2199023255552.1001 1999999999999999", value)
	require.Equal(t, float64(1<<41)+0.1, s.take(b, 0).Tokens)
}

func TestProrate40WaitIsNotCutToSeconds(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(1, 1))
	s.requireTaken(b, 1)
	s.to(50 * ms)
	s.requireWait(b, 1, 950*ms)
}

func TestSpringCloudGateway2453TTLOutlivesTheWait(t *testing.T) {
	s := newScene(t)
	b := s.buckets(limit(1, 3))
	s.requireTaken(b, 1)
	s.to(30 * ms)
	d := s.take(b, 1)
	require.False(t, d.OK)
	require.Equal(t, 333334*us-30*ms, d.Wait)
	require.GreaterOrEqual(t, s.TTL("tokenbucket:key")-30*ms, d.Wait)
}

func TestSpringCloudGateway2412OneTruth(t *testing.T) {
	s := newScene(t)
	one, other := s.buckets(limit(2, 1)), newBuckets(t, newClient(t, s.Addr()), []tokenbucket.Limit{limit(2, 1)})
	s.requireTaken(one, 1)
	s.requireTaken(other, 1)
	s.requireWait(one, 1, sec)
	s.requireWait(other, 1, sec)
}

func TestConfiguration(t *testing.T) {
	client := newClient(t, "127.0.0.1:1")
	for _, bad := range []tokenbucket.Limit{{}, limit(-1, 1), limit(1, 0), limit(math.NaN(), 1), limit(1<<43, 1)} {
		_, err := redisbucket.New(client, bad)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit)
		_, err = redisbucket.New(client, limit(1, 1), redisbucket.WithLimit(bad))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidLimit)
	}
	for _, opt := range []redisbucket.Option{redisbucket.WithTimeout(0), redisbucket.WithTimeout(-sec), redisbucket.WithBreak(-1), nil} {
		_, err := redisbucket.New(client, limit(1, 1), opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
		_, err = redisbucket.NewWithClient(redisbucket.GoRedis(client), limit(1, 1), opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	}
	_, err := redisbucket.New(client, limit(1, 1), redisbucket.WithPrefix("p:"), nil)
	require.ErrorContains(t, err, "option 1 is nil")
	_, err = redisbucket.New(nil, limit(1, 1))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	b, err := redisbucket.New(client, limit(1, 1), redisbucket.WithFallback(nil), redisbucket.WithErrorHandler(nil), redisbucket.WithLimit(limit(2, 2)))
	require.NoError(t, err)
	require.Equal(t, []tokenbucket.Limit{limit(1, 1), limit(2, 2)}, b.Limits())
	b.Limits()[0] = limit(9, 9)
	require.Equal(t, limit(1, 1), b.Limits()[0])
}

func TestClientIsLeftAsItWas(t *testing.T) {
	s := newScene(t)
	before := *s.client.Options()
	b := newBuckets(t, s.client, []tokenbucket.Limit{limit(1, 1)}, redisbucket.WithTimeout(ms))
	_, _ = b.Take(background, "key", 1)
	require.Equal(t, before.ReadTimeout, s.client.Options().ReadTimeout)
	require.Equal(t, before.MaxRetries, s.client.Options().MaxRetries)
}
