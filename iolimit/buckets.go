package iolimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/sleeper"
)

// maxChunk is the most that a stream pays for at once, in bytes. Larger chunks would not be
// faster, and would let other streams that share a bucket wait longer.
const maxChunk = 64 << 10

// buckets are the buckets of one stream. Each of them must grant the stream's bytes. None
// is nil.
type buckets []*tokenbucket.Bucket

// withoutNil returns a copy without nil buckets, which limit nothing.
func withoutNil(all []*tokenbucket.Bucket) buckets {
	return slices.DeleteFunc(slices.Clone(all), func(b *tokenbucket.Bucket) bool { return b == nil })
}

// chunk returns how many of n bytes, 1 or more, may be paid for at once:
//
//	min(n, 64 KiB, max(1, capacity / 2))    for the smallest capacity
//
// A chunk is half the capacity and not all of it. A chunk of all of it would need a full
// bucket, and a full bucket loses the tokens that are refilled until the waiter wakes. chunk
// returns ErrCostExceedsCapacity for a capacity below 1 byte.
//
// The capacity is read for each chunk, since it may change at any time.
func (bs buckets) chunk(n int) (int, error) {
	capacity := math.Inf(1)
	for _, b := range bs {
		capacity = min(capacity, b.Capacity())
	}
	if capacity < 1 {
		return 0, fmt.Errorf("iolimit: %w: the capacity %v is below one byte: choose one of 2 bytes or more", tokenbucket.ErrCostExceedsCapacity, capacity)
	}
	return min(n, int(min(maxChunk, max(1, capacity/2)))), nil
}

// acquire waits until each bucket in turn has granted a chunk of n bytes, 1 or more. It
// returns the size of the chunk and the buckets that granted it: all of them if err is nil.
//
// If the capacity falls below the chunk during the wait, acquire continues with a smaller
// chunk.
func (bs buckets) acquire(ctx context.Context, n int, s *sleeper.Sleeper) (size int, paid buckets, err error) {
	size, err = bs.chunk(n)
	for err == nil && len(paid) < len(bs) {
		err = s.Wait(ctx, bs[len(paid)], float64(size))
		if err == nil {
			paid = bs[:len(paid)+1]
		} else if errors.Is(err, tokenbucket.ErrCostExceedsCapacity) {
			var smaller int
			if smaller, err = bs.chunk(size); err == nil {
				paid.refund(size - smaller)
				size = smaller
			}
		}
	}
	return size, paid, err
}

// settle waits until no bucket is in debt and the earlier waiters of each have left.
func (bs buckets) settle(ctx context.Context, s *sleeper.Sleeper) error {
	// leastCost is admitted from a level of 0 on, and too small to change the level.
	const leastCost = math.SmallestNonzeroFloat64
	for _, b := range bs {
		if err := s.Wait(ctx, b, leastCost); err != nil {
			return err
		}
	}
	return nil
}

// refund gives n bytes, 0 or more, back to each bucket.
func (bs buckets) refund(n int) {
	for _, b := range bs {
		_ = b.Refund(float64(n)) // an error is impossible: n is finite and 0 or more
	}
}

// charge takes n bytes, 0 or more, from each bucket, even into debt.
func (bs buckets) charge(n int) {
	for _, b := range bs {
		_ = b.Charge(float64(n)) // as in refund
	}
}
