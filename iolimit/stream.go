package iolimit

import (
	"context"
	"fmt"
)

// turn is a lock that lets one call at a time pay, so that the bytes of a Write stay together
// as they do in a net.Conn. It is a channel of capacity 1 and not a mutex: a caller can give
// up waiting for it, and in a testing/synctest bubble time advances while a caller waits.
type turn chan struct{}

// take waits for the turn. It returns ctx's error if ctx has ended, before or while it waits.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		t.leave()
		return err
	}
	return nil
}

func (t turn) leave() { <-t }

// checkCount returns an error unless n is from 0 to size. A Read or Write of size bytes must
// return a count in that range.
func checkCount(call string, n, size int) error {
	if n < 0 || n > size {
		return fmt.Errorf("iolimit: the wrapped %s returned a count of %d for %d bytes: make it return how many it moved", call, n, size)
	}
	return nil
}
