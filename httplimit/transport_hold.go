package httplimit

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// pauseWaiter is the optional method of HostBuckets that waits until a pause ends.
type pauseWaiter interface {
	WaitPause(ctx context.Context, host string) (waited time.Duration, err error)
}

// sendHeld sends a request that has paid, but not while its host is paused: a pause may
// begin while the base dials or waits for a connection. It returns for how long the
// request was held.
//
// The server may close a connection while a request is held on it. Then the request is
// sent again if nothing of it was written and its body can be read again.
func (t *Transport) sendHeld(req *http.Request, host string) (resp *http.Response, held time.Duration, err error) {
	for {
		h := &hold{pauses: t.pauses, ctx: req.Context(), host: host}
		traced := h.trace(req)
		resp, err = t.baseOrDefault().RoundTrip(traced)
		if resp != nil && resp.Request == traced {
			resp.Request = req
		}
		waited, unsent, gaveUp := h.result()
		held += waited
		if err == nil {
			return resp, held, nil
		}
		if gaveUp != nil {
			return resp, held, gaveUp
		}
		if waited == 0 || !unsent || req.Context().Err() != nil || !isRenewable(req) {
			return resp, held, err
		}
		if req, err = renew(req); err != nil {
			return nil, held, err
		}
	}
}

// hold delays a request while its host is paused: after the request has got a connection, and
// before it is written. The request has paid already, so it does not queue again.
type hold struct {
	pauses pauseWaiter
	ctx    context.Context
	host   string
	hooks  httptrace.ClientTrace

	mu     sync.Mutex    // guards what follows; a base may call hooks from several goroutines
	conn   net.Conn      // the last one that the request got
	waited time.Duration // on all connections that it got
	wrote  bool          // whether the header was written to conn
	gaveUp error         // why the request must not be written; nil if it may be
}

// trace returns a copy of the request that calls the hold's hooks, before those of the caller.
func (h *hold) trace(req *http.Request) *http.Request {
	h.hooks = httptrace.ClientTrace{GotConn: h.gotConn, WroteHeaders: h.wroteHeaders}
	return req.WithContext(httptrace.WithClientTrace(h.ctx, &h.hooks))
}

// gotConn waits for the end of a pause. The base writes the request when it returns.
func (h *hold) gotConn(info httptrace.GotConnInfo) {
	waited, err := h.pauses.WaitPause(h.ctx, h.host)
	if err != nil && h.ctx.Err() != nil {
		err = context.Cause(h.ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.wrote = info.Conn, false
	h.waited += waited
	h.gaveUp = err
}

// wroteHeaders keeps a request from reaching the server if its context has ended while it
// was held. With HTTP/2, net/http does not write such a request. With HTTP/1, net/http
// writes the header to its buffer, calls wroteHeaders and then flushes the buffer, so if
// the connection is closed now, the end of the header is not sent. The connection could
// not be used again in any case: net/http closes it as well, but perhaps too late.
func (h *hold) wroteHeaders() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = true
	if h.gaveUp != nil && h.conn != nil && !isHTTP2(h.conn) { // a base may report no connection
		h.conn.Close()
	}
}

// result returns for how long the request was held, whether nothing of it was sent,
// and why the hold gave up.
func (h *hold) result() (waited time.Duration, unsent bool, gaveUp error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waited, !h.wrote, h.gaveUp
}

// isHTTP2 reports whether a TLS connection speaks HTTP/2. Such a connection may carry other
// requests and must not be closed. Nothing shows that a connection without TLS speaks HTTP/2.
func isHTTP2(conn net.Conn) bool {
	secure, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}
