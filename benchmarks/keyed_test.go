package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// slow admits all requests for a long time. No key becomes full, and so forgotten, in
// that time.
var slow = tokenbucket.Limit{Capacity: 1 << 28, RefillPerSec: 0.05}

const (
	million  = 1_000_000
	accesses = 1 << 20 // in a sequence of keys, drawn beforehand
)

// clients are a million keys in no order. They are parts of one string, to reduce the
// work of the garbage collector.
var clients = sync.OnceValue(func() []string {
	var all strings.Builder
	ends := make([]int, million)
	for i := range ends {
		fmt.Fprintf(&all, "client-%d", i)
		ends[i] = all.Len()
	}
	keys, begin := make([]string, million), 0
	for i, end := range ends {
		keys[i] = all.String()[begin:end]
		begin = end
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(million, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
})

// crowd is a number of clients, and the orders in which they send requests.
type crowd struct {
	keys   int
	orders []order
}

type order struct {
	name string
	draw func() []string
}

var crowds = []crowd{
	{1, []order{{"hot", uniform(1)}}},
	{10_000, []order{{"10k", uniform(10_000)}}},
	{million, []order{{"1M-uniform", uniform(million)}, {"1M-zipf", zipf(million)}}},
}

func uniform(n int) func() []string {
	return draw(func(random *rand.Rand) uint64 { return random.Uint64N(uint64(n)) })
}

func zipf(n int) func() []string {
	var popular *rand.Zipf
	return draw(func(random *rand.Rand) uint64 {
		if popular == nil {
			popular = rand.NewZipf(random, 1.1, 1, uint64(n-1))
		}
		return popular.Uint64()
	})
}

// draw draws a sequence of keys when it is first needed.
func draw(pick func(*rand.Rand) uint64) func() []string {
	return sync.OnceValue(func() []string {
		random := rand.New(rand.NewPCG(3, 4))
		keys := make([]string, accesses)
		for i := range keys {
			keys[i] = clients()[pick(random)]
		}
		return keys
	})
}

// mapLookup measures the machine: a limiter that keeps its keys in a map cannot be
// faster.
var mapLookup = perKey{"(map-lookup)", func(testing.TB, tokenbucket.Limit) func(string) bool {
	m := map[string]*int{}
	return func(key string) bool {
		if m[key] == nil { // only before the measurement
			m[key] = new(int)
		}
		return true
	}
}}

// BenchmarkKeyed measures one limiter for each key. All keys are known before. It also
// measures how much memory a million of them take, without the keys themselves.
func BenchmarkKeyed(b *testing.B) {
	for _, p := range append(perKeys[:len(perKeys):len(perKeys)], mapLookup) {
		b.Run(p.name, func(b *testing.B) {
			for _, c := range crowds {
				benchmarkCrowd(b, p, c)
			}
			benchmarkRare(b, p, 10_000)
			benchmarkRare(b, p, million)
		})
	}
}

func benchmarkCrowd(b *testing.B, p perKey, c crowd) {
	if testing.Short() && c.keys == million {
		return // a million keys take seconds
	}
	before := heap()
	admit := p.open(b, slow)
	for _, key := range clients()[:c.keys] {
		admit(key)
	}
	after := heap()
	for _, o := range c.orders {
		each := inOrder(o.draw(), admit)
		b.Run(o.name+"/serial", func(b *testing.B) {
			serial(b, p.name, true, each())
			if c.keys == million {
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/million, "B/key")
				b.ReportMetric(float64(after.HeapObjects-before.HeapObjects)/million, "objects/key")
			}
		})
		b.Run(o.name+"/parallel", func(b *testing.B) { parallel(b, p.name, true, each) })
	}
}

// openAt opens the peers whose clock can be set by hand.
var openAt = map[string]func(testing.TB, tokenbucket.Limit, *handClock) func(string) bool{
	"idiom": func(_ testing.TB, l tokenbucket.Limit, hand *handClock) func(string) bool {
		m := &idiom{limit: l, limiters: map[string]*rate.Limiter{}}
		return func(key string) bool { return m.of(key).AllowN(hand.now, 1) }
	},
	ours: func(tb testing.TB, l tokenbucket.Limit, hand *handClock) func(string) bool {
		buckets := must[*keyed.Buckets[string]](tb)(keyed.New[string](l, keyed.WithClock(hand)))
		return func(key string) bool { _, ok := buckets.TryAcquire(key, 1); return ok }
	},
}

// benchmarkRare lets n clients ask in turn, 1 us after each other. A token is refilled in
// a tenth of a turn, so each bucket is full again when its client comes back.
func benchmarkRare(b *testing.B, p perKey, n int) {
	open := openAt[p.name]
	if open == nil || testing.Short() && n == million {
		return
	}
	b.Run(fmt.Sprintf("%s-rare/serial", map[int]string{10_000: "10k", million: "1M"}[n]), func(b *testing.B) {
		hand, i := newHandClock(), 0
		admit := open(b, tokenbucket.Limit{Capacity: 10, RefillPerSec: 1e7 / float64(n)}, hand)
		next := func() bool {
			hand.now = hand.now.Add(time.Microsecond)
			i++
			return admit(clients()[i%n])
		}
		for range 2 * n {
			next()
		}
		serial(b, p.name, true, next)
	})
}

// inOrder returns a function whose results go through the keys, each from another place
// on.
func inOrder(keys []string, admit func(string) bool) func() func() bool {
	return func() func() bool {
		i := rand.IntN(accesses)
		return func() bool { i++; return admit(keys[i%accesses]) }
	}
}

// heap returns the sizes of the live objects on the heap.
func heap() runtime.MemStats {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats
}
