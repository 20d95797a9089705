package tokenbucket_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// BenchmarkClock measures the least time of any decision on this machine: one reading of
// the clock and one uncontended compare-and-swap.
func BenchmarkClock(b *testing.B) {
	origin := time.Now()
	var word atomic.Int64
	b.ReportAllocs()
	for b.Loop() {
		old := word.Load()
		word.CompareAndSwap(old, int64(time.Since(origin)))
	}
}

var (
	roomy   = Limit{Capacity: 1 << 42, RefillPerSec: 1}
	tight   = Limit{Capacity: 1, RefillPerSec: 1e-6}
	another = map[Limit]Limit{roomy: {1 << 41, 2}, tight: {1, 2e-6}}
)

// benchmark runs a loop on a bucket that admits everything and on one that refuses
// everything, with one limit and with two.
func benchmark(b *testing.B, loop func(*testing.B, *tokenbucket.Bucket)) {
	for _, answer := range []struct {
		name   string
		limit  Limit
		tokens float64
	}{{"admitted", roomy, 1 << 41}, {"refused", tight, 0}} {
		opts := []tokenbucket.Option{tokenbucket.WithTokens(answer.tokens)}
		for limits := 1; limits <= 2; limits++ {
			b.Run(fmt.Sprintf("%s/limits=%d", answer.name, limits), func(b *testing.B) {
				b.ReportAllocs()
				loop(b, tokenbucket.MustNew(answer.limit, opts...))
			})
			opts = append(opts, tokenbucket.WithLimit(another[answer.limit]))
		}
	}
}

func BenchmarkTryAcquire(b *testing.B) {
	benchmark(b, func(b *testing.B, bucket *tokenbucket.Bucket) {
		for b.Loop() {
			bucket.TryAcquire(1)
		}
	})
}

func BenchmarkTake(b *testing.B) {
	benchmark(b, func(b *testing.B, bucket *tokenbucket.Bucket) {
		for b.Loop() {
			bucket.Take(1)
		}
	})
}

func BenchmarkTryAcquireParallel(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			bucket.TryAcquire(1)
		}
	})
}

func BenchmarkWait(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = bucket.Wait(ctx, 1)
	}
}

func BenchmarkLimitTake(b *testing.B) {
	state := roomy.Full(0)
	var now time.Duration
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		state, _ = roomy.Take(state, now, 1)
	}
}

// The next two decide about two limits with the lock: TakeEach does, and so does Take of
// a cost that is not a whole number.

func BenchmarkTakeWithTheLock(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy, tokenbucket.WithLimit(another[roomy]))
	b.ReportAllocs()
	for b.Loop() {
		bucket.Take(0.5)
	}
}

func BenchmarkTakeEach(b *testing.B) {
	bucket := tokenbucket.MustNew(roomy, tokenbucket.WithLimit(another[roomy]))
	b.ReportAllocs()
	for b.Loop() {
		bucket.TakeEach(0.5, 0.25)
	}
}

// BenchmarkLongQueue measures the time of a new request behind n reservations. It should
// not grow with n.
func BenchmarkLongQueue(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		bucket := tokenbucket.MustNew(Limit{10, 0.001}, tokenbucket.WithTokens(0))
		for range n {
			if _, err := bucket.Reserve(1); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("newcomer/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := bucket.Reserve(1)
				if err != nil {
					b.Fatal(err)
				}
				r.Cancel()
			}
		})
		b.Run(fmt.Sprintf("Waiting/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				bucket.Waiting()
			}
		})
	}
}
