package redisbucket_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const maxAge = 100 * ms

func leasing(addr string) job {
	return job{Addr: addr, Limit: limit(1000, 1000), Goroutines: goroutines, For: 3 * sec, Lease: 20}
}

func TestLeasingProcessesTogetherGetTheLimit(t *testing.T) {
	r := startReal(t)
	j := leasing(r.Server.Addr)
	s := sum(t, startAll(t, processes, j))
	require.Zero(t, s.failures)
	s.requireWithin(t, j.Limit, 0.95)
	r.requireTTLs()
}

func TestLeasingProcessIsKilledInTheMiddle(t *testing.T) {
	r := startReal(t)
	j := leasing(r.Server.Addr)
	all := startAll(t, processes, j)
	time.Sleep(sec)
	require.NoError(t, all[0].Process.Kill())
	killed := r.Time(background).Val()
	s := sum(t, all[1:])
	require.Zero(t, s.failures)
	s.requireAtMost(t, j.Limit.Capacity, j.Limit.RefillPerSec)
	// The other processes got all tokens that were refilled since.
	require.GreaterOrEqual(t, float64(s.admitted), 0.95*j.Limit.RefillPerSec*s.due.Sub(killed).Seconds())
	r.requireTTLs()
}

func TestServerOfLeasesIsRestartedInTheMiddle(t *testing.T) {
	r := startReal(t)
	j := leasing(r.Server.Addr)
	j.For = 5 * sec
	all := startAll(t, processes, j)
	time.Sleep(sec)
	r.Kill()
	awaitFailures(all)
	r.Restart()
	s := sum(t, all)
	require.Positive(t, s.failures)
	// The server lost its data, so the bucket was full twice, and the leased tokens come
	// in addition.
	s.requireAtMost(t, 2*j.Limit.Capacity+processes*j.Lease, j.Limit.RefillPerSec)
	require.NotEmpty(t, r.info("cmdstat_evalsha"), "it was used afterwards")
	r.requireTTLs()
}
