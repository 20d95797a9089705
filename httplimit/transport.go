package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// HostBuckets are what a Transport waits on: a token bucket for each host. A
// *keyed.Buckets[string] is that as it is; AllHosts makes it of a single bucket.
//
// The host is told in lower case, without a trailing dot, and with its port unless
// that is the scheme's default: "api.example.com", "localhost:8080", "[::1]".
//
// Implementations must be safe for concurrent use. If they have a method
// Limits() []tokenbucket.Limit, as both of ours do, prices are checked against it.
type HostBuckets interface {
	// Wait takes the cost, in tokens, as soon as it is there; Bucket.Wait says how.
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
func (a allHosts) Limits() []tokenbucket.Limit         { return a.bucket.Limits() }

// Transport is an http.RoundTripper that never goes faster than it may. Before
// every request, redirects and retries included, it waits for its turn at the
// bucket of the host, and it obeys a server that says "too fast":
//
//   - After a 429, or a 503 with Retry-After, it pauses the bucket of that host for
//     as long as Retry-After says, in seconds or as a date, so that every request
//     holds, not only the one that was told. A 429 without one, or with one that is
//     malformed, 0 or past, pauses for as long as WithDefaultPause says; a 503 does
//     not pause then. WithTooFast adds other statuses.
//   - A pause longer than WithLongestPause is not believed: the pause is that long
//     then, and the answer is handed to the caller without a retry.
//   - WithRateLimitFields slows down before the server refuses, WithRetries sends
//     again what was refused. Both are off by default.
//
// A request that costs 0 does not wait and is not held by a pause, as everywhere in
// this module; only its retries are.
//
// An answer that refuses is an answer, not an error. Errors come back from
// RoundTrip as the bucket's Wait or the base returned them; http.Client wraps them
// in a *url.Error. If Wait fails, nothing was taken, and the request was not sent,
// or not once more: a context deadline, the one of http.Client.Timeout included,
// that would pass before its turn comes is a *tokenbucket.DeadlineError at once.
//
// A Transport may be used by any number of goroutines. It must not be copied. The
// zero Transport sends nothing and returns an error; use NewTransport.
type Transport struct {
	transportConfig
	buckets HostBuckets
	seed    uint64 // of the jitter

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
	return &Transport{transportConfig: c, buckets: buckets, seed: c.random(), onTheWay: map[string]departures{}}, nil
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
	return t.roundTrip(req, hostOf(req.URL), t.cost(req))
}

func (t *Transport) roundTrip(req *http.Request, host string, cost float64) (*http.Response, error) {
	if err := t.wait(req, host, cost); err != nil {
		return nil, err
	}
	for left := t.retries; ; left-- {
		resp, err := t.send(req, host, cost)
		if err != nil || resp == nil {
			return resp, err
		}
		again := t.heed(host, resp)
		if !again || left == 0 || !isRepeatable(req) {
			return resp, nil
		}
		next, err := t.queueAgain(req, resp, host, cost)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return resp, nil
		}
		req = next
	}
}

// CloseIdleConnections closes the idle connections of the base, if it has such a
// method. http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.baseOrDefault().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// wait waits for the request's turn. If that fails the request is not sent, so it
// is on us to close its body. The error is not wrapped: url.Error.Timeout looks no
// further than the error it holds.
func (t *Transport) wait(req *http.Request, host string, cost float64) error {
	err := t.buckets.Wait(req.Context(), host, cost)
	if err != nil {
		closeRequestBody(req)
	}
	return err
}

// departures are the requests to a host that have been sent and not been answered.
type departures struct {
	requests int
	cost     float64 // tokens
}

// send sends a request whose turn has come.
func (t *Transport) send(req *http.Request, host string, cost float64) (*http.Response, error) {
	if t.readsFields {
		t.depart(host, departures{1, cost})
		defer t.depart(host, departures{-1, -cost})
	}
	return t.baseOrDefault().RoundTrip(req)
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

// leastCost is what the retry of a free request costs: so little that nothing is
// taken, but more than 0, so that it waits until the pause ends.
const leastCost = 1e-300

// queueAgain waits for the turn of a refused request's retry, and returns it. It
// queues at once, while the pause lasts, so that the retry comes before whatever
// is requested later, and so that a deadline that cannot be met is known at once.
//
// It returns no request if the retry cannot be sent: the refused answer, of which
// nothing has been read, is to be handed over. It returns an error if the context
// has ended: nobody waits for the answer then.
func (t *Transport) queueAgain(req *http.Request, refused *http.Response, host string, cost float64) (*http.Request, error) {
	next, err := renew(req)
	if err != nil {
		return nil, nil
	}
	err = t.wait(next, host, max(cost, leastCost))
	if err != nil && req.Context().Err() == nil {
		return nil, nil
	}
	releaseConnection(refused, t.drain)
	return next, err
}

// maxDrainTime bounds how long a server may take to end a refused answer's body
// once the retry's turn has come.
const maxDrainTime = time.Second

// releaseConnection reads a refused answer's body up to a bound of bytes, and of
// time, and closes it: a connection is used again only if the body was read to its
// end, but a body that never ends must not hold up the retry.
func releaseConnection(resp *http.Response, bound int64) {
	body := resp.Body
	if body == nil {
		return
	}
	defer body.Close()
	if resp.ContentLength > bound {
		return
	}
	late := time.AfterFunc(maxDrainTime, func() { body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, bound+1) // it was refused: what it says, and whether it breaks off, is all the same
}

// isRepeatable reports whether a request may be sent again: its method is
// idempotent (RFC 9110, section 9.2.2) or its sender says that it is, and its body,
// if there is one, can be had once more. As in net/http, a key with no value says so too.
func isRepeatable(req *http.Request) bool {
	if hasBody(req) && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := req.Header["Idempotency-Key"]
	_, xKey := req.Header["X-Idempotency-Key"]
	return key || xKey
}

// renew returns a copy of the request with its body from the start. It is shallow,
// as net/http's own: the trailer stays the map that a body's reader fills, which
// Clone would not, and would read while the refused body is still being sent.
func renew(req *http.Request) (*http.Request, error) {
	next := req.WithContext(req.Context())
	if !hasBody(req) {
		return next, nil
	}
	body, err := req.GetBody()
	next.Body = body
	return next, err
}

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

func closeRequestBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// hostOf returns the name under which a URL's host has its bucket.
func hostOf(u *url.URL) string {
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || port == defaultPorts[u.Scheme] {
		return host
	}
	return host + ":" + port
}
