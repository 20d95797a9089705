package iolimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// endless is a connection that reads and writes at once and ignores its deadlines.
type endless struct {
	net.Conn // nil
	*source
	*sink
	closed int
	err    error // of Close and of setting deadlines
}

func newEndless() *endless { return &endless{source: newSource(), sink: newSink()} }

func (e *endless) Read(p []byte) (int, error)        { return e.source.Read(p) }
func (e *endless) Write(p []byte) (int, error)       { return e.sink.Write(p) }
func (e *endless) Close() error                      { e.closed++; return e.err }
func (e *endless) SetDeadline(time.Time) error       { return e.err }
func (e *endless) SetReadDeadline(time.Time) error   { return e.err }
func (e *endless) SetWriteDeadline(time.Time) error  { return e.err }
func (e *endless) WriteTo(io.Writer) (int64, error)  { panic("bypassed") }
func (e *endless) ReadFrom(io.Reader) (int64, error) { panic("bypassed") }

// direction is Read or Write of a connection, with the method that sets its deadline.
type direction struct {
	name        string
	call        func(net.Conn) func([]byte) (int, error)
	setDeadline func(net.Conn, time.Time) error
	n           int // what it returns if the wait for the first chunk fails
}

var directions = []direction{
	{"Read", func(c net.Conn) func([]byte) (int, error) { return c.Read }, net.Conn.SetReadDeadline, 4},
	{"Write", func(c net.Conn) func([]byte) (int, error) { return c.Write }, net.Conn.SetWriteDeadline, 0},
}

// eachDirection tests both directions of a connection with an empty bucket.
func eachDirection(t *testing.T, test func(t *testing.T, d direction, c net.Conn, b *tokenbucket.Bucket)) {
	for _, d := range directions {
		inBubble(t, d.name, func(t *testing.T) {
			bucket := newBucket(0)
			test(t, d, iolimit.NewConn(newEndless(), iolimit.WithRead(bucket), iolimit.WithWrite(bucket)), bucket)
		})
	}
}

func TestConnWithoutADeadlineWaits(t *testing.T) {
	eachDirection(t, func(t *testing.T, d direction, c net.Conn, _ *tokenbucket.Bucket) {
		requireResult(t, 4, nil, 2*time.Second, <-run(d.call(c), make([]byte, 4)))
	})
}

func TestDeadlineEndsTheWaitWhenItPasses(t *testing.T) {
	for name, set := range map[string]func(d direction, c net.Conn, at time.Time) error{
		"of its direction": func(d direction, c net.Conn, at time.Time) error { return d.setDeadline(c, at) },
		"of both":          func(_ direction, c net.Conn, at time.Time) error { return c.SetDeadline(at) },
	} {
		t.Run(name, func(t *testing.T) {
			eachDirection(t, func(t *testing.T, d direction, c net.Conn, b *tokenbucket.Bucket) {
				b.Pause(time.Hour)
				require.NoError(t, set(d, c, time.Now().Add(time.Second)))
				got := <-run(d.call(c), make([]byte, 4))
				requireResult(t, d.n, os.ErrDeadlineExceeded, time.Second, got)
				var timeout net.Error
				require.ErrorAs(t, got.err, &timeout)
				require.True(t, timeout.Timeout())
				requireResult(t, 0, os.ErrDeadlineExceeded, 0, <-run(d.call(c), make([]byte, 4)))
				require.Equal(t, -float64(d.n), b.Tokens())
			})
		})
	}
}

func TestMovingTheDeadlineMovesTheEndOfTheWait(t *testing.T) {
	for _, test := range []struct {
		name         string
		first, moved time.Duration // from the start; 0 for none
		err          error
		at           time.Duration
	}{
		{"nearer", time.Hour, 90 * time.Second, os.ErrDeadlineExceeded, 90 * time.Second},
		{"from none", 0, 90 * time.Second, os.ErrDeadlineExceeded, 90 * time.Second},
		{"into the past", time.Hour, -time.Hour, os.ErrDeadlineExceeded, time.Second},
		{"to now", 0, time.Second, os.ErrDeadlineExceeded, time.Second},
		{"farther", 90 * time.Second, time.Hour, nil, 102 * time.Second},
		{"to none", 90 * time.Second, 0, nil, 102 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachDirection(t, func(t *testing.T, d direction, c net.Conn, b *tokenbucket.Bucket) {
				start := time.Now()
				set := func(in time.Duration) {
					var at time.Time
					if in != 0 {
						at = start.Add(in)
					}
					require.NoError(t, d.setDeadline(c, at))
				}
				b.Pause(100 * time.Second)
				set(test.first)
				got := while(d.call(c), make([]byte, 4), func() { set(test.moved) })
				n := 4
				if test.err != nil {
					n = d.n
				}
				requireResult(t, n, test.err, test.at, got)
			})
		})
	}
}

func TestDeadlineThatHasPassedCanBeMoved(t *testing.T) {
	eachDirection(t, func(t *testing.T, d direction, c net.Conn, _ *tokenbucket.Bucket) {
		for _, past := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(time.Second)} {
			require.NoError(t, d.setDeadline(c, past))
			time.Sleep(2 * time.Second)
			requireResult(t, 0, os.ErrDeadlineExceeded, 0, <-run(d.call(c), make([]byte, 4)))
			require.NoError(t, d.setDeadline(c, time.Time{}))
			requireResult(t, 4, nil, 0, <-run(d.call(c), make([]byte, 4)))
		}
	})
}

// Each Read would have to wait until long after its deadline. All of them together may pass
// only one chunk more than the bucket grants.
func TestShortDeadlinesDoNotReadForFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := iolimit.NewConn(newEndless(), iolimit.WithRead(newBucket(8)))
		read, start := 0, time.Now()
		for time.Since(start) < 10*time.Second {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			n, err := c.Read(make([]byte, 4))
			read += n
			require.True(t, err == nil || errors.Is(err, os.ErrDeadlineExceeded), err)
		}
		require.LessOrEqual(t, read, 8+20+4)
		require.GreaterOrEqual(t, read, 8+20-4)
	})
}

func TestReadAfterADeadlineTakesAsLongAsItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, inner := newBucket(0), newEndless()
		c := iolimit.NewConn(inner, iolimit.WithRead(bucket))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		requireResult(t, 4, os.ErrDeadlineExceeded, time.Second, <-run(c.Read, make([]byte, 4)))
		require.Equal(t, -2.0, bucket.Tokens())
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		requireResult(t, 4, nil, 3*time.Second, <-run(c.Read, make([]byte, 4)))
		require.Equal(t, []moved{{0, 4}, {2 * time.Second, 4}}, inner.source.moves, "the debt is paid first")
	})
}

func TestCloseEndsTheWait(t *testing.T) {
	eachDirection(t, func(t *testing.T, d direction, c net.Conn, b *tokenbucket.Bucket) {
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
		got := while(d.call(c), make([]byte, 4), func() { require.NoError(t, c.Close()) })
		requireResult(t, d.n, net.ErrClosed, time.Second, got)
		require.Equal(t, float64(2-d.n), b.Tokens())
		require.NoError(t, d.setDeadline(c, time.Time{}))
		requireResult(t, 0, net.ErrClosed, 0, <-run(d.call(c), make([]byte, 4)))
	})
}

func TestCloseAfterTheDeadlineIsStillClosed(t *testing.T) {
	eachDirection(t, func(t *testing.T, d direction, c net.Conn, _ *tokenbucket.Bucket) {
		require.NoError(t, d.setDeadline(c, time.Now()))
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "the second one is passed on too")
		requireResult(t, 0, net.ErrClosed, 0, <-run(d.call(c), make([]byte, 4)))
	})
}

func TestReadAndWriteAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := iolimit.NewConn(newEndless(), iolimit.WithRead(newBucket(0)), iolimit.WithWrite(newBucket(0)))
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		read, written := run(c.Read, make([]byte, 4)), run(c.Write, count(8))
		requireResult(t, 4, os.ErrDeadlineExceeded, time.Second, <-read)
		requireResult(t, 8, nil, 4*time.Second, <-written)
	})
}

func TestConnOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, shared := newBucket(8), newBucket(8)
		c := iolimit.NewConn(newEndless(), iolimit.WithWrite(own, nil), nil, iolimit.WithWrite(shared))
		requireResult(t, 4, nil, 0, <-run(c.Write, count(4)))
		require.Equal(t, 4.0, own.Tokens())
		require.Equal(t, 4.0, shared.Tokens())
		requireResult(t, 1<<20, nil, 0, <-run(c.Read, make([]byte, 1<<20)))
	})
}

func TestFailureToSetADeadlineChangesNothing(t *testing.T) {
	eachDirection(t, func(t *testing.T, d direction, _ net.Conn, b *tokenbucket.Bucket) {
		inner := newEndless()
		inner.err = errBroken
		c := iolimit.NewConn(inner, iolimit.WithRead(b), iolimit.WithWrite(b))
		require.ErrorIs(t, d.setDeadline(c, time.Now()), errBroken)
		require.ErrorIs(t, c.SetDeadline(time.Now()), errBroken)
		requireResult(t, 4, nil, 2*time.Second, <-run(d.call(c), make([]byte, 4)))
		require.ErrorIs(t, c.Close(), errBroken)
		require.Equal(t, 1, inner.closed)
	})
}

// An error of the wrapped connection is returned unchanged, even if it is context.Canceled.
func TestErrorsOfTheWrappedConnAreItsOwn(t *testing.T) {
	inner := newEndless()
	inner.give = func(int) (int, error) { return 0, context.Canceled }
	_, err := iolimit.NewConn(inner, iolimit.WithRead(newBucket(8))).Read(make([]byte, 4))
	require.ErrorIs(t, err, context.Canceled)
}

type closesRead struct{ *endless }

func (c closesRead) CloseRead() error { c.closed += 10; return nil }

type closesWrite struct{ *endless }

func (c closesWrite) CloseWrite() error { c.closed += 100; return c.err }

type halfWriter interface{ CloseWrite() error }

type closesBoth struct {
	closesRead
	halfWriter
}

func TestHalvesAreClosedIfTheWrappedConnCan(t *testing.T) {
	inner := newEndless()
	for name, test := range map[string]struct {
		conn          net.Conn
		reads, writes bool
		closed        int
	}{
		"neither": {inner, false, false, 0},
		"read":    {closesRead{inner}, true, false, 10},
		"write":   {closesWrite{inner}, false, true, 100},
		"both":    {closesBoth{closesRead{inner}, closesWrite{inner}}, true, true, 110},
	} {
		t.Run(name, func(t *testing.T) {
			c := iolimit.NewConn(test.conn)
			r, reads := c.(interface{ CloseRead() error })
			w, writes := c.(halfWriter)
			require.Equal(t, test.reads, reads)
			require.Equal(t, test.writes, writes)
			inner.closed = 0
			if reads {
				require.NoError(t, r.CloseRead())
			}
			if writes {
				require.NoError(t, w.CloseWrite())
			}
			require.Equal(t, test.closed, inner.closed)
			_, isSource := c.(io.WriterTo)
			_, isSink := c.(io.ReaderFrom)
			require.False(t, isSource || isSink)
		})
	}
}

func TestCloseWriteEndsTheWaitOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := newBucket(0)
		inner := closesWrite{newEndless()}
		c := iolimit.NewConn(inner, iolimit.WithWrite(bucket))
		closeWrite := c.(halfWriter).CloseWrite
		inner.err = errBroken
		require.ErrorIs(t, closeWrite(), errBroken)
		inner.err = nil
		got := while(c.Write, count(4), func() { require.NoError(t, closeWrite()) })
		requireResult(t, 0, net.ErrClosed, time.Second, got)
		require.Equal(t, 2.0, bucket.Tokens())
		requireResult(t, 4, nil, 0, <-run(c.Read, make([]byte, 4)))
	})
}

func TestOptionsKeepNoSliceOfTheCaller(t *testing.T) {
	read, write := newBucket(8), newBucket(8)
	forRead, forWrite := []*tokenbucket.Bucket{read}, []*tokenbucket.Bucket{write}
	opts := []iolimit.Option{iolimit.WithRead(forRead...), iolimit.WithWrite(forWrite...)}
	forRead[0], forWrite[0] = nil, nil
	c := iolimit.NewConn(closesWrite{newEndless()}, opts...)
	_, err := c.Write(count(4))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 4))
	require.NoError(t, err)
	require.Less(t, read.Tokens(), 8.0)
	require.Less(t, write.Tokens(), 8.0)
}
