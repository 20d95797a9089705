package simtest

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// service is one kind of bucket, which all processes use with the same options.
type service struct {
	name  string
	limit tokenbucket.Limit
	lease float64 // 0 for none
	age   time.Duration
	keys  int
	calls []method // the methods that are called
}

// process is a program that uses the buckets, on a machine of its own.
type process struct {
	world   *world
	id      int
	skew    time.Duration // its clock minus the true time, which must not matter
	client  *redis.Client
	buckets []*redisbucket.Buckets // one for each service
	alive   context.Context        // ends when it dies
	kill    context.CancelFunc

	// The world's mutex guards these.
	severed bool // the network carries none of its messages
	died    bool
}

func newProcess(w *world, id int, services []service) *process {
	r := w.random(2, uint64(id))
	p := &process{world: w, id: id, skew: between(r, 0, time.Minute)}
	p.alive, p.kill = context.WithCancel(context.Background())
	p.client = redis.NewClient(&redis.Options{
		Addr:                  "10.0.0.1:6379",
		Dialer:                func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx, p) },
		ContextTimeoutEnabled: w.bug != NoBug || r.IntN(2) == 0,
		PoolSize:              10,
		// By default it is random, and does not follow from the seed.
		MinRetryBackoff: 8 * time.Millisecond,
		MaxRetryBackoff: 8 * time.Millisecond,
		// Off, since go-redis holds a lock while it requests these notifications. In a bubble,
		// time does not advance while a goroutine waits for a lock.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	if p.client.Options().ContextTimeoutEnabled {
		p.client.AddHook(hook{w})
	}
	for _, s := range services {
		p.buckets = append(p.buckets, p.newBuckets(s))
	}
	return p
}

func (p *process) newBuckets(s service) *redisbucket.Buckets {
	opts := []redisbucket.Option{redisbucket.WithPrefix(s.name + ":"), redisbucket.WithTimeout(timeout), redisbucket.WithBreak(pause)}
	if !p.client.Options().ContextTimeoutEnabled {
		opts = append(opts, redisbucket.WithInstrument(func(used redis.UniversalClient) { used.AddHook(hook{p.world}) }))
	}
	if s.lease > 0 {
		opts = append(opts, redisbucket.WithLease(s.lease, s.age))
	}
	b, err := redisbucket.New(p.client, s.limit, opts...)
	if err != nil {
		panic(err)
	}
	return b
}

// dieLocked ends a process: from now on, none of its messages arrive.
func (p *process) dieLocked() {
	p.severed, p.died = true, true
	p.kill()
	p.world.eachLocked(p, (*conn).closeLocked)
}

// close ends a process in order. It returns the first error of Close.
func (p *process) close() (first error) {
	for _, b := range p.buckets {
		if err := b.Close(); first == nil {
			first = err
		}
	}
	p.kill()
	if err := p.client.Close(); first == nil {
		first = err
	}
	return first
}
