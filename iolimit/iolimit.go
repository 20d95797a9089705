// Package iolimit limits readers, writers and connections to a number of bytes per
// second. Each byte costs one token of a [tokenbucket.Bucket], so several streams that
// share a bucket share its rate, and take turns.
//
// Make the bucket with [BytesPerSecond] and limit a stream with [NewReader], [NewWriter],
// [NewConn] or [NewListener]. A stream may have several buckets, for example one of its
// own and one for a total. It then keeps to the limits of all of them.
// [tokenbucket.Bucket.SetLimits] and [tokenbucket.Bucket.Pause] take effect at once, also
// on streams that wait.
//
// # Chunks
//
// A stream pays in chunks of min(64 KiB, half the smallest capacity) bytes, at least one
// byte, so buffers may have any size. A capacity below 1 byte is
// [tokenbucket.ErrCostExceedsCapacity].
//
// # What is bounded
//
// A bucket grants at most capacity + refill * t bytes in any window of length t. A granted
// chunk may leave later, because a timer is late, the peer is slow, or the stream still
// waits for another of its buckets. So the bytes that leave in a window may exceed this
// bound by one chunk for each stream.
//
// A stream takes tokens from its buckets in the order given. Put a bucket of the stream's
// own first and a shared one last. Then the stream holds no tokens of the shared bucket
// while it waits for its own.
//
// # Shortcuts
//
// The shortcuts of io.Copy (ReadFrom, WriteTo, sendfile and splice) cannot bypass the
// limit: what this package returns has only the methods of io.Reader, io.Writer,
// net.Conn or net.Listener. A connection also has CloseRead and CloseWrite if the
// original has them.
//
// The package is for streams. Do not use it for packets, such as UDP: a packet larger than
// a chunk would be split or cut.
package iolimit

import "github.com/aa014e13/tokenbucket"

// Bounds of the capacity that BytesPerSecond chooses, in bytes.
const (
	leastCapacity = 4 << 10
	mostCapacity  = 1 << 42 // of any bucket
)

// BytesPerSecond returns a limit of a number of bytes per second, above 0. Its capacity is
// what is refilled in ten milliseconds, at least 4 KiB and at most 2^42 bytes:
//
//	capacity = min(max(bytes * 0.01, 4096), 2^42)
//
// A smaller capacity would make streams too slow. A timer of a Go program may be late by a
// millisecond or more, and the bytes that are refilled meanwhile are lost if the bucket has no
// room for them. For example, with a refill of 1.25e9 bytes per second and a capacity of 64
// KiB, a stream reaches less than a tenth of that rate.
//
// If bytes is infinite, NaN, or not above 0, tokenbucket.New and Validate return an error
// for the limit.
func BytesPerSecond(bytes float64) tokenbucket.Limit {
	return tokenbucket.Limit{
		Capacity:     min(max(bytes/100, leastCapacity), mostCapacity),
		RefillPerSec: bytes,
	}
}
