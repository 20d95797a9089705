package httplimit

import (
	"io"
	"net/http"
	"time"
)

// queueAgain waits until the retry of a refused request has paid, and returns the retry. It
// queues at once, while the pause lasts, so that the retry comes before later
// requests, and so that a deadline that cannot be met is noticed at once.
//
// It returns no request if the retry cannot be sent: then the caller gets the refusing
// answer, of which nothing has been read. It returns an error if the context has
// ended: then no caller waits for the answer.
func (t *Transport) queueAgain(req *http.Request, refused *http.Response, e *TransportEvent) (*http.Request, error) {
	next, err := renew(req)
	if err != nil {
		return nil, nil
	}
	*e = TransportEvent{Request: next, Host: e.Host, Cost: e.Cost, Costs: e.Costs, Attempt: e.Attempt + 1}
	err = t.wait(e)
	if err != nil && req.Context().Err() == nil {
		return nil, nil
	}
	releaseConnection(refused, t.drain)
	return next, err
}

// maxDrainTime is how long releaseConnection waits for the end of a refusing answer's body.
const maxDrainTime = time.Second

// releaseConnection reads a refusing answer's body, at most bound bytes and for at most
// maxDrainTime, and closes it. A connection is used again only if the body was read to
// its end, but a body that never ends must not delay the retry.
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
	_, _ = io.CopyN(io.Discard, body, bound+1) // the answer is not used, so an error does not matter
}

// isRepeatable reports whether a request may be sent again. Its body, if there is one,
// must be readable again. Also, its method must be safe or idempotent (RFC 9110, section
// 9.2, and the safe methods of the IANA registry), or it must have an Idempotency-Key. As
// in net/http, a key without a value counts too.
func isRepeatable(req *http.Request) bool {
	if !isRenewable(req) {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "PROPFIND", "QUERY", "REPORT", "SEARCH",
		http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := req.Header["Idempotency-Key"]
	_, xKey := req.Header["X-Idempotency-Key"]
	return key || xKey
}

// isRenewable reports whether renew can return the request.
func isRenewable(req *http.Request) bool {
	return !hasBody(req) || req.GetBody != nil
}

// renew returns a copy of the request with its body from the start. The copy is shallow, like
// the copies that net/http makes for its own retries: it shares the trailer map, which the
// body's reader fills. Request.Clone would read that map while the first body is still being
// sent, which is a data race.
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
