package iolimit_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// Streams share buckets whose limits change, also to less than a chunk and less than a
// byte. Meanwhile deadlines pass, move and are removed. Each byte that moved is charged
// once to the first bucket and once to the last one, regardless of the buckets between
// them.
func TestEveryByteIsChargedOnceInAStorm(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			first, chargedFirst := counting()
			last, chargedLast := counting()
			buckets := []*tokenbucket.Bucket{first, newBucket(8), newBucket(0), last}
			var moved atomic.Int64
			var streams sync.WaitGroup
			for i := range uint64(4) {
				c := iolimit.NewConn(newEndless(), iolimit.WithRead(buckets...), iolimit.WithWrite(buckets...))
				for j, call := range []func([]byte) (int, error){c.Read, c.Write} {
					streams.Go(func() { moved.Add(moveInAStorm(t, call, rand.New(rand.NewPCG(seed, 8*i+uint64(j))))) })
				}
				go disturb(t, c, buckets[1:3], rand.New(rand.NewPCG(seed, 100+i)))
			}
			streams.Wait()
			require.InDelta(t, moved.Load(), chargedFirst(), 0.01)
			require.InDelta(t, moved.Load(), chargedLast(), 0.01)
			require.Zero(t, first.Waiting()+buckets[1].Waiting()+buckets[2].Waiting()+last.Waiting())
		})
	}
}

// moveInAStorm calls Read or Write until the connection is closed.
func moveInAStorm(t *testing.T, call func([]byte) (int, error), random *rand.Rand) (moved int64) {
	for {
		n, err := call(make([]byte, random.IntN(20)))
		moved += int64(n)
		switch {
		case errors.Is(err, net.ErrClosed):
			return moved
		case err != nil:
			timedOut, tooSmall := errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, tokenbucket.ErrCostExceedsCapacity)
			assert.True(t, timedOut || tooSmall, err)
		}
		time.Sleep(time.Duration(random.IntN(3)) * 100 * time.Millisecond)
	}
}

// disturb changes the limits and the deadlines for some minutes, and closes the connection.
func disturb(t *testing.T, c net.Conn, buckets []*tokenbucket.Bucket, random *rand.Rand) {
	for range 200 {
		b := buckets[random.IntN(2)]
		at := time.Now().Add(time.Duration(random.IntN(30)-5) * 100 * time.Millisecond)
		switch random.IntN(10) {
		case 0, 1, 2:
			l := tokenbucket.Limit{Capacity: []float64{0.5, 1, 2, 3, 8, 40}[random.IntN(6)], RefillPerSec: float64(1 + random.IntN(20))}
			assert.NoError(t, b.SetLimits(l))
		case 3:
			b.Pause(time.Duration(random.IntN(20)) * 100 * time.Millisecond)
		case 4:
			b.Fill()
		case 5:
			assert.NoError(t, c.SetReadDeadline(at))
		case 6:
			assert.NoError(t, c.SetWriteDeadline(at))
		case 7, 8, 9:
			assert.NoError(t, c.SetDeadline(time.Time{}))
		}
		time.Sleep(time.Duration(random.IntN(10)) * 100 * time.Millisecond)
	}
	assert.NoError(t, c.Close())
}
