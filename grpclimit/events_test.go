package grpclimit_test

import (
	"sync"

	"github.com/aa014e13/tokenbucket/grpclimit"
)

// events are what an observer has seen.
type events struct {
	mu   sync.Mutex
	seen []grpclimit.Event
}

func (e *events) observe() grpclimit.Option {
	return grpclimit.WithObserver(func(event grpclimit.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, event)
	})
}

func (e *events) all() []grpclimit.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}
