package iolimit_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

var errBroken = errors.New("broken")

// small is a limit of 2 bytes per second, in chunks of 4.
var small = tokenbucket.Limit{Capacity: 8, RefillPerSec: 2}

// newBucket returns a bucket with the small limit and a number of tokens.
func newBucket(tokens float64) *tokenbucket.Bucket {
	return tokenbucket.MustNew(small, tokenbucket.WithTokens(tokens))
}

// moved is a number of bytes that a wrapped stream moved, and when.
type moved struct {
	at time.Duration
	n  int
}

// sink keeps the bytes that are written to it. It is for one goroutine.
type sink struct {
	start time.Time
	bytes.Buffer
	moves []moved
	take  func(n int) (int, error) // how many of n bytes it takes; nil for all
}

func newSink() *sink { return &sink{start: time.Now()} }

func (s *sink) Write(p []byte) (n int, err error) {
	n = len(p)
	if s.take != nil {
		n, err = s.take(n)
	}
	if n >= 0 && n <= len(p) {
		s.Buffer.Write(p[:n])
	}
	s.moves = append(s.moves, moved{time.Since(s.start), n})
	return n, err
}

// source yields as many bytes as requested: 0, 1, 2 and so on. It is for one goroutine.
type source struct {
	start time.Time
	moves []moved
	give  func(n int) (int, error) // how many of n bytes it yields; nil for all
	next  byte
}

func newSource() *source { return &source{start: time.Now()} }

func (s *source) Read(p []byte) (n int, err error) {
	n = len(p)
	if s.give != nil {
		n, err = s.give(n)
	}
	for i := range p[:min(max(n, 0), len(p))] {
		p[i] = s.next
		s.next++
	}
	s.moves = append(s.moves, moved{time.Since(s.start), n})
	return n, err
}

// count returns n bytes: 0, 1, 2 and so on.
func count(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}

// result is what a Read or a Write returned, and when.
type result struct {
	n   int
	err error
	at  time.Duration
}

// run calls Read or Write in another goroutine.
func run(call func([]byte) (int, error), p []byte) <-chan result {
	start, done := time.Now(), make(chan result, 1)
	go func() {
		n, err := call(p)
		done <- result{n, err, time.Since(start)}
	}()
	return done
}

// requireResult compares a result with the expected one; it compares the error with
// errors.Is.
func requireResult(t *testing.T, n int, err error, at time.Duration, got result) {
	t.Helper()
	require.Equal(t, n, got.n)
	require.ErrorIs(t, got.err, err)
	require.Equal(t, at, got.at)
}

// inBubble runs f in a bubble, where waits take exactly as long as they should.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// while runs a Read or a Write of p, and change after a second of it.
func while(call func([]byte) (int, error), p []byte, change func()) result {
	done := run(call, p)
	time.Sleep(time.Second)
	change()
	return <-done
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
