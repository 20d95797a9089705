package keyed_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

func BenchmarkTryAcquire(b *testing.B) {
	for _, n := range []int{1, 10_000, 1_000_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("client-", i)
		}
		buckets, err := keyed.New[string](limit(1<<40, 1e-6))
		if err != nil {
			b.Fatal(err)
		}
		for _, key := range keys {
			buckets.TryAcquire(key, 1)
		}
		order := make([]string, 1<<20)
		for i := range order {
			order[i] = keys[rand.IntN(n)]
		}
		b.Run(fmt.Sprintf("keys=%d/serial", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				buckets.TryAcquire(order[i&(1<<20-1)], 1)
			}
		})
		b.Run(fmt.Sprintf("keys=%d/parallel", n), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(1 << 20); pb.Next(); i++ {
					buckets.TryAcquire(order[i&(1<<20-1)], 1)
				}
			})
		})
	}
}

func BenchmarkNewKey(b *testing.B) {
	buckets, err := keyed.New[int](limit(1, 1e-9))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		buckets.TryAcquire(i, 1)
	}
}

// BenchmarkSave measures All and Restore of a million keys, without any encoding.
func BenchmarkSave(b *testing.B) {
	buckets := newBuckets[string](b, nil, []tokenbucket.Limit{limit(10, 1e-6)})
	for i := range 1_000_000 {
		buckets.TryAcquire(fmt.Sprint("client-", i), 1)
	}
	kept := save(buckets)
	b.Run("All", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for range buckets.All() {
				n++
			}
			require.Equal(b, 1_000_000, n)
		}
	})
	b.Run("Restore", func(b *testing.B) {
		for b.Loop() {
			restored := newBuckets[string](b, nil, []tokenbucket.Limit{limit(10, 1e-6)})
			require.NoError(b, kept.restore(restored))
			require.Equal(b, 1_000_000, restored.Len())
		}
	})
	b.Run("SetLimits", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			require.NoError(b, buckets.SetLimits(limit(float64(11+i), 1e-6)))
		}
	})
}
