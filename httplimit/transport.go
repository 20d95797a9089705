package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// HostBuckets are what a Transport waits on: a token bucket for each host. A
// *keyed.Buckets[string] implements it; AllHosts makes one of a single bucket.
//
// The host is in lower case, without a trailing dot, and with its port unless that is
// the scheme's default: "api.example.com", "localhost:8080", "[::1]". An
// internationalised name is in the form that net/http sends: "xn--bcher-kva.example".
//
// Implementations must be safe for concurrent use. They may have three more methods,
// as both of ours do:
//
//   - Limits() []tokenbucket.Limit. NewTransport checks prices against the limits.
//   - WaitPause(ctx context.Context, host string) (waited time.Duration, err error). It
//     waits until no pause of the host lasts, as Bucket.WaitPause does, and takes
//     nothing. Without it, a pause does not hold requests that have left the bucket.
//   - WaitEach(ctx context.Context, host string, costs ...float64) error. It takes one
//     cost for each limit, as Bucket.WaitEach does, for WithTransportCostEach.
type HostBuckets interface {
	// Wait takes the cost, in tokens, as soon as it is there, as Bucket.Wait does.
	Wait(ctx context.Context, host string, cost float64) error
	// Pause empties the host's bucket and closes it for d.
	Pause(host string, d time.Duration)
	// Tokens returns what is left for a newcomer.
	Tokens(host string) float64
	// Charge takes the cost, in tokens, whether it is there or not.
	Charge(host string, cost float64) error
}

// AllHosts lets the requests to all hosts share one bucket: for a client of one
// API, whatever the names of its servers are. A pause then holds for all of them.
func AllHosts(bucket *tokenbucket.Bucket) HostBuckets {
	if bucket == nil {
		return nil // and NewTransport says so
	}
	return allHosts{bucket}
}

type allHosts struct{ bucket *tokenbucket.Bucket }

func (a allHosts) Wait(ctx context.Context, _ string, cost float64) error {
	return a.bucket.Wait(ctx, cost)
}
func (a allHosts) Pause(_ string, d time.Duration)     { a.bucket.Pause(d) }
func (a allHosts) Tokens(string) float64               { return a.bucket.Tokens() }
func (a allHosts) Charge(_ string, cost float64) error { return a.bucket.Charge(cost) }
func (a allHosts) WaitEach(ctx context.Context, _ string, costs ...float64) error {
	return a.bucket.WaitEach(ctx, costs...)
}
func (a allHosts) WaitPause(ctx context.Context, _ string) (time.Duration, error) {
	return a.bucket.WaitPause(ctx)
}
func (a allHosts) Limits() []tokenbucket.Limit { return a.bucket.Limits() }

// eachWaiter is the optional method of HostBuckets for WithTransportCostEach.
type eachWaiter interface {
	WaitEach(ctx context.Context, host string, costs ...float64) error
}

// Transport is an http.RoundTripper that keeps to a rate. Before every request,
// redirects and retries included, it waits for its turn at the bucket of the host, and
// it pauses when a server says "too fast":
//
//   - After a 429, or a 503 with Retry-After, it pauses the bucket of that host for
//     as long as Retry-After says, in seconds or as a date, so that every request
//     holds, not only the one that was refused. A date is compared with the Date field
//     of the answer, if there is one, since the server's clock may differ. A 429
//     without Retry-After, or with one that is malformed, 0 or past, pauses for as long
//     as WithDefaultPause says; a 503 does not pause then. WithTooFast adds statuses,
//     WithTooFastFunc decides by the whole answer.
//   - A pause is never longer than WithLongestPause, 5 minutes by default. When a
//     server demands a longer one, the pause is that long only, and the caller gets
//     the answer without a retry.
//   - WithRateLimitFields slows down before the server refuses, WithRetries sends
//     again what was refused. Both are off by default.
//
// A pause also holds requests that have had their turn and have not been written yet,
// because the base still dials, or waits for a connection: they wait on the connection
// until the pause ends, and neither pay nor queue again. If the server closes the
// connection meanwhile, the request is sent again, if nothing of it was written and it
// has no body or GetBody. If its context ends meanwhile, the server does not read it.
// With http.Transport.MaxConnsPerHost, a held request keeps a connection from others.
// Some requests can still go out in a pause:
//
//   - with a base that does not call the hook GotConn of net/http/httptrace before it
//     writes; http.Transport does, for HTTP/1 and HTTP/2
//   - on HTTP/2, those that got their connection before the pause and wait there for a
//     stream, because the server allows only so many at once
//   - those that are written after the refusing answer arrived and before RoundTrip
//     has read its header
//
// A request that costs 0 does not wait and is not held by a pause, as everywhere in
// this module; only its retries are.
//
// An answer that refuses is an answer, not an error. Errors come back from RoundTrip as
// the bucket's Wait or the base returned them, and as context.Cause if the context has
// ended in the queue; http.Client wraps them in a *url.Error. If Wait fails, nothing
// was taken, and the request was not sent, or not once more: a context deadline, the
// one of http.Client.Timeout included, that would pass before its turn comes is a
// *tokenbucket.DeadlineError at once.
//
// A Transport may be used by any number of goroutines. It must not be copied. The
// zero Transport sends nothing and returns an error; use NewTransport.
type Transport struct {
	transportConfig
	buckets HostBuckets
	pauses  pauseWaiter // the buckets; nil if they do not hold requests
	seed    uint64      // of the jitter

	mu       sync.Mutex            // held while a bucket is lowered
	onTheWay map[string]departures // by host, if the rate limit fields are read
}

// NewTransport returns a Transport that waits on the given buckets. It returns
// ErrInvalidOption, of package tokenbucket, if there are none or if an option is
// out of range, and the errors of Costs.Validate for bad prices.
func NewTransport(buckets HostBuckets, opts ...TransportOption) (*Transport, error) {
	c, err := newTransportConfig(buckets, opts)
	if err != nil {
		return nil, err
	}
	pauses, _ := buckets.(pauseWaiter)
	return &Transport{transportConfig: c, buckets: buckets, pauses: pauses, seed: c.random(), onTheWay: map[string]departures{}}, nil
}

var errZeroTransport = errors.New("httplimit: the zero Transport has no bucket to wait on: use NewTransport")

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.buckets == nil {
		closeRequestBody(req)
		return nil, errZeroTransport
	}
	if req.URL == nil {
		return t.baseOrDefault().RoundTrip(req) // it says what is wrong
	}
	return t.roundTrip(req)
}

func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	e := TransportEvent{Request: req, Host: hostOf(req.URL), Attempt: 1}
	if t.each {
		e.Costs = t.costEach(req)
	} else {
		e.Cost = t.cost(req)
	}
	if err := t.wait(&e); err != nil {
		return nil, err
	}
	for left := t.retries; ; left-- {
		resp, again, err := t.attempt(req, &e)
		if !again || left == 0 || !isRepeatable(req) {
			return resp, err
		}
		next, err := t.queueAgain(req, resp, &e)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return resp, nil
		}
		req = next
	}
}

// attempt sends a request whose turn has come, and makes the host's bucket follow the
// answer. It reports whether the request may be sent again.
func (t *Transport) attempt(req *http.Request, e *TransportEvent) (resp *http.Response, again bool, err error) {
	resp, e.Err = t.send(req, e)
	if e.Err == nil && resp != nil {
		e.Status = resp.StatusCode
		again = t.heed(resp, e)
	}
	t.tell(e)
	return resp, again, e.Err
}

// CloseIdleConnections closes the idle connections of the base, if it has such a
// method. http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.baseOrDefault().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// leastCost is what the retry of a free request costs: so little that nothing is
// taken, but more than 0, so that it waits until the pause ends.
const leastCost = 1e-300

// wait waits for an attempt's turn. If that fails the request is not sent, so wait
// closes its body. The error is not wrapped: url.Error.Timeout looks only at the error
// that it holds.
func (t *Transport) wait(e *TransportEvent) error {
	var since time.Time
	if t.observe != nil {
		since = t.now()
	}
	ctx := e.Request.Context()
	err := t.take(ctx, e)
	if t.observe != nil {
		e.Waited = t.now().Sub(since)
	}
	if err == nil {
		return nil
	}
	closeRequestBody(e.Request)
	if err == ctx.Err() {
		err = context.Cause(ctx)
	}
	e.Err = err
	t.tell(e)
	return err
}

// take takes what an attempt costs as soon as it is there.
func (t *Transport) take(ctx context.Context, e *TransportEvent) error {
	isFreeRetry := e.Attempt > 1 && e.isFree()
	switch {
	case !t.each && isFreeRetry:
		return t.buckets.Wait(ctx, e.Host, leastCost)
	case !t.each:
		return t.buckets.Wait(ctx, e.Host, e.Cost)
	case isFreeRetry:
		return t.buckets.(eachWaiter).WaitEach(ctx, e.Host, slices.Repeat([]float64{leastCost}, len(e.Costs))...)
	default:
		return t.buckets.(eachWaiter).WaitEach(ctx, e.Host, e.Costs...)
	}
}

// departures are the requests to a host that have been sent and not been answered.
type departures struct {
	requests int
	cost     float64 // tokens
}

// send sends a request whose turn has come. A free one is not held by a pause.
func (t *Transport) send(req *http.Request, e *TransportEvent) (*http.Response, error) {
	if t.readsFields {
		t.depart(e.Host, departures{1, e.Cost})
		defer t.depart(e.Host, departures{-1, -e.Cost})
	}
	if t.pauses == nil || e.Attempt == 1 && e.isFree() {
		return t.baseOrDefault().RoundTrip(req)
	}
	resp, held, err := t.sendHeld(req, e.Host)
	e.Waited += held
	return resp, err
}

func (t *Transport) depart(host string, more departures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.onTheWay[host]
	d.requests += more.requests
	d.cost += more.cost
	if t.onTheWay[host] = d; d.requests == 0 {
		delete(t.onTheWay, host)
	}
}
