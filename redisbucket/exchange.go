package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// server exchanges requests for answers, each time bounded by a context and a timeout.
//
// Where the server answers faster than two goroutines hand over, the caller waits for
// the answer itself. Otherwise a goroutine does, so that the caller can leave as soon as
// its context ends. The goroutine stays behind until the client gives up, and gives back
// what an answer that came too late has taken.
type server struct {
	client     Client
	single     bool // it has one server only
	lingers    bool // its runs may outlast their contexts
	limits     limitArgs
	deadlines  deadlines
	circuits   circuits
	reports    reports
	onGiveBack func(key string) // called with each key that got tokens back, if not nil

	batch    *batch       // nil: every request is sent by itself
	direct   atomic.Int32 // callers that wait for an answer themselves
	nearby   atomic.Bool  // the latest answer came fast
	origin   time.Time
	answered atomic.Int64 // when the latest answer came, in nanoseconds since the origin
}

// maxDirect is how many callers wait for an answer themselves, each on a connection of
// its own, before further ones are sent together.
const maxDirect = 8

func newServer(client Client, c config) *server {
	s := &server{
		client:    client,
		limits:    newLimitArgs(c.limits),
		deadlines: deadlines{timeout: c.timeout},
		circuits:  circuits{pause: c.pause, timeout: c.timeout},
		reports:   reports{handle: c.onError},
		origin:    time.Now(),
	}
	lingerer, ok := client.(interface{ lingers() bool })
	s.lingers = ok && lingerer.lingers()
	batcher, ok := client.(Batcher)
	s.single = ok
	if ok && c.instrument == nil {
		s.batch = &batch{send: func(together []*exchange) { s.sendTogether(batcher, together) }}
	}
	return s
}

// exchange is a request and its answer. It counts for the server's answer when that
// comes, or for the caller when it leaves: for the one that settles it first.
type exchange struct {
	ctx      context.Context // the caller's
	request  request
	begun    int64 // nanoseconds since the server's origin
	settled  atomic.Bool
	failed   atomic.Bool   // a failure is noted once
	answered chan struct{} // closed when answer and err are there; nil if the caller waits itself
	answer   answer
	err      error
}

// settle reports whether it is the first to settle the exchange.
func (e *exchange) settle() bool { return e.settled.CompareAndSwap(false, true) }

// drop ends an exchange that was never sent, if its caller has left, and reports whether it
// did. Since nothing was sent, it is no failure of the server: closing answered ends watch.
func (e *exchange) drop() bool {
	left := e.settled.Load()
	if left {
		close(e.answered)
	}
	return left
}

// ask runs the script. It returns the context's error if it is done before there is
// an answer; ErrUnavailable and ErrForeignKey.
func (s *server) ask(ctx context.Context, r request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(s.limits.asked) == 0 {
		return s.limits.free(r), nil
	}
	if s.circuits.broken.Load() > 0 {
		if err := s.enter(r); err != nil {
			return "", err
		}
	}
	e := &exchange{ctx: ctx, request: r, begun: s.now()}
	if s.canWait(ctx) && s.beginDirect() {
		defer s.direct.Add(-1)
		s.run(s.deadlines.after(ctx), e)
		return e.answer, e.err
	}
	return s.handOver(e)
}

func (s *server) now() int64 { return int64(time.Since(s.origin)) }

// enter returns an error if the circuit to the server is broken.
func (s *server) enter(r request) error {
	name := s.client.Server(r.key)
	trial, err := s.circuits.enter(name)
	if err != nil {
		return fmt.Errorf("%w: %v at %s: %w", ErrUnavailable, r, name, err)
	}
	if trial {
		s.probe(name, r)
	}
	return nil
}

// canWait reports whether a caller may wait for the answer itself, although only the
// answer and the timeout end that.
func (s *server) canWait(ctx context.Context) bool {
	if s.lingers || ctx.Done() == nil {
		return !s.lingers
	}
	deadline, ok := ctx.Deadline()
	return s.nearby.Load() && (!ok || time.Until(deadline) > s.deadlines.timeout)
}

// beginDirect reports whether one more caller may wait for the answer itself.
func (s *server) beginDirect() bool {
	if s.direct.Add(1) <= maxDirect || s.batch == nil {
		return true
	}
	s.direct.Add(-1)
	return false
}

// handOver lets a goroutine wait for the answer, until the caller's context or the
// timeout ends.
func (s *server) handOver(e *exchange) (answer, error) {
	e.answered = make(chan struct{})
	bounded := s.deadlines.after(e.ctx)
	if s.batch != nil {
		s.batch.add(e)
	} else {
		go s.run(bounded, e)
	}
	select {
	case <-e.answered:
		return e.answer, e.err
	case <-bounded.Done():
	case <-e.ctx.Done():
	}
	if !e.settle() {
		<-e.answered
		return e.answer, e.err
	}
	if err := e.ctx.Err(); err != nil {
		go s.watch(bounded, e)
		return "", gaveUp(e.request, s.client.Server(e.request.key), err)
	}
	return "", s.fail(e, errNoAnswer{s.deadlines.timeout})
}

// watch lets a server that does not answer count as failed, though its caller has left.
func (s *server) watch(bounded context.Context, e *exchange) {
	select {
	case <-e.answered:
	case <-bounded.Done():
		_ = s.fail(e, errNoAnswer{s.deadlines.timeout})
	}
}

// run carries out one exchange, and once more if the server did not know the script.
func (s *server) run(ctx context.Context, e *exchange) {
	start := s.now()
	text, err := s.client.Run(ctx, e.request.named(s.limits))
	s.noteTime(start)
	if s.isUnknown(err) {
		text, err = s.client.Run(ctx, e.request.whole(s.limits))
	}
	s.finish(e, text, err)
}

// sendTogether carries out several exchanges in one round trip, and once more those of
// which the server did not know the script.
func (s *server) sendTogether(client Batcher, together []*exchange) {
	ctx := s.deadlines.after(withCallers(together))
	start := s.now()
	answers := client.RunAll(ctx, s.runs(together, request.named))
	s.noteTime(start)
	var unknown []*exchange
	for i, e := range together {
		if s.isUnknown(answers[i].Err) {
			unknown = append(unknown, e)
			continue
		}
		s.finish(e, answers[i].Text, answers[i].Err)
	}
	if len(unknown) == 0 {
		return
	}
	answers = client.RunAll(ctx, s.runs(unknown, request.whole))
	for i, e := range unknown {
		s.finish(e, answers[i].Text, answers[i].Err)
	}
}

func (s *server) runs(together []*exchange, run func(request, limitArgs) Run) []Run {
	runs := make([]Run, len(together))
	for i, e := range together {
		runs[i] = run(e.request, s.limits)
	}
	return runs
}

// noteTime notes whether an answer came fast.
func (s *server) noteTime(start int64) {
	if fast := s.now()-start < int64(200*time.Microsecond); fast != s.nearby.Load() {
		s.nearby.Store(fast)
	}
}

// isUnknown reports whether the server has to be sent the script itself.
func (s *server) isUnknown(err error) bool {
	return err != nil && s.kind(err) == KindReply && strings.Contains(err.Error(), "NOSCRIPT")
}

// finish delivers an answer. What was taken for a caller that has left is given back.
func (s *server) finish(e *exchange, text string, err error) {
	if err == nil || s.kind(err) == KindReply {
		s.succeed(e.request.key)
	}
	if e.answer = answer(text); err != nil {
		e.err = s.fail(e, err)
	}
	abandoned := !e.settle()
	if e.answered != nil {
		close(e.answered)
	}
	if abandoned && err == nil && e.answer.admitted() && e.request.takes() {
		go s.giveBack(context.Background(), e.request, e.answer.further())
	}
}

// succeed notes that the server answered.
func (s *server) succeed(key string) {
	s.answered.Store(s.now())
	if s.circuits.broken.Load() > 0 {
		s.circuits.succeed(s.client.Server(key))
	}
}

// fail explains a failure, and notes it unless it has been already.
func (s *server) fail(e *exchange, cause error) error {
	kind := s.kind(cause)
	if errors.Is(cause, context.DeadlineExceeded) { // ours, not the caller's
		cause = errNoAnswer{s.deadlines.timeout}
	}
	name := s.client.Server(e.request.key)
	err := explain(e.request, name, cause, kind)
	if e.failed.Swap(true) {
		return err
	}
	if (kind == KindSilent || kind == KindUnreachable) && !s.hasAnsweredSince(e.begun) {
		s.circuits.fail(name, cause)
		s.probe(name, e.request)
	}
	s.reports.report(err)
	return err
}

// kind returns what an error says about the server.
func (s *server) kind(err error) ErrorKind {
	if _, ok := err.(errNoAnswer); ok {
		return KindSilent
	}
	return s.client.Kind(err)
}

// hasAnsweredSince reports whether the server has answered another request since: then
// it is there, and the connection is dead.
func (s *server) hasAnsweredSince(begun int64) bool {
	return s.single && s.answered.Load() > begun
}

// probe finds out whether a server answers on a new connection, while no requests are
// sent to it. A client's connections may all be dead without the server being so: a
// firewall forgets them, or the server's machine was exchanged. It would take one timeout
// for each to find out by requests.
func (s *server) probe(name string, r request) {
	prober, ok := s.client.(Prober)
	if !ok || !s.circuits.beginProbe(name) {
		return
	}
	look := request{key: r.key, price: price{cost: noCost}, mode: looks}
	go func() {
		defer s.circuits.endProbe(name)
		ctx, cancel := context.WithTimeout(context.Background(), s.deadlines.timeout)
		defer cancel()
		if _, err := prober.Probe(ctx, look.named(s.limits)); err == nil || s.kind(err) == KindReply {
			s.circuits.succeed(name)
		}
	}()
}

// giveBack returns what a request has taken, with further tokens, and no caller will use.
// It is tried once: if it fails the tokens are lost, and never there twice.
func (s *server) giveBack(ctx context.Context, r request, further float64) {
	_, _ = s.ask(context.WithoutCancel(ctx), request{key: r.key, price: r.reversed(further)})
	if s.onGiveBack != nil {
		s.onGiveBack(r.key)
	}
}

// callersKey is the key of the callers' contexts.
type callersKey struct{}

// withCallers returns a context with the values of the first caller's, and all callers'.
func withCallers(together []*exchange) context.Context {
	if len(together) == 1 {
		return together[0].ctx
	}
	all := make([]context.Context, len(together))
	for i, e := range together {
		all[i] = e.ctx
	}
	return context.WithValue(all[0], callersKey{}, all)
}

// Callers returns the contexts of all callers whose requests are sent together in one
// pipeline, for a hook of the client that links the pipeline's span to theirs. The
// pipeline's own context has the values of the first. It returns nil if a context is that
// of one request.
func Callers(ctx context.Context) []context.Context {
	all, _ := ctx.Value(callersKey{}).([]context.Context)
	return all
}
