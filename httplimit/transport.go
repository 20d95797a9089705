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

// HostBuckets are the token buckets that a Transport waits on, one for each host. A
// *keyed.Buckets[string] implements it; AllHosts makes one from a single bucket.
//
// The host is in lower case, without a trailing dot, and with its port unless that is
// the scheme's default: "api.example.com", "localhost:8080", "[::1]". An
// internationalised name is in the form that net/http sends: "xn--bcher-kva.example".
//
// Implementations must be safe for concurrent use. They may have three more methods,
// as both implementations in this module do:
//
//   - Limits() []tokenbucket.Limit. NewTransport checks prices against the limits.
//   - WaitPause(ctx context.Context, host string) (waited time.Duration, err error). It
//     waits until the host is not paused, as Bucket.WaitPause does, and takes nothing.
//     Without WaitPause, a pause does not hold requests that have taken their tokens.
//   - WaitEach(ctx context.Context, host string, costs ...float64) error. It takes one
//     cost for each limit, as Bucket.WaitEach does. WithTransportCostEach needs it.
type HostBuckets interface {
	// Wait waits until the cost, in tokens, can be taken, and takes it, as Bucket.Wait does.
	Wait(ctx context.Context, host string, cost float64) error
	// Pause empties the host's bucket and closes it for d.
	Pause(host string, d time.Duration)
	// Tokens returns how many tokens a new request could take now.
	Tokens(host string) float64
	// Charge takes the cost, in tokens, even if the bucket goes into debt.
	Charge(host string, cost float64) error
}

// AllHosts returns HostBuckets with one bucket for all hosts. Use it for a client of one
// API that has several host names. A pause then holds the requests to all of them.
func AllHosts(bucket *tokenbucket.Bucket) HostBuckets {
	if bucket == nil {
		return nil // NewTransport returns an error for it
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

// Transport is an http.RoundTripper that limits the rate of requests. Before every
// request, redirects and retries included, it waits for tokens of the host's bucket. It
// also pauses when a server says "too fast":
//
//   - After a 429, or a 503 with Retry-After, it pauses the bucket of that host for as
//     long as Retry-After says, in seconds or as a date. The pause holds every request to
//     the host, not only the one that was refused. A date is compared with the Date field
//     of the answer, if there is one, since the server's clock may differ. A 429 whose
//     Retry-After is missing, malformed, 0 or in the past pauses for the time of
//     WithDefaultPause; a 503 with such a Retry-After does not pause. With
//     WithRateLimitFields, both pause until the reset in these fields if they say that no
//     tokens are left. WithTooFast adds statuses, and WithTooFastFunc decides by the whole
//     answer.
//   - A pause is never longer than WithLongestPause, 5 minutes by default, plus the jitter
//     of WithRetries. If a server demands a longer pause, the caller gets the answer
//     without a retry.
//   - WithRateLimitFields slows down before the server refuses. WithRetries sends
//     refused requests again. Both are off by default.
//
// A pause also holds requests that have taken their tokens but have not been written yet,
// because the base (see WithBase) still dials or waits for a connection. They wait on the
// connection until the pause ends. They neither take tokens nor queue again. The server
// may close the connection meanwhile. Then the request is sent again, unless a part of it
// was written, or it has a body without GetBody. If the context of a held request ends,
// the server does not get the request. With HTTP/1, a held request keeps its connection,
// which counts for http.Transport.MaxConnsPerHost. So other requests may have to wait for
// a connection. Some requests can still be sent during a pause:
//
//   - with a base that does not call the hook GotConn of net/http/httptrace before it
//     writes; http.Transport does, for HTTP/1 and HTTP/2
//   - on HTTP/2, requests that got their connection before the pause and wait there for a
//     stream, because the server limits the number of streams
//   - requests that are written after the refusing answer has arrived and before RoundTrip
//     has read its header
//
// As everywhere in this module, a request that costs 0 does not wait and is not held by a
// pause. Only its retries wait for the end of the pause.
//
// If the server refuses, RoundTrip returns the answer and no error. RoundTrip returns
// errors of the bucket's Wait and of the base unchanged, with one exception. If the
// context ends in the queue, or while a pause holds the request, RoundTrip returns the
// context.Cause of the context. An http.Client wraps these errors in a *url.Error. If
// Wait fails, this attempt took no tokens and was not sent. If the context's deadline,
// which http.Client.Timeout also sets, would pass before the tokens of the first attempt
// are available, RoundTrip returns a *tokenbucket.DeadlineError at once. For retries, see
// WithRetries.
//
// A Transport may be used by any number of goroutines. It must not be copied. The
// zero Transport sends nothing and returns an error; use NewTransport.
type Transport struct {
	transportConfig
	buckets HostBuckets
	pauses  pauseWaiter // the buckets; nil if they do not hold requests
	seed    uint64      // of the jitter

	mu       sync.Mutex            // guards onTheWay; also held while a bucket is lowered
	onTheWay map[string]departures // by bucketOf; empty without WithRateLimitFields
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

// RoundTrip implements http.RoundTripper: it sends a request as Transport describes.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.buckets == nil {
		closeRequestBody(req)
		return nil, errZeroTransport
	}
	if req.URL == nil {
		return t.baseOrDefault().RoundTrip(req) // the base reports the fault
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

// attempt sends a request that has paid, and lets the answer pause or lower the host's
// bucket. It reports whether the request may be sent again.
func (t *Transport) attempt(req *http.Request, e *TransportEvent) (resp *http.Response, again bool, err error) {
	resp, e.Err = t.send(req, e)
	if e.Err == nil && resp != nil {
		e.Status = resp.StatusCode
		again = t.heed(resp, e)
	}
	t.report(e)
	return resp, again, e.Err
}

// CloseIdleConnections closes the idle connections of the base, if it has such a
// method. http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.baseOrDefault().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// leastCost is the cost of the retry of a free request, in tokens. It is above 0, so that
// the retry waits until the pause ends, and too small to change a bucket's level.
const leastCost = 1e-300

// wait waits until an attempt has paid. If that fails, the request is not sent, so wait
// closes its body. The error is not wrapped, because url.Error.Timeout does not unwrap.
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
	t.report(e)
	return err
}

// take waits until an attempt's cost can be taken, and takes it.
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

// send sends a request that has paid. A pause does not hold a free one.
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
	bucket := t.bucketOf(host)
	d := t.onTheWay[bucket]
	d.requests += more.requests
	d.cost += more.cost
	if t.onTheWay[bucket] = d; d.requests == 0 {
		delete(t.onTheWay, bucket)
	}
}

// bucketOf returns a name for the bucket of a host: the host, "" for the bucket of all hosts.
func (t *Transport) bucketOf(host string) string {
	if _, ok := t.buckets.(allHosts); ok {
		return ""
	}
	return host
}
