package iolimit

import (
	"context"
	"io"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/sleeper"
)

// NewWriter returns a writer that writes to w no faster than each of the buckets
// allows, in bytes per second. Without buckets there is no limit; nil buckets are ignored.
//
// Write waits for the tokens of a chunk, writes it to w, and continues with the next one. It
// returns how many bytes w wrote. Bytes that were paid for and that w did not write are
// refunded. If the wait for a bucket fails, the buckets before it get their tokens back, and
// Write returns:
//
//   - ctx's error if ctx has ended, before or during the wait
//   - a *[tokenbucket.DeadlineError], at once, if the wait would outlast ctx's deadline
//   - [tokenbucket.ErrTooManyWaiters] if a bucket has as many waiters as WithMaxWaiters allows
//   - [tokenbucket.ErrCostExceedsCapacity] if a capacity is less than 1 byte
//
// If w writes fewer bytes than it was given and returns no error, Write returns
// io.ErrShortWrite. A Write of 0 bytes calls w.Write at once, even in a pause. The end of
// ctx does not interrupt a call of w.Write.
//
// The writer may be used by several goroutines if w may; the bytes of a Write stay together.
func NewWriter(ctx context.Context, w io.Writer, buckets ...*tokenbucket.Bucket) io.Writer {
	return &contextWriter{ctx, newWriter(w, buckets)}
}

type contextWriter struct {
	ctx context.Context
	*writer
}

func (w *contextWriter) Write(p []byte) (int, error) { return w.write(w.ctx, p) }

// writer is a limited writer. Each call of write has a context of its own.
type writer struct {
	sink    io.Writer
	buckets buckets
	turn    turn
	sleeper sleeper.Sleeper // guarded by turn
}

func newWriter(sink io.Writer, all []*tokenbucket.Bucket) *writer {
	return &writer{sink: sink, buckets: withoutNil(all), turn: make(turn, 1)}
}

func (w *writer) write(ctx context.Context, p []byte) (written int, err error) {
	if len(p) == 0 || len(w.buckets) == 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return w.sink.Write(p)
	}
	if err := w.turn.take(ctx); err != nil {
		return 0, err
	}
	defer w.turn.leave()
	for written < len(p) && err == nil {
		var n int
		n, err = w.writeChunk(ctx, p[written:])
		written += n
	}
	return written, err
}

// writeChunk waits for a chunk of p, writes it, and returns how many bytes were written.
func (w *writer) writeChunk(ctx context.Context, p []byte) (int, error) {
	size, paid, err := w.buckets.acquire(ctx, len(p), &w.sleeper)
	if err != nil {
		paid.refund(size)
		return 0, err
	}
	n, err := w.sink.Write(p[:size])
	if invalid := checkCount("Write", n, size); invalid != nil {
		return 0, invalid
	}
	if n < size {
		paid.refund(size - n)
		if err == nil {
			err = io.ErrShortWrite
		}
	}
	return n, err
}
