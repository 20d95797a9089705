package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket/keyed"
)

// Hosts are the buckets of a client, one per host, that count the requests that wait at
// any of them. Pass a Hosts to httplimit.NewTransport or to the interceptors of
// grpclimit. Pass its methods Len and Waiters to Watch. A Hosts may be used by any number
// of goroutines.
type Hosts struct {
	*keyed.Buckets[string]
	waiting atomic.Int64
}

// NewHosts returns Hosts that use the buckets.
func NewHosts(buckets *keyed.Buckets[string]) *Hosts { return &Hosts{Buckets: buckets} }

// Waiters returns the number of requests that wait now, for tokens or for the end of a
// pause.
func (h *Hosts) Waiters() int { return int(h.waiting.Load()) }

// Wait waits as keyed.Buckets.Wait does.
func (h *Hosts) Wait(ctx context.Context, host string, cost float64) error {
	defer h.enter()()
	return h.Buckets.Wait(ctx, host, cost)
}

// WaitEach waits as keyed.Buckets.WaitEach does.
func (h *Hosts) WaitEach(ctx context.Context, host string, costs ...float64) error {
	defer h.enter()()
	return h.Buckets.WaitEach(ctx, host, costs...)
}

// WaitPause waits as keyed.Buckets.WaitPause does.
func (h *Hosts) WaitPause(ctx context.Context, host string) (time.Duration, error) {
	defer h.enter()()
	return h.Buckets.WaitPause(ctx, host)
}

func (h *Hosts) enter() (leave func()) {
	h.waiting.Add(1)
	return func() { h.waiting.Add(-1) }
}
