package iolimit

import (
	"context"
	"io"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/sleeper"
)

// NewReader returns a reader that reads from r no faster than each of the buckets
// allows, in bytes per second. Without buckets there is no limit; nil buckets are ignored.
//
// Read calls r.Read once, for at most a chunk, and then waits for the tokens of the bytes
// that it has read. It holds no tokens while r blocks. If the wait fails, Read returns the
// bytes and an error:
//
//   - ctx's error if ctx ends
//   - a *[tokenbucket.DeadlineError], at once, if the wait would outlast ctx's deadline
//   - [tokenbucket.ErrTooManyWaiters] if a bucket has as many waiters as WithMaxWaiters allows
//   - [tokenbucket.ErrCostExceedsCapacity] if a capacity has become less than 1 byte
//
// These bytes are charged although the wait failed, so the next Read waits before it reads.
// If ctx has ended or a capacity is below 1 byte when Read is called, nothing is read. A
// Read of 0 bytes calls r.Read at once, even in a pause. The end of ctx does not interrupt a
// call of r.Read.
//
// The reader may be used by several goroutines if r may.
func NewReader(ctx context.Context, r io.Reader, buckets ...*tokenbucket.Bucket) io.Reader {
	return &contextReader{ctx, newReader(r, buckets)}
}

type contextReader struct {
	ctx context.Context
	*reader
}

func (r *contextReader) Read(p []byte) (int, error) { return r.read(r.ctx, p) }

// reader is a limited reader. Each call of read has a context of its own.
type reader struct {
	source  io.Reader
	buckets buckets
	turn    turn

	// Guarded by turn.
	sleeper sleeper.Sleeper
	owes    bool  // the wait for the bytes of the last Read failed
	err     error // the source's error that came with these bytes; the next Read returns it
}

func newReader(source io.Reader, all []*tokenbucket.Bucket) *reader {
	return &reader{source: source, buckets: withoutNil(all), turn: make(turn, 1)}
}

func (r *reader) read(ctx context.Context, p []byte) (int, error) {
	if len(p) == 0 || len(r.buckets) == 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.source.Read(p)
	}
	if err := r.turn.take(ctx); err != nil {
		return 0, err
	}
	defer r.turn.leave()
	if err := r.settle(ctx); err != nil {
		return 0, err
	}
	size, err := r.buckets.chunk(len(p))
	if err != nil {
		return 0, err
	}
	n, err := r.source.Read(p[:size])
	if invalid := checkCount("Read", n, size); invalid != nil {
		return 0, invalid
	}
	if failed := r.pay(ctx, n); failed != nil {
		r.owes, r.err = true, err
		return n, failed
	}
	return n, err
}

// settle waits for the bytes of the last Read if its wait failed, and returns the
// source's error that came with them.
func (r *reader) settle(ctx context.Context) error {
	if !r.owes {
		return nil
	}
	if err := r.buckets.settle(ctx, &r.sleeper); err != nil {
		return err
	}
	err := r.err
	r.owes, r.err = false, nil
	return err
}

// pay waits for the tokens of n bytes that were read. If the wait fails, it charges them.
func (r *reader) pay(ctx context.Context, n int) error {
	for n > 0 {
		size, paid, err := r.buckets.acquire(ctx, n, &r.sleeper)
		if err != nil {
			r.buckets[len(paid):].charge(n)
			paid.charge(n - size)
			return err
		}
		n -= size
	}
	return nil
}
