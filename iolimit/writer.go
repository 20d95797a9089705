package iolimit

import (
	"context"
	"io"

	"github.com/aa014e13/tokenbucket"
)

// NewWriter returns a writer that writes to w no faster than each of the buckets
// allows, in bytes per second. Without buckets there is no limit; nil buckets are ignored.
//
// Write waits for a chunk, writes it to w, and goes on with the next one. It returns how
// many bytes w wrote. What it waited for and w did not write is refunded. If a
// bucket fails, those before it get their tokens back, and Write returns, by the rules
// of [tokenbucket.Bucket.Wait]:
//
//   - ctx's error if ctx has ended, then or while waiting
//   - a *[tokenbucket.DeadlineError], at once, if the wait would outlast ctx's deadline
//   - [tokenbucket.ErrTooManyWaiters] if a bucket has WithMaxWaiters
//   - [tokenbucket.ErrCostExceedsCapacity] if a capacity is less than 1 byte
//
// It returns io.ErrShortWrite if w writes less than it was given without an error. A
// Write of 0 bytes is passed on, even in a pause. An end of ctx does not end a call of w.Write.
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

// writer writes under a context that each call brings with it.
type writer struct {
	sink    io.Writer
	buckets buckets
	turn    turn
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
	size, paid, err := w.buckets.acquire(ctx, len(p))
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
