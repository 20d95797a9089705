//go:build unix

package main

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/juju/ratelimit"
	"github.com/stretchr/testify/require"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
)

// waiter is a peer that can make callers wait.
type waiter struct {
	name string
	open func(testing.TB, tokenbucket.Limit) (wait func() error) // empty
}

var waiters = []waiter{
	{"x-time-rate", waitRate},
	{ours, waitBucket},
	{"juju", waitJuju},
	{"failsafe", waitFailsafe},
	{"uber", waitUber},
}

func waitRate(tb testing.TB, l tokenbucket.Limit) func() error {
	limiter := rate.NewLimiter(rate.Limit(l.RefillPerSec), int(l.Capacity))
	require.True(tb, limiter.AllowN(time.Now(), int(l.Capacity)))
	return func() error { return limiter.Wait(context.Background()) }
}

func waitBucket(_ testing.TB, l tokenbucket.Limit) func() error {
	bucket := tokenbucket.MustNew(l, tokenbucket.WithTokens(0))
	return func() error { return bucket.Wait(context.Background(), 1) }
}

func waitJuju(_ testing.TB, l tokenbucket.Limit) func() error {
	bucket := ratelimit.NewBucketWithRate(l.RefillPerSec, int64(l.Capacity))
	bucket.TakeAvailable(bucket.Capacity())
	return func() error { bucket.Wait(1); return nil }
}

// waitFailsafe uses failsafe's evenly spaced limiter; its other one counts in windows.
func waitFailsafe(_ testing.TB, l tokenbucket.Limit) func() error {
	limiter := ratelimiter.NewSmoothWithMaxRate[any](interval(l))
	limiter.ReservePermit()
	return func() error { return limiter.AcquirePermit(context.Background()) }
}

func waitUber(_ testing.TB, l tokenbucket.Limit) func() error {
	limiter := uber.New(int(l.RefillPerSec), uber.WithSlack(int(l.Capacity)))
	limiter.Take()
	return func() error { limiter.Take(); return nil }
}

// BenchmarkWait takes tokens as fast as possible from a bucket whose capacity is the
// tokens of 10 ms. It reports the share of the configured rate that it reached, and the
// processor time per token. A share above 1 is wrong: tokens came too early.
func BenchmarkWait(b *testing.B) {
	for _, perSec := range []float64{1_000, 100_000} {
		for _, n := range []int{1, 64} {
			for _, p := range waiters {
				b.Run(fmt.Sprintf("%s/%v_per_s/%d_waiting", p.name, perSec, n), func(b *testing.B) {
					benchmarkWait(b, p, tokenbucket.Limit{Capacity: perSec / 100, RefillPerSec: perSec}, n)
				})
			}
		}
	}
}

func benchmarkWait(b *testing.B, p waiter, l tokenbucket.Limit, waiters int) {
	cpu, start := processorTime(b), time.Now()
	wait := p.open(b, l)
	share(b, waiters, func(int) error { return wait() })
	ofRate := float64(b.N) / time.Since(start).Seconds() / l.RefillPerSec
	b.ReportMetric(ofRate, "of-rate")
	b.ReportMetric(float64(processorTime(b)-cpu)/float64(b.N), "cpu-ns/token")
	if p.name == ours && ofRate > 1 {
		b.Errorf("%v of the configured rate", ofRate)
	}
}

// processorTime returns the processor time that the process has used so far.
func processorTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
