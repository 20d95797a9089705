package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// machine measures operations that every limiter needs, as lower bounds for the peers.
var machine = []single{
	{name: "(call)", admitsOnly: true, open: openCall},
	{name: "(time.Since)", admitsOnly: true, open: openSince},
	{name: "(time.Now)", admitsOnly: true, open: openNow},
	{name: "(CAS)", admitsOnly: true, open: openSwap},
	{name: "(time.Since,CAS)", admitsOnly: true, open: openSinceSwap},
	{name: "(mutex)", admitsOnly: true, open: openMutex},
}

// openCall measures the cost of the benchmark itself.
func openCall(testing.TB, tokenbucket.Limit) func() bool {
	return func() bool { return true }
}

func openSince(testing.TB, tokenbucket.Limit) func() bool {
	origin := time.Now()
	return func() bool { return time.Since(origin) >= 0 }
}

func openNow(testing.TB, tokenbucket.Limit) func() bool {
	return func() bool { return !time.Now().IsZero() }
}

func openSwap(testing.TB, tokenbucket.Limit) func() bool {
	var word atomic.Int64
	return func() bool { return swap(&word, 1) }
}

func openSinceSwap(testing.TB, tokenbucket.Limit) func() bool {
	var word atomic.Int64
	origin := time.Now()
	return func() bool { return swap(&word, int64(time.Since(origin))) }
}

// swap tries again until no other goroutine has changed the word in between.
func swap(word *atomic.Int64, add int64) bool {
	for {
		old := word.Load()
		if word.CompareAndSwap(old, old+add) {
			return true
		}
	}
}

func openMutex(testing.TB, tokenbucket.Limit) func() bool {
	var mu sync.Mutex
	var count int
	return func() bool {
		mu.Lock()
		count++
		mu.Unlock()
		return true
	}
}

// BenchmarkOne measures one limiter that is full at each request, one that drains, and
// one that refuses everything. Peers that need keys have one key.
func BenchmarkOne(b *testing.B) {
	all := append(singles[:len(singles):len(singles)], machine...)
	for _, p := range perKeys[2:] {
		all = append(all, p.oneKey())
	}
	for _, l := range []load{full, draining, refused} {
		able := all
		if !l.admitted {
			able = slices.DeleteFunc(slices.Clone(all), func(p single) bool { return p.admitsOnly })
		}
		for _, p := range able {
			b.Run(p.name+"/"+l.name+"/serial", func(b *testing.B) {
				serial(b, p.name, l.admitted, l.ready(p.open(b, l.limit)))
			})
		}
		for _, p := range able {
			b.Run(p.name+"/"+l.name+"/parallel", func(b *testing.B) {
				admit := l.ready(p.open(b, l.limit))
				parallel(b, p.name, l.admitted, func() func() bool { return admit })
			})
		}
	}
}

// BenchmarkMachine measures the state of the machine for a table: the operations that every
// decision needs, with 1 and with 2 goroutines.
func BenchmarkMachine(b *testing.B) {
	for _, t := range tables {
		if t.bench == "" {
			continue
		}
		b.Run("table_"+t.number, func(b *testing.B) {
			admit := openSinceSwap(b, tokenbucket.Limit{})
			parallel(b, "(time.Since,CAS)", true, func() func() bool { return admit })
		})
	}
}
