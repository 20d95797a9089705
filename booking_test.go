package tokenbucket_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// TestReservationsMatchTheOracle makes reservations, cancellations and all calls that
// change the level at random, on a clock that steps back now and then. Pause and
// SetLimits store the level, so for them the instants are exact in binary.
func TestReservationsMatchTheOracle(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 11))
		b := &booking{T: t, random: random, clock: new(waittest.Clock), exact: seed%2 == 0}
		b.limits = b.randomLimits(1 + random.IntN(3))
		b.bucket = newBucket(t, b.clock, b.limits...)
		b.oracle = waittest.NewOracle(b.limits...)
		for i := range 100 {
			b.where = fmt.Sprintf("seed %d, step %d, %+v at %v", seed, i, b.limits, b.now)
			b.passTime()
			b.act()
			b.check()
		}
	}
}

type booking struct {
	*testing.T
	random *rand.Rand
	clock  *waittest.Clock
	bucket *tokenbucket.Bucket
	oracle *waittest.Oracle
	limits []Limit
	exact  bool
	where  string

	now, back time.Duration // the latest instant seen, and by how much the clock is behind it
	booked    []booked
}

type booked struct {
	*tokenbucket.Reservation
	place *waittest.Place
}

func (b *booking) randomLimits(n int) []Limit {
	refills := []float64{1, 3, 7, 10}
	if b.exact {
		refills = []float64{1, 2, 4, 8}
	}
	limits := make([]Limit, n)
	for i := range limits {
		limits[i] = Limit{float64(1 + b.random.IntN(12)), refills[b.random.IntN(len(refills))]}
	}
	return limits
}

func (b *booking) least() float64 {
	return slices.MinFunc(b.limits, func(x, y Limit) int { return int(x.Capacity - y.Capacity) }).Capacity
}

func (b *booking) passTime() {
	tick := sec / 32
	if !b.exact {
		tick = time.Duration(b.random.Int64N(int64(sec / 8)))
	}
	b.now += tick * time.Duration(b.random.IntN(3)*b.random.IntN(20))
	b.oracle.Advance(b.now)
	b.clock.Set(b.now)
	b.bucket.Tokens() // now the bucket has seen that instant
	b.back = 0
	if b.random.IntN(4) == 0 {
		b.back = time.Duration(b.random.Int64N(int64(sec)))
	}
	b.clock.Set(b.now - b.back)
}

func (b *booking) act() {
	costs, tokens := b.randomCosts(), b.randomTokens()
	switch b.random.IntN(10) {
	case 0, 1, 2:
		r, err := b.reserve(costs)
		require.NoError(b, err)
		b.booked = append(b.booked, booked{r, b.oracle.Wait(costs...)})
	case 3, 4:
		if len(b.booked) > 0 {
			r := b.booked[b.random.IntN(len(b.booked))]
			require.Equal(b, b.oracle.Cancel(r.place), r.Cancel(), b.where)
		}
	case 5:
		wait, ok := b.tryAcquire(costs)
		want, wantOK := b.oracle.Try(costs...)
		require.Equal(b, wantOK, ok, b.where)
		require.Equal(b, b.fromReading(want), wait, b.where)
	case 6:
		require.NoError(b, b.refund(tokens))
		b.oracle.Refund(tokens...)
	case 7:
		require.NoError(b, b.charge(tokens))
		b.oracle.Charge(tokens...)
	case 8:
		b.pauseOrSetLimits()
	case 9:
		if b.random.IntN(4) == 0 {
			b.bucket.Fill()
			b.oracle.Fill()
		}
	}
}

// randomCosts returns one cost for all limits, or one for each of them.
func (b *booking) randomCosts() []float64 {
	if b.random.IntN(2) == 0 {
		return []float64{float64(b.random.IntN(int(b.least())*4+1)) / 4}
	}
	costs := make([]float64, len(b.limits))
	for i, l := range b.limits {
		costs[i] = float64(b.random.IntN(2)*b.random.IntN(int(l.Capacity)*4+1)) / 4
	}
	return costs
}

func (b *booking) randomTokens() []float64 {
	tokens := make([]float64, 1+b.random.IntN(2)*(len(b.limits)-1))
	for i := range tokens {
		tokens[i] = float64(b.random.IntN(24)) / 4
	}
	return tokens
}

// one reports whether costs is one cost for all limits.
func (b *booking) one(costs []float64) bool {
	return len(costs) < len(b.limits) || b.random.IntN(2) == 0 && len(costs) == 1
}

func (b *booking) reserve(costs []float64) (*tokenbucket.Reservation, error) {
	if b.one(costs) {
		return b.bucket.Reserve(costs[0])
	}
	return b.bucket.ReserveEach(costs...)
}

func (b *booking) tryAcquire(costs []float64) (wait time.Duration, ok bool) {
	if b.one(costs) {
		return b.bucket.TryAcquire(costs[0])
	}
	return b.bucket.TryAcquireEach(costs...)
}

func (b *booking) refund(costs []float64) error {
	if b.one(costs) {
		return b.bucket.Refund(costs[0])
	}
	return b.bucket.RefundEach(costs...)
}

func (b *booking) charge(costs []float64) error {
	if b.one(costs) {
		return b.bucket.Charge(costs[0])
	}
	return b.bucket.ChargeEach(costs...)
}

func (b *booking) pauseOrSetLimits() {
	switch {
	case !b.exact:
	case b.random.IntN(2) == 0:
		d := sec / 32 * time.Duration(1+b.random.IntN(90))
		b.bucket.Pause(d)
		b.oracle.Pause(d)
	default:
		b.limits = b.randomLimits(len(b.limits))
		require.NoError(b, b.bucket.SetLimits(b.limits...))
		b.oracle.SetLimits(b.limits...)
	}
}

// fromReading returns a wait that counts from the reading of a call, given one that counts
// from the latest instant.
func (b *booking) fromReading(wait time.Duration) time.Duration {
	if wait > 0 {
		return wait + b.back
	}
	return 0
}

func (b *booking) check() {
	require.Equal(b, b.oracle.Waiting(), b.bucket.Waiting(), b.where)
	require.InDelta(b, b.oracle.Tokens(), b.bucket.Tokens(), 1e-9, b.where)
	for i, r := range b.booked {
		want := Never // it is cancelled, or its cost is above the new capacity
		if r.place.Served {
			want = 0
		} else if b.oracle.Queued(r.place) {
			want = b.fromReading(b.oracle.Due(r.place) - b.now)
		}
		require.Equal(b, want, r.Delay(), "%s: reservation %d", b.where, i)
		if want == Never || want == 0 {
			require.False(b, r.Cancel(), "%s: reservation %d", b.where, i)
		}
	}
}
