package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// idiom is what is written most often: a map of limiters behind a mutex.
type idiom struct {
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func (m *idiom) allow(key string) bool {
	m.mu.Lock()
	l := m.limiters[key]
	if l == nil {
		l = rate.NewLimiter(1e-6, 1<<30)
		m.limiters[key] = l
	}
	m.mu.Unlock()
	return l.Allow()
}

// accesses is a long sequence of keys, drawn beforehand.
const accesses = 1 << 20

func draw(n int, zipf bool) []string {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func() uint64 { return random.Uint64N(uint64(n)) }
	if zipf {
		pick = rand.NewZipf(random, 1.1, 1, uint64(n-1)).Uint64
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("client-", i)
	}
	random.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	order := make([]string, accesses)
	for i := range order {
		order[i] = keys[pick()]
	}
	return order
}

func BenchmarkKeyed(b *testing.B) {
	for _, load := range []struct {
		name string
		n    int
		zipf bool
	}{{"hot", 1, false}, {"10k-uniform", 10_000, false}, {"1M-uniform", 1_000_000, false}, {"1M-zipf", 1_000_000, true}} {
		order := draw(load.n, load.zipf)
		buckets, err := keyed.New[string](tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1e-6})
		if err != nil {
			b.Fatal(err)
		}
		peers := map[string]func(string){
			"keyed": func(key string) { buckets.TryAcquire(key, 1) },
		}
		m := &idiom{limiters: map[string]*rate.Limiter{}}
		peers["idiom"] = func(key string) { m.allow(key) }
		for _, peer := range []string{"idiom", "keyed"} {
			decide := peers[peer]
			for _, key := range order {
				decide(key)
			}
			b.Run(load.name+"/serial/"+peer, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					decide(order[i%accesses])
				}
			})
			b.Run(load.name+"/parallel/"+peer, func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.IntN(accesses); pb.Next(); i++ {
						decide(order[i%accesses])
					}
				})
			})
		}
	}
}
