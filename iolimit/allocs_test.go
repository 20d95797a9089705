package iolimit_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// A chunk without a wait allocates nothing.
func TestGrantedChunksDoNotAllocate(t *testing.T) {
	const chunks = 16
	own, _ := counting()
	shared := tokenbucket.MustNew(tokenbucket.Unlimited(), tokenbucket.WithLimit(iolimit.BytesPerSecond(1e15)))
	buffer := make([]byte, chunks*64<<10)
	in := bytes.NewReader(buffer)
	w := iolimit.NewWriter(t.Context(), io.Discard, own, shared)
	r := iolimit.NewReader(t.Context(), in, own, shared)
	conn := iolimit.NewConn(newEndless(), iolimit.WithRead(own), iolimit.WithWrite(shared))
	for name, move := range map[string]func() (int, error){
		"write":        func() (int, error) { return w.Write(buffer) },
		"read":         func() (int, error) { in.Reset(buffer); return r.Read(buffer) },
		"read of conn": func() (int, error) { return conn.Read(buffer) },
	} {
		for range 20 {
			_, err := move() // the bucket decides under its lock at first
			require.NoError(t, err)
		}
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = move() }), name)
	}
}

// A stream keeps the timer and the channel of a wait for the next one.
func TestChunksThatWaitDoNotAllocate(t *testing.T) {
	eachDirection(t, func(t *testing.T, d direction, c net.Conn, _ *tokenbucket.Bucket) {
		call, p, start := d.call(c), make([]byte, 4), time.Now()
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = call(p) }))
		require.Equal(t, 101*2*time.Second, time.Since(start), "each waits")
	})
}
