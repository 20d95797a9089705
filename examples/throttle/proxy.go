package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// throttle is a reverse proxy whose answers are limited by the client's bucket and by one
// for all clients.
type throttle struct {
	proxy   *httputil.ReverseProxy
	keyOf   func(*http.Request) string
	clients *clients
	total   *tokenbucket.Bucket
	out     *progress
}

// newThrottle returns a proxy to an upstream server. It returns an error for a URL that is not
// one of HTTP, and for an invalid limit.
func newThrottle(upstream *url.URL, client, total tokenbucket.Limit, out *progress) (*throttle, error) {
	if upstream.Scheme != "http" && upstream.Scheme != "https" || upstream.Host == "" {
		return nil, fmt.Errorf("upstream %q: choose a URL such as http://127.0.0.1:8080", upstream)
	}
	if err := client.Validate(); err != nil {
		return nil, fmt.Errorf("limit for each client: %w", err)
	}
	shared, err := tokenbucket.New(total)
	if err != nil {
		return nil, fmt.Errorf("limit in total: %w", err)
	}
	keyOf, err := httplimit.AddressKey()
	if err != nil {
		return nil, err
	}
	t := &throttle{keyOf: keyOf, clients: newClients(client), total: shared, out: out}
	t.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
		},
		ModifyResponse: t.limit,
		FlushInterval:  -1, // flush each write, so that a slow download arrives evenly
	}
	return t, nil
}

// client is the client that sent a request, with its bucket.
type client struct {
	key    string // the address
	bucket *tokenbucket.Bucket
	answer io.Closer // the body of the answer; nil: none yet
}

// close closes the body of the answer. The proxy does not, if it rejects the answer.
func (c *client) close() {
	if c.answer != nil {
		_ = c.answer.Close()
	}
}

type clientKey struct{}

func (t *throttle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := t.keyOf(r)
	bucket, release := t.clients.use(key)
	defer release()
	c := &client{key: key, bucket: bucket}
	defer c.close()
	t.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, c)))
}

// limit limits the body of an answer. When the client disconnects, the request's context
// ends, and so does the wait. After an upgrade, to a WebSocket for example, limit limits both
// directions.
func (t *throttle) limit(answer *http.Response) error {
	ctx, body := answer.Request.Context(), answer.Body
	c := ctx.Value(clientKey{}).(*client)
	d := t.out.start(c.key, answer.Request.URL, answer.ContentLength)
	reader := iolimit.NewReader(ctx, body, c.bucket, t.total)
	limited := &download{Reader: io.TeeReader(reader, d), body: body, done: func() { t.out.finish(d) }}
	answer.Body, c.answer = limited, limited
	if both, ok := body.(io.ReadWriteCloser); ok && answer.StatusCode == http.StatusSwitchingProtocols {
		answer.Body = struct {
			*download
			io.Writer
		}{limited, iolimit.NewWriter(ctx, both, c.bucket, t.total)}
	}
	return nil
}

// download is the body of an answer.
type download struct {
	io.Reader
	body io.Closer
	done func()
}

func (d *download) Close() error {
	d.done()
	return d.body.Close()
}
