package redisbucket_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/internal/testing/vectors"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

const (
	us    = time.Microsecond
	ms    = time.Millisecond
	sec   = time.Second
	never = tokenbucket.Never
)

var background = context.Background()

func limit(capacity, refill float64) tokenbucket.Limit {
	return tokenbucket.Limit{Capacity: capacity, RefillPerSec: refill}
}

// newBuckets returns buckets with all of the limits. Their timeout is so long that a busy
// machine does not reach it.
func newBuckets(t testing.TB, client redis.UniversalClient, limits []tokenbucket.Limit, opts ...redisbucket.Option) *redisbucket.Buckets {
	t.Helper()
	return newHastyBuckets(t, client, limits, append([]redisbucket.Option{redisbucket.WithTimeout(time.Minute)}, opts...)...)
}

// newHastyBuckets returns buckets with all of the limits.
func newHastyBuckets(t testing.TB, client redis.UniversalClient, limits []tokenbucket.Limit, opts ...redisbucket.Option) *redisbucket.Buckets {
	t.Helper()
	for _, l := range limits[1:] {
		opts = append(opts, redisbucket.WithLimit(l))
	}
	b, err := redisbucket.New(client, limits[0], opts...)
	require.NoError(t, err)
	return b
}

func newClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// isWhole reports whether all instants of a sequence are whole microseconds.
func isWhole(s vectors.Sequence) bool {
	for _, step := range s.Steps {
		if step.At%us != 0 {
			return false
		}
	}
	return true
}

func roundUp(wait time.Duration) time.Duration {
	if wait == never {
		return never
	}
	return (wait + us - 1).Truncate(us)
}

func TestVectors(t *testing.T) {
	m := miniredis.RunT(t)
	client := newClient(t, m.Addr())
	tested := 0
	for _, v := range vectors.All() {
		if !isWhole(v) {
			continue
		}
		tested++
		b := newBuckets(t, client, v.Limits, redisbucket.WithPrefix(v.Name+":"))
		for i, step := range v.Steps {
			m.SetTime(time.Unix(0, int64(step.At)))
			d, err := b.Take(background, "key", step.Cost)
			require.NoError(t, err)
			require.Equal(t, step.OK, d.OK, "%s, step %d", v.Name, i)
			require.Equal(t, roundUp(step.Wait), d.Wait, "%s, step %d", v.Name, i)
			if !step.OK {
				wait, ok, err := b.TryAcquire(background, "key", step.Cost)
				require.NoError(t, err)
				require.False(t, ok)
				require.Equal(t, d.Wait, wait, "%s, step %d", v.Name, i)
			}
			look, err := b.Take(background, "key", 0)
			require.NoError(t, err)
			require.True(t, look.OK)
			if len(v.Limits) == 1 {
				require.InDelta(t, step.Tokens, look.Tokens, 1e-9, "%s, step %d", v.Name, i)
			}
		}
	}
	require.Equal(t, 50, tested)
}

// engine runs the script with a clock that the test sets.
type engine struct {
	*redis.Client
	script string
	key    string
}

// engines are the Lua of Redis itself, where it is installed, and miniredis's.
func engines(t *testing.T, run func(t *testing.T, e engine)) {
	clock := strings.Replace(redisbucket.Source, "redis.call('TIME')", "{string.match(redis.call('GET', 'now'), '(%d+) (%d+)')}", 1)
	require.NotEqual(t, redisbucket.Source, clock)
	// Keys that the test's clock keeps alive must not expire by the server's: the
	// time to live counts as seconds.
	script := strings.ReplaceAll(strings.ReplaceAll(clock, "'PX'", "'EX'"), "9e12", "9e9")
	t.Run("redis", func(t *testing.T) {
		run(t, engine{newClient(t, redistest.Start(t).Addr), script, "bucket"})
	})
	t.Run("miniredis", func(t *testing.T) {
		run(t, engine{newClient(t, miniredis.RunT(t).Addr()), script, "bucket"})
	})
}

func digits(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

func (e engine) run(t testing.TB, limits tokenbucket.Limits, at time.Duration, patience time.Duration, costs ...float64) (admitted bool) {
	t.Helper()
	words := make([]string, len(costs))
	for i, cost := range costs {
		words[i] = digits(cost)
	}
	require.NoError(t, e.Set(background, "now", fmt.Sprintf("%d %d", at/sec, at%sec/us), 0).Err())
	policy, args := "tb1", []any{"", strings.Join(words, " "), patience.Microseconds()}
	for _, l := range limits {
		policy += ":" + digits(l.Capacity) + ":" + digits(l.RefillPerSec)
		args = append(args, digits(l.Capacity), digits(l.RefillPerSec))
	}
	args[0] = policy + " "
	answer, err := e.Eval(background, e.script, []string{e.key}, args...).Text()
	require.NoError(t, err)
	return strings.HasPrefix(answer, "1")
}

// states returns the stored states, and the seconds until they expire.
func (e engine) states(t testing.TB) (states []tokenbucket.State, ttl float64) {
	t.Helper()
	value, err := e.Get(background, e.key).Result()
	if err == redis.Nil {
		return nil, 0
	}
	require.NoError(t, err)
	fields := strings.Fields(value)
	for i := 3; i < len(fields); i += 2 {
		balance, err := strconv.ParseFloat(fields[i], 64)
		require.NoError(t, err)
		anchor, err := strconv.ParseInt(fields[i+1], 10, 64)
		require.NoError(t, err)
		states = append(states, tokenbucket.State{Balance: balance, Anchor: time.Duration(anchor) * us})
	}
	left, err := e.Do(background, "TTL", e.key).Float64()
	require.NoError(t, err)
	return states, left
}

// The script is the only other copy of the arithmetic. The test compares the two bit by
// bit, with waits and refunds.
func TestScriptIsTheModel(t *testing.T) {
	limits := [][]tokenbucket.Limit{
		{limit(10, 1)},
		{limit(3, 1.5)},
		{limit(0.1, 0.3)},
		{limit(1<<42, 1e-11)},
		{limit(1e-3, 1e300)},
		{limit(1<<42, 1<<42)},
		{limit(math.Pi, 1.0/7)},
		{limit(5, 5), limit(100, 1.0/3)},
		{limit(7, 10.0/13), limit(7, 1e6), limit(1e6, 1e-6)},
	}
	engines(t, func(t *testing.T, e engine) {
		for i, ls := range limits {
			for seed := range uint64(2) {
				e.key = fmt.Sprintf("bucket %d %d", i, seed)
				follow(t, e, ls, rand.New(rand.NewPCG(uint64(i), seed)), 150)
			}
		}
	})
}

func follow(t *testing.T, e engine, limits tokenbucket.Limits, random *rand.Rand, steps int) {
	t.Helper()
	now := time.Duration(1_700_000_000_123_456) * us
	model := make([]tokenbucket.State, len(limits))
	limits.Fill(model, now)
	for step := range steps {
		now += leap(random, limits)
		cost := limits[0].Capacity * []float64{1, 0.1, 0.3, 1e-9, 0.5, random.Float64(), 1.1}[random.IntN(7)]
		where := fmt.Sprintf("step %d: cost %v of %v", step, cost, limits)
		costs := eachCost(random, limits)
		switch random.IntN(8) {
		case 0:
			require.NoError(t, limits.Refund(model, now, cost))
			require.True(t, e.run(t, limits, now, 0, -cost), where)
		case 1:
			patience := leap(random, limits)
			ahead := append([]tokenbucket.State(nil), model...)
			wait, _ := limits.TryAcquire(ahead, now, cost)
			require.Equal(t, wait <= patience, e.run(t, limits, now, patience, cost), where)
			if wait <= patience {
				require.NoError(t, limits.Charge(model, now, cost))
			}
		case 2:
			require.NoError(t, limits.RefundEach(model, now, costs...))
			require.True(t, e.run(t, limits, now, 0, negated(costs)...), where, costs)
		case 3:
			require.NoError(t, limits.ChargeEach(model, now, costs...))
			require.True(t, e.run(t, limits, now, charge, costs...), where, costs)
		case 4:
			require.NoError(t, limits.Charge(model, now, 3*cost))
			require.True(t, e.run(t, limits, now, charge, 3*cost), where)
		case 5:
			_, ok := limits.TryAcquireEach(model, now, costs...)
			require.Equal(t, ok, e.run(t, limits, now, 0, costs...), where, costs)
		default:
			_, ok := limits.TryAcquire(model, now, cost)
			require.Equal(t, ok, e.run(t, limits, now, 0, cost), where)
		}
		requireSame(t, e, limits, model, now, where)
	}
}

// charge is the script's argument for the time ahead if it must take the tokens in any
// case.
const charge = -us

func eachCost(random *rand.Rand, limits tokenbucket.Limits) []float64 {
	costs := make([]float64, len(limits))
	for i, l := range limits {
		costs[i] = l.Capacity * []float64{0, 0.1, 0.3, 0.5, random.Float64(), 1, 1.1}[random.IntN(7)]
	}
	return costs
}

func negated(costs []float64) []float64 {
	back := make([]float64, len(costs))
	for i, cost := range costs {
		back[i] = -cost
	}
	return back
}

// leap returns a time that matters to the limits, in whole microseconds.
func leap(random *rand.Rand, limits tokenbucket.Limits) time.Duration {
	filling := limits[random.IntN(len(limits))]
	full := math.Min(1e9*filling.Capacity/filling.RefillPerSec, 1e17)
	ns := []float64{0, 1e3, full, full / 10, full * random.Float64() / 100, full * random.Float64() * 3, 1 << 47}[random.IntN(7)]
	return time.Duration(math.Min(ns, 1e17) / 100).Truncate(us)
}

func requireSame(t *testing.T, e engine, limits tokenbucket.Limits, model []tokenbucket.State, now time.Duration, where string) {
	t.Helper()
	stored, ttl := e.states(t)
	if stored == nil {
		require.True(t, limits.IsFull(model, now), "%s: forgotten, not full", where)
		limits.Fill(model, now)
		return
	}
	require.Positive(t, ttl, where)
	for i := range model {
		// The model and the script may store different states, since they re-anchor at
		// different instants. But their levels must be equal to the last bit.
		require.Equal(t, limits[i].Tokens(model[i], now), limits[i].Tokens(stored[i], now), "%s, limit %d: %v %v", where, i, model[i], stored[i])
	}
	requireTTL(t, limits, stored, now, ttl, where)
}

// requireTTL checks that a key that was just written lives until the bucket is
// full, and no longer. The engines count milliseconds as seconds.
func requireTTL(t *testing.T, limits tokenbucket.Limits, stored []tokenbucket.State, now time.Duration, ttl float64, where string) {
	t.Helper()
	filling := 0.0
	for i, l := range limits {
		filling = max(filling, (l.Capacity-l.Tokens(stored[i], now))/l.RefillPerSec*1000)
	}
	const seconds = 5 // since it was written, at most
	require.GreaterOrEqual(t, ttl+seconds, min(filling, 9e9), where)
}
