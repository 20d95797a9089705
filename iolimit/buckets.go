package iolimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// maxChunk is the most that a stream pays for at once, in bytes. Larger chunks would not
// be cheaper, and streams that share a bucket would take longer turns.
const maxChunk = 64 << 10

// buckets are those of one stream, each of which has to grant its bytes. None is nil.
type buckets []*tokenbucket.Bucket

// withoutNil returns a copy without nil buckets, which limit nothing.
func withoutNil(all []*tokenbucket.Bucket) buckets {
	return slices.DeleteFunc(slices.Clone(all), func(b *tokenbucket.Bucket) bool { return b == nil })
}

// chunk returns how many of n bytes, 1 or more, may be paid for at once:
//
//	min(n, 64 KiB, max(1, capacity / 2))    for the smallest capacity
//
// Half, because a bucket that has to be full loses what flows in until its waiter wakes. It
// returns ErrCostExceedsCapacity for a capacity below 1 byte.
func (bs buckets) chunk(n int) (int, error) {
	capacity := math.Inf(1)
	for _, b := range bs {
		capacity = min(capacity, capacityOf(b))
	}
	if capacity < 1 {
		return 0, fmt.Errorf("iolimit: %w: the capacity %v is below one byte: choose one of 2 bytes or more", tokenbucket.ErrCostExceedsCapacity, capacity)
	}
	return min(n, int(min(maxChunk, max(1, capacity/2)))), nil
}

// capacityOf returns the most that a bucket can grant at once, in bytes.
func capacityOf(b *tokenbucket.Bucket) float64 {
	limits := b.Limits()
	if len(limits) == 0 {
		return 0
	}
	return slices.MinFunc(limits, func(a, b tokenbucket.Limit) int { return cmp.Compare(a.Capacity, b.Capacity) }).Capacity
}

// acquire waits until each bucket in turn has granted a chunk of n bytes, 1 or more. It
// returns the size of the chunk and the buckets that granted it: all of them if err is nil.
//
// When the capacity falls below the chunk while it waits, it goes on with a smaller one.
func (bs buckets) acquire(ctx context.Context, n int) (size int, paid buckets, err error) {
	size, err = bs.chunk(n)
	for err == nil && len(paid) < len(bs) {
		err = bs[len(paid)].Wait(ctx, float64(size))
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

// settle waits until no bucket is in debt and everyone who came before has left.
func (bs buckets) settle(ctx context.Context) error {
	// Admitted from a level of 0 on, and too small to change one.
	const leastCost = math.SmallestNonzeroFloat64
	for _, b := range bs {
		if err := b.Wait(ctx, leastCost); err != nil {
			return err
		}
	}
	return nil
}

// refund gives n bytes, 0 or more, back to each bucket.
func (bs buckets) refund(n int) {
	for _, b := range bs {
		_ = b.Refund(float64(n)) // only a negative or infinite cost is an error
	}
}

// charge takes n bytes, 0 or more, from each bucket, whether they are there or not.
func (bs buckets) charge(n int) {
	for _, b := range bs {
		_ = b.Charge(float64(n)) // likewise
	}
}
