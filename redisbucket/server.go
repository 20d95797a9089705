package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// server runs the script, each time bounded by a context and a timeout.
//
// A client with go-redis' defaults reads for seconds, and does not look at the
// context meanwhile. So in general somebody else has to wait for it: a goroutine,
// which stays behind until the client gives up. Where the server answers faster
// than two goroutines hand over, that would double the time; then the caller waits
// for the answer itself, by a client that gives up in time.
type server struct {
	client    redis.UniversalClient
	impatient *redis.Client // the same, if it is for one server: its commands end with their contexts
	limits    []any         // the script's arguments
	deadlines deadlines
	circuits  circuits
	onError   func(error)
	// onGiveBack, if not nil, is told of each key that got tokens back.
	onGiveBack func(key string)

	alone  atomic.Bool // a caller waits for the answer itself
	nearby atomic.Bool // the latest answer came fast
	queue  queue
}

func newServer(client redis.UniversalClient, c config) *server {
	s := &server{
		client:    client,
		limits:    arguments(c.limits),
		deadlines: deadlines{timeout: c.timeout},
		circuits:  circuits{pause: c.pause, timeout: c.timeout},
		onError:   c.onError,
	}
	if single, ok := client.(*redis.Client); ok {
		s.impatient = impatient(single, c.timeout)
		s.client = s.impatient
	}
	return s
}

// impatient returns a client whose commands end with their contexts: the same one, or
// a copy of it that has its connections but, as go-redis makes copies, not its hooks.
func impatient(client *redis.Client, timeout time.Duration) *redis.Client {
	if client.Options().ContextTimeoutEnabled {
		return client
	}
	hurried := client.WithTimeout(timeout)
	hurried.Options().ContextTimeoutEnabled = true // its own options: to connect takes round trips, too
	return hurried
}

// ask runs the script. It returns the context's error if it is done before there is
// an answer; ErrUnavailable and ErrForeignKey.
func (s *server) ask(ctx context.Context, r request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if s.circuits.open.Load() > 0 {
		name := s.nameFor(r.key)
		if err := s.circuits.enter(name); err != nil {
			return "", fmt.Errorf("%w: %v at %s: %w", ErrUnavailable, r, name, err)
		}
	}
	e := &exchange{request: r}
	if s.canWait(ctx) && s.alone.CompareAndSwap(false, true) {
		defer s.alone.Store(false)
		s.run(s.deadlines.after(ctx), e)
		return e.answer, e.err
	}
	return s.handOver(ctx, e)
}

// canWait reports whether a caller may wait for the answer itself, although nothing
// wakes it but the answer and the timeout.
func (s *server) canWait(ctx context.Context) bool {
	if s.impatient == nil || ctx.Done() == nil {
		return s.impatient != nil
	}
	deadline, ok := ctx.Deadline()
	return s.nearby.Load() && (!ok || time.Until(deadline) > s.deadlines.timeout)
}

// handOver lets a goroutine wait for the answer, until somebody loses patience.
func (s *server) handOver(ctx context.Context, e *exchange) (answer, error) {
	e.answered = make(chan struct{})
	bounded := s.deadlines.after(ctx)
	s.queue.push(bounded, s, e)
	select {
	case <-e.answered:
		return e.answer, e.err
	case <-bounded.Done():
	case <-ctx.Done():
	}
	if !e.settle() {
		<-e.answered
		return e.answer, e.err
	}
	if err := ctx.Err(); err != nil {
		go s.watch(bounded, e)
		return "", gaveUp(e.request, s.nameFor(e.request.key), err)
	}
	return "", s.fail(e, errNoAnswer{s.deadlines.timeout})
}

// watch lets a server that does not answer count as failed, though nobody waits.
func (s *server) watch(bounded context.Context, e *exchange) {
	select {
	case <-e.answered:
	case <-bounded.Done():
		_ = s.fail(e, errNoAnswer{s.deadlines.timeout})
	}
}

// exchange is a request and its answer. Whoever settles it first decides whether it
// counts: the answer when it comes, or the caller when it leaves.
type exchange struct {
	request  request
	settled  atomic.Bool
	failed   atomic.Bool   // a failure is noted once
	answered chan struct{} // closed when answer and err are there; nil if the caller waits itself
	answer   answer
	err      error
}

func (e *exchange) settle() bool { return e.settled.CompareAndSwap(false, true) }

// run sends requests in one round trip, and again where the server did not know
// the script.
func (s *server) run(ctx context.Context, batch ...*exchange) {
	start := time.Now()
	cmds := s.send(ctx, batch, "evalsha", digest)
	if fast := time.Since(start) < 200*time.Microsecond; fast != s.nearby.Load() {
		s.nearby.Store(fast)
	}
	var unknown []*exchange
	for i, e := range batch {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			unknown = append(unknown, e)
			continue
		}
		s.finish(e, cmds[i])
	}
	if len(unknown) == 0 {
		return
	}
	cmds = s.send(ctx, unknown, "eval", source)
	for i, e := range unknown {
		s.finish(e, cmds[i])
	}
}

// send returns the commands, answered.
func (s *server) send(ctx context.Context, batch []*exchange, name, script string) []once {
	cmds := make([]once, len(batch))
	for i, e := range batch {
		cmds[i] = command(ctx, name, script, e.request, s.limits)
	}
	if len(cmds) == 1 {
		_ = s.client.Process(ctx, cmds[0]) // the error is the command's, too
		return cmds
	}
	pipe := s.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
	return cmds
}

// finish delivers an answer. What was taken for somebody who has left is given back.
func (s *server) finish(e *exchange, cmd once) {
	err := cmd.Err()
	if text, ok := cmd.Val().(string); ok {
		e.answer, err = answer(text), nil // even if the connection broke afterwards
	}
	if err == nil || isReply(err) {
		s.succeed(e.request.key)
	}
	if err != nil {
		e.err = s.fail(e, err)
	}
	abandoned := !e.settle()
	if e.answered != nil {
		close(e.answered)
	}
	taken := e.request
	taken.cost += e.answer.further()
	if abandoned && err == nil && e.answer.admitted() && taken.cost > 0 {
		go s.giveBack(context.Background(), taken)
	}
}

// fail explains a failure, and notes it unless it has been already.
func (s *server) fail(e *exchange, cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) { // ours, not the caller's
		cause = errNoAnswer{s.deadlines.timeout}
	}
	name := s.nameFor(e.request.key)
	err := explain(e.request, name, cause)
	if e.failed.Swap(true) {
		return err
	}
	if !isReply(cause) && !errors.Is(cause, redis.ErrClosed) {
		s.circuits.fail(name, cause)
	}
	if s.onError != nil {
		s.onError(err)
	}
	return err
}

// giveBack returns a cost that nobody will use. It is tried once: where it fails
// the tokens are lost, and never there twice.
func (s *server) giveBack(ctx context.Context, r request) {
	_, _ = s.ask(context.WithoutCancel(ctx), request{key: r.key, cost: -r.cost})
	if s.onGiveBack != nil {
		s.onGiveBack(r.key)
	}
}

func (s *server) succeed(key string) {
	if s.circuits.open.Load() > 0 {
		s.circuits.succeed(s.nameFor(key))
	}
}

// isReply reports whether an error is what the server answered: it is there, then.
func isReply(err error) bool {
	var answered redis.Error
	return errors.As(err, &answered)
}

// nameFor returns the address of the server that has the key, as far as is known
// without asking anybody.
func (s *server) nameFor(key string) string {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	switch client := s.client.(type) {
	case *redis.Client:
		if addr := client.Options().Addr; addr != "FailoverClient" { // go-redis' word, with Sentinel
			return addr
		}
		return "the master that Sentinel names"
	case *redis.ClusterClient:
		if master, err := client.MasterForKey(done, key); err == nil {
			return master.Options().Addr
		}
		return strings.Join(client.Options().Addrs, " or ")
	case *redis.Ring:
		if shard, err := client.GetShardClientForKey(key); err == nil {
			return shard.Options().Addr
		}
	}
	return "the client's server"
}

// queue gathers requests that come while others are under way, and sends them to
// the same server together. It has no goroutines while it is empty.
type queue struct {
	mu      sync.Mutex
	waiting []*exchange
	runners int
}

const (
	maxRunners = 2  // one reads while the other writes
	maxBatch   = 16 // requests; more gains little, and the server does nothing else meanwhile
)

func (q *queue) push(ctx context.Context, s *server, e *exchange) {
	if s.impatient == nil { // one slow server of several must not hold up the others
		go s.run(ctx, e)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	if q.runners < maxRunners {
		q.runners++
		go q.drain(s)
	}
}

func (q *queue) drain(s *server) {
	for batch := q.next(); len(batch) > 0; batch = q.next() {
		s.run(s.deadlines.after(context.Background()), batch...)
	}
}

// next returns the requests to send, or none, and then the runner is to go.
func (q *queue) next() []*exchange {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(e *exchange) bool { return e.settled.Load() }) // who has left
	n := min(maxBatch, len(q.waiting))
	if n == 0 {
		q.runners--
		return nil
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// deadlines hands out contexts that end within the timeout. Setting a timer for
// each call costs more than the call's arithmetic, so calls at about the same time
// share one, which leaves them a sixteenth less at worst.
type deadlines struct {
	timeout time.Duration
	latest  atomic.Pointer[deadline]
}

type deadline struct {
	context.Context
	cancel context.CancelFunc // never called: the timer ends it
	until  time.Time          // when the next one is due
}

// bounded has the values of one context and the end of another.
type bounded struct {
	context.Context
	values context.Context
}

func (b bounded) Value(key any) any { return b.values.Value(key) }

func (d *deadlines) after(ctx context.Context) context.Context {
	now := time.Now()
	latest := d.latest.Load()
	if latest == nil || !now.Before(latest.until) {
		end, cancel := context.WithDeadline(context.Background(), now.Add(d.timeout))
		latest = &deadline{end, cancel, now.Add(d.timeout / 16)}
		d.latest.Store(latest)
	}
	return bounded{latest, ctx}
}
