package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// server sends requests and returns their answers, within the caller's context and the
// timeout.
//
// If the server answers faster than one goroutine wakes another, or if the caller's context
// never ends, the caller waits for the answer itself (see canWait). Otherwise another goroutine
// does, so that the caller can leave as soon as its context ends. That goroutine goes on until
// the client returns, and gives back the tokens that a late answer has taken.
type server struct {
	client     Client
	single     bool // the client is a Batcher, so it is for one server
	lingers    bool // the client's runs may outlast their contexts
	limits     limitArgs
	deadlines  deadlines
	circuits   circuits
	reports    reports
	onGiveBack func(key string) // if not nil, called with each key that got tokens back

	batch    *batch       // nil: every request is sent by itself
	underWay atomic.Int32 // requests that have no answer yet
	nearby   atomic.Bool  // the latest answer came fast
	origin   time.Time
	answered atomic.Int64 // when the latest answer came, in nanoseconds since the origin
}

// maxDirect is how many requests may be under way without the batch, each on a connection of
// its own. If more are under way, every new request goes to the batch. It is tempting to keep
// 8 callers on their connections and to batch only the others. With 64 callers, that made four
// times as many round trips, and the client took 1.5 times the processor time.
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
		s.batch = &batch{send: func(together []*exchange) bool { return s.sendTogether(batcher, together) }}
	}
	return s
}

// exchange is a request and its answer. It is settled once: by the answer, or by the caller
// if the caller leaves first. If the answer settles it, the caller gets the answer.
// Otherwise the goroutine that gets the answer gives back the tokens that it took.
type exchange struct {
	ctx      context.Context // the caller's
	request  request
	begun    int64 // nanoseconds since the server's origin
	settled  atomic.Bool
	failed   atomic.Bool   // its failure has been noted
	answered chan struct{} // closed after answer and err are set; nil if the caller waits for the answer itself
	answer   answer
	err      error
}

// settle reports whether it is the first to settle the exchange.
func (e *exchange) settle() bool { return e.settled.CompareAndSwap(false, true) }

// drop ends an exchange that was never sent, if its caller has left, and reports whether it
// did. Nothing was sent, so the server has not failed: drop closes answered, and watch then
// ends without a failure.
func (e *exchange) drop() bool {
	left := e.settled.Load()
	if left {
		close(e.answered)
	}
	return left
}

// ask runs the script. Its error is ErrUnavailable, ErrForeignKey, or the context's error
// if the context is done before there is an answer.
func (s *server) ask(ctx context.Context, r request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(s.limits.asked) == 0 {
		return s.limits.admitAll(r), nil
	}
	if s.circuits.broken.Load() > 0 {
		if err := s.enter(r); err != nil {
			return "", err
		}
	}
	e := &exchange{ctx: ctx, request: r, begun: s.now()}
	few := s.underWay.Add(1) <= maxDirect
	defer s.underWay.Add(-1)
	if (few || s.batch == nil) && s.canWait(ctx) {
		s.run(s.deadlines.after(ctx), e)
		if err := ctx.Err(); err != nil && e.err != nil {
			return "", s.gaveUp(e, err)
		}
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

// canWait reports whether a caller may wait for the answer itself. Only the answer and the
// timeout end that wait, not the context.
func (s *server) canWait(ctx context.Context) bool {
	if s.lingers || ctx.Done() == nil {
		return !s.lingers
	}
	deadline, ok := ctx.Deadline()
	return s.nearby.Load() && (!ok || time.Until(deadline) > s.deadlines.timeout)
}

// handOver lets another goroutine send the request, and waits until there is an answer or
// the caller's context or the timeout ends.
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
		return "", s.gaveUp(e, err)
	}
	return "", s.fail(e, errNoAnswer{s.deadlines.timeout})
}

// gaveUp returns the error of a caller whose context ended before there was an answer.
func (s *server) gaveUp(e *exchange, cause error) error {
	return gaveUp(e.request, s.client.Server(e.request.key), cause)
}

// watch waits for the answer in place of a caller that has left: a server that does not
// answer within the timeout counts as failed.
func (s *server) watch(bounded context.Context, e *exchange) {
	select {
	case <-e.answered:
	case <-bounded.Done():
		_ = s.fail(e, errNoAnswer{s.deadlines.timeout})
	}
}

// run sends the request of one exchange, and once more, with the script, if the server did
// not know the script.
func (s *server) run(ctx context.Context, e *exchange) {
	start := s.now()
	text, err := s.client.Run(ctx, e.request.named(s.limits))
	s.noteTime(start)
	if s.isUnknown(err) {
		text, err = s.client.Run(ctx, e.request.whole(s.limits))
	}
	s.finish(e, text, err)
}

// sendTogether sends the requests of several exchanges in one round trip. Those for which
// the server did not know the script are sent once more, with the script. It reports whether
// the server answered all.
func (s *server) sendTogether(client Batcher, together []*exchange) (answered bool) {
	ctx := s.deadlines.after(withCallers(together))
	start := s.now()
	answers := runAll(ctx, client, s.runs(together, request.named))
	s.noteTime(start)
	var unknown []*exchange
	for i, e := range together {
		if s.isUnknown(answers[i].Err) {
			unknown = append(unknown, e)
			continue
		}
		s.finish(e, answers[i].Text, answers[i].Err)
	}
	if answered = s.haveAll(answers); len(unknown) == 0 {
		return answered
	}
	answers = runAll(ctx, client, s.runs(unknown, request.whole))
	for i, e := range unknown {
		s.finish(e, answers[i].Text, answers[i].Err)
	}
	return answered && s.haveAll(answers)
}

// runAll sends several runs, and returns one answer for each: an error if the client did not
// return as many.
func runAll(ctx context.Context, client Batcher, runs []Run) []Answer {
	answers := client.RunAll(ctx, runs)
	if len(answers) == len(runs) {
		return answers
	}
	lost := Answer{Err: errMiscounted{len(answers), len(runs)}}
	return slices.Repeat([]Answer{lost}, len(runs))
}

// haveAll reports whether the server gave all answers.
func (s *server) haveAll(answers []Answer) bool {
	return !slices.ContainsFunc(answers, func(a Answer) bool { return !s.isAnswer(a.Err) })
}

// isAnswer reports whether the server answered, given the error of a run.
func (s *server) isAnswer(err error) bool { return err == nil || s.kind(err) == KindReply }

func (s *server) runs(together []*exchange, run func(request, limitArgs) Run) []Run {
	runs := make([]Run, len(together))
	for i, e := range together {
		runs[i] = run(e.request, s.limits)
	}
	return runs
}

// noteTime notes whether the answer to a request sent at start came fast.
func (s *server) noteTime(start int64) {
	if fast := s.now()-start < int64(200*time.Microsecond); fast != s.nearby.Load() {
		s.nearby.Store(fast)
	}
}

// isUnknown reports whether the server did not know the script.
func (s *server) isUnknown(err error) bool {
	return err != nil && s.kind(err) == KindReply && strings.Contains(err.Error(), "NOSCRIPT")
}

// finish delivers an answer. If the caller has left, it gives back the tokens that were
// taken.
func (s *server) finish(e *exchange, text string, err error) {
	if s.isAnswer(err) {
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

// fail returns the error of a failure. The first time for an exchange it also notes the
// failure: it may break the circuit, and calls the error handler.
func (s *server) fail(e *exchange, cause error) error {
	kind := s.kind(cause)
	if errors.Is(cause, context.DeadlineExceeded) { // the timeout's, not the caller's
		cause = errNoAnswer{s.deadlines.timeout}
	}
	name := s.client.Server(e.request.key)
	err := explain(e.request, name, cause, kind)
	if e.failed.Swap(true) {
		return err
	}
	if (kind == KindSilent || kind == KindUnreachable) && !s.hasAnsweredSince(e.begun) {
		s.circuits.fail(name, fmt.Errorf("%w: %s", cause, advise(cause, kind)))
		s.probe(name, e.request)
	}
	s.reports.report(err)
	return err
}

// kind returns what an error says about the server.
func (s *server) kind(err error) ErrorKind {
	switch err.(type) {
	case errNoAnswer:
		return KindSilent
	case errMiscounted:
		return KindBroken // the server is not to blame, and nothing shows that it answered
	default:
		return s.client.Kind(err)
	}
}

// hasAnsweredSince reports whether the server has answered another request since an
// instant: then only the connection is dead.
func (s *server) hasAnsweredSince(begun int64) bool {
	return s.single && s.answered.Load() > begun
}

// probe asks a server on a new connection, while its circuit is broken, and closes the
// circuit if it answers. All connections of a client may be dead although the server is
// not: a firewall dropped them, or the server's machine was replaced. To find that out by
// requests would take one timeout for each connection.
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
		if _, err := prober.Probe(ctx, look.named(s.limits)); s.isAnswer(err) {
			s.circuits.succeed(name)
		}
	}()
}

// giveBack gives back the tokens that a request took, and further ones, because no caller
// will use them. It tries once: if that fails, the tokens are lost, never given back twice.
func (s *server) giveBack(ctx context.Context, r request, further float64) {
	_, _ = s.ask(context.WithoutCancel(ctx), request{key: r.key, price: r.reversed(further)})
	if s.onGiveBack != nil {
		s.onGiveBack(r.key)
	}
}

// callersKey is the key of the callers' contexts.
type callersKey struct{}

// withCallers returns a context with the values of the first caller's context, from which
// Callers returns the contexts of all.
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

// Callers takes the context of a pipeline. It returns the contexts of all callers whose
// requests are sent together in that pipeline. A hook of the client can link the
// pipeline's span to the spans of these callers. The pipeline's context has the values
// of the first caller's context. Callers returns nil for the context of a single
// request.
func Callers(ctx context.Context) []context.Context {
	all, _ := ctx.Value(callersKey{}).([]context.Context)
	return all
}
