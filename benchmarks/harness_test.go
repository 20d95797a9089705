package main

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/aa014e13/tokenbucket"
)

// ours is the row of the library in every table, or what its row begins with.
const ours = "tokenbucket"

// must returns a value, or fails if there is an error.
func must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

// window returns the time in which a limit's whole capacity is refilled, for peers
// that count in windows.
func window(l tokenbucket.Limit) time.Duration {
	return time.Duration(l.Capacity / l.RefillPerSec * float64(time.Second))
}

// interval returns the time in which a limit refills one token.
func interval(l tokenbucket.Limit) time.Duration {
	return time.Duration(math.Round(float64(time.Second) / l.RefillPerSec))
}

// load is a limit under which all requests get the same answer.
type load struct {
	name     string
	limit    tokenbucket.Limit
	admitted bool
}

var (
	full     = load{"full", tokenbucket.Limit{Capacity: 1e9, RefillPerSec: 1e9}, true} // again after 1 ns
	draining = load{"draining", tokenbucket.Limit{Capacity: 1 << 30, RefillPerSec: 1000}, true}
	refused  = load{"refused", tokenbucket.Limit{Capacity: 1, RefillPerSec: 1.0 / 3600}, false}
)

// ready takes the only token of a load whose requests are refused.
func (l load) ready(admit func() bool) func() bool {
	if !l.admitted {
		admit()
	}
	return admit
}

// serial measures the decisions of one goroutine, all of which must be want.
func serial(b *testing.B, peer string, want bool, admit func() bool) {
	wrong := 0
	for b.Loop() {
		if admit() != want {
			wrong++
		}
	}
	reportWrong(b, peer, wrong)
}

// parallel measures the decisions of as many goroutines as there are processors. Each
// goroutine gets its own admit from each.
func parallel(b *testing.B, peer string, want bool, each func() (admit func() bool)) {
	var all atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		admit, wrong := each(), 0
		for pb.Next() {
			if admit() != want {
				wrong++
			}
		}
		all.Add(int64(wrong))
	})
	reportWrong(b, peer, int(all.Load()))
}

// reportWrong reports the share of decisions that were wrong. If a decision of
// tokenbucket was wrong, the benchmark fails.
func reportWrong(b *testing.B, peer string, wrong int) {
	b.ReportMetric(100*float64(wrong)/float64(b.N), "%wrong")
	if wrong > 0 && strings.HasPrefix(peer, ours) {
		b.Errorf("%d of %d decisions wrong", wrong, b.N)
	}
}

// share lets n goroutines do b.N things, numbered from 0, and ends with the first error.
func share(b *testing.B, n int, do func(i int) error) {
	var next atomic.Int64
	var all errgroup.Group
	for range n {
		all.Go(func() error {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := do(int(i - 1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		b.Error(err)
	}
}
