//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/juju/ratelimit"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/windowtest"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// throttler is a way to limit a writer to the refill of a limit, in bytes per second.
type throttler struct {
	name     string
	capacity func(tokenbucket.Limit) float64 // what it passes at once at the start, in bytes
	limit    func(l tokenbucket.Limit, w io.Writer) io.Writer
}

func capacityOf(l tokenbucket.Limit) float64 { return l.Capacity }

var throttlers = []throttler{
	{"x-time-rate", capacityOf, throttleByHand},
	{ours, capacityOf, func(l tokenbucket.Limit, w io.Writer) io.Writer {
		return iolimit.NewWriter(context.Background(), w, tokenbucket.MustNew(l))
	}},
	{"juju", capacityOf, func(l tokenbucket.Limit, w io.Writer) io.Writer {
		return ratelimit.Writer(w, ratelimit.NewBucketWithRate(l.RefillPerSec, int64(l.Capacity)))
	}},
	{"rclone", rcloneCapacity, throttleAsRclone},
	{"restic", resticCapacity, throttleAsRestic},
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// throttleByHand writes the same chunks as package iolimit.
func throttleByHand(l tokenbucket.Limit, w io.Writer) io.Writer {
	limiter := rate.NewLimiter(rate.Limit(l.RefillPerSec), int(l.Capacity))
	chunk := min(64<<10, int(l.Capacity)/2)
	return writerFunc(func(p []byte) (written int, err error) {
		for err == nil && written < len(p) {
			n := min(len(p)-written, chunk)
			if err = limiter.WaitN(context.Background(), n); err != nil {
				break
			}
			n, err = w.Write(p[written : written+n])
			written += n
		}
		return written, err
	})
}

// rcloneCapacity returns 4 MiB, and above 256 MiB per second 1/64 of that.
func rcloneCapacity(l tokenbucket.Limit) float64 {
	return max(4<<20, math.Floor(l.RefillPerSec/64))
}

// throttleAsRclone waits for a whole buffer, with a lock held, and then writes it.
func throttleAsRclone(l tokenbucket.Limit, w io.Writer) io.Writer {
	var mu sync.RWMutex
	limiter := rate.NewLimiter(rate.Limit(l.RefillPerSec), int(rcloneCapacity(l)))
	return writerFunc(func(p []byte) (int, error) {
		mu.RLock()
		err := limiter.WaitN(context.Background(), len(p))
		mu.RUnlock()
		if err != nil {
			return 0, err
		}
		return w.Write(p)
	})
}

// resticCapacity returns the refill of a second.
func resticCapacity(l tokenbucket.Limit) float64 { return math.Floor(l.RefillPerSec) }

// throttleAsRestic waits for a whole buffer, at most the capacity at a time, and then writes it.
func throttleAsRestic(l tokenbucket.Limit, w io.Writer) io.Writer {
	limiter := rate.NewLimiter(rate.Limit(l.RefillPerSec), int(resticCapacity(l)))
	return writerFunc(func(p []byte) (int, error) {
		for left := len(p); left > 0; {
			n := min(left, limiter.Burst())
			if err := limiter.WaitN(context.Background(), n); err != nil {
				return 0, err
			}
			left -= n
		}
		return w.Write(p)
	})
}

// destination is memory that bytes are copied to. It notes when they arrived.
type destination struct {
	start  time.Time
	memory []byte
	passes []windowtest.Pass
}

func (d *destination) Write(p []byte) (int, error) {
	d.passes = append(d.passes, windowtest.Pass{At: time.Since(d.start), Amount: float64(len(p))})
	return copy(d.memory, p), nil
}

// BenchmarkBytes copies what a full bucket holds plus the refill of a second, in buffers
// of a second or 1 MiB. It reports the share of the rate that was reached after the first
// bytes, how far any window ran ahead of the rate, and the processor time.
func BenchmarkBytes(b *testing.B) {
	for _, size := range []struct {
		name   string
		perSec float64
	}{{"10_KB", 10e3}, {"1_MB", 1e6}, {"125_MB", 125e6}, {"1250_MB", 1250e6}} {
		for _, p := range throttlers {
			b.Run(fmt.Sprintf("%s/%s_per_s", p.name, size.name), func(b *testing.B) {
				for range b.N {
					benchmarkBytes(b, p, iolimit.BytesPerSecond(size.perSec))
				}
			})
		}
	}
}

func benchmarkBytes(b *testing.B, p throttler, l tokenbucket.Limit) {
	buffer := make([]byte, int(min(1<<20, l.RefillPerSec)))
	total := int(p.capacity(l) + l.RefillPerSec)
	to := &destination{memory: make([]byte, len(buffer)), passes: make([]windowtest.Pass, 0, total/2048+16)}
	w := p.limit(l, to)
	cpu := processorTime(b)
	to.start = time.Now()
	for left := total; left > 0; {
		n, err := w.Write(buffer[:min(left, len(buffer))])
		require.NoError(b, err)
		left -= n
	}
	elapsed := time.Since(to.start)
	used := processorTime(b) - cpu
	ofRate := (float64(total) - p.capacity(l)) / l.RefillPerSec / elapsed.Seconds()
	ahead := windowtest.Surplus(to.passes, l.RefillPerSec)
	b.ReportMetric(ofRate, "of-rate")
	b.ReportMetric(1e3*ahead/l.RefillPerSec, "ms-ahead")
	b.ReportMetric(used.Seconds()*1e3*1e9/float64(total), "cpu-ms/GB")
	if limit := l.Capacity + min(64<<10, l.Capacity/2); p.name == ours && (ofRate > 1 || ahead > limit) {
		b.Errorf("%v of the rate, %v bytes ahead of it: more than 1 and %v", ofRate, ahead, limit)
	}
}
