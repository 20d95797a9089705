package iolimit_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

const (
	streams = 4
	payload = 256 << 10
)

// fast is the limit of the tests in real time: 1 MiB takes a tenth of a second.
var fast = tokenbucket.Limit{Capacity: 32 << 10, RefillPerSec: 10e6}

// recordingListener accepts connections that have all methods of a *net.TCPConn and note
// what they write.
type recordingListener struct {
	net.Listener
	all      *recorder
	accepted atomic.Int64
}

type recordingConn struct {
	*net.TCPConn
	all    *recorder
	stream int
}

func (l *recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &recordingConn{c.(*net.TCPConn), l.all, int(l.accepted.Add(1))}, nil
}

func (c *recordingConn) Write(p []byte) (int, error) {
	c.all.note(c.stream, len(p))
	return c.TCPConn.Write(p)
}

// requests is the limit of what a server reads, in chunks of 32 bytes.
var requests = tokenbucket.Limit{Capacity: 64, RefillPerSec: 100e3}

// listen returns a listener on a loopback port whose connections are limited in both
// directions. They note in the recorder what they write.
func listen(t *testing.T, buckets ...*tokenbucket.Bucket) (net.Listener, *recorder) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	all := newRecorder()
	l := iolimit.NewListener(&recordingListener{Listener: inner, all: all}, func(net.Conn) []iolimit.Option {
		return []iolimit.Option{iolimit.WithRead(tokenbucket.MustNew(requests)), iolimit.WithWrite(buckets...)}
	})
	t.Cleanup(func() { l.Close() })
	return l, all
}

// each runs several calls at once, and fails with the first error.
func each(t *testing.T, call func() error) {
	t.Helper()
	errs := make(chan error, streams)
	for range streams {
		go func() { errs <- call() }()
	}
	for range streams {
		require.NoError(t, <-errs)
	}
}

// At the instants at which bytes leave, each stream may have sent one chunk more.
func requireWithin(t *testing.T, l tokenbucket.Limit, all *recorder) {
	t.Helper()
	all.require(t, streams*payload, l, streams*l.Capacity/2)
}

// serve writes the payload to each connection and closes its sending half.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if _, err := c.Write(count(payload)); err != nil {
				return
			}
			_ = c.(halfWriter).CloseWrite()
			_, _ = io.Copy(io.Discard, c) // until the client is done
		}()
	}
}

// drain reads the payload from a connection, checks it, and closes the connection.
func drain(c net.Conn, err error) error {
	if err != nil {
		return err
	}
	defer c.Close()
	return checkPayload(c)
}

func checkPayload(r io.Reader) error {
	got, err := io.ReadAll(r)
	if err == nil && string(got) != string(count(payload)) {
		err = errBroken
	}
	return err
}

func TestOverTCP(t *testing.T) {
	l, all := listen(t, tokenbucket.MustNew(fast))
	go serve(l)
	each(t, func() error { return drain(net.Dial("tcp", l.Addr().String())) })
	requireWithin(t, fast, all)
}

func TestOverTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	limited, all := listen(t, tokenbucket.MustNew(fast))
	l := tls.NewListener(limited, &tls.Config{Certificates: certified.TLS.Certificates})
	go serve(l)
	config := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	each(t, func() error { return drain(tls.Dial("tcp", l.Addr().String(), config)) })
	requireWithin(t, fast, all)
}

// serveHTTP starts a server of the payload on a limited listener.
func serveHTTP(t *testing.T, handler http.Handler, buckets ...*tokenbucket.Bucket) (*httptest.Server, *recorder) {
	server := httptest.NewUnstartedServer(handler)
	server.Listener.Close()
	var all *recorder
	server.Listener, all = listen(t, buckets...)
	t.Cleanup(server.Close)
	return server, all
}

func TestOverHTTP(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent, err := io.ReadAll(r.Body); err != nil || len(sent) != 10 {
			http.Error(w, "the body did not come", http.StatusBadRequest)
			return
		}
		_, _ = w.Write(count(payload))
	})
	for name, start := range map[string]func(*httptest.Server){
		"plain":  (*httptest.Server).Start,
		"TLS":    (*httptest.Server).StartTLS,
		"HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			server, all := serveHTTP(t, handler, tokenbucket.MustNew(fast))
			start(server)
			each(t, func() error { return post(server) })
			require.NoError(t, post(server), "a connection can be used again")
			requireWithin(t, fast, all)
		})
	}
}

// post sends a request with a body of 10 bytes, and checks the answer.
func post(server *httptest.Server) error {
	answer, err := server.Client().Post(server.URL, "text/plain", io.LimitReader(newSource(), 10))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return checkPayload(answer.Body)
}

// counting returns a bucket that never waits, and a function that returns the bytes it was
// charged for so far.
func counting() (bucket *tokenbucket.Bucket, charged func() float64) {
	const capacity = 1 << 40
	bucket = tokenbucket.MustNew(tokenbucket.Limit{Capacity: capacity, RefillPerSec: 1e-9})
	return bucket, func() float64 { return capacity - bucket.Tokens() }
}

// payloadFile opens a file with the payload.
func payloadFile(t *testing.T) *os.File {
	path := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(path, count(payload), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// tcpPair returns both ends of a TCP connection.
func tcpPair(t *testing.T) (a, b *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// embedded has the shortcuts of a *net.TCPConn.
type embedded struct{ *net.TCPConn }

func TestShortcutsDoNotBypassTheLimit(t *testing.T) {
	for name, copyOver := range map[string]func(t *testing.T, a *net.TCPConn, b *tokenbucket.Bucket) (int64, error){
		"a file into a limited conn": func(t *testing.T, a *net.TCPConn, b *tokenbucket.Bucket) (int64, error) {
			return io.Copy(iolimit.NewConn(embedded{a}, iolimit.WithWrite(b)), payloadFile(t))
		},
		"a limited file into a conn": func(t *testing.T, a *net.TCPConn, b *tokenbucket.Bucket) (int64, error) {
			return io.Copy(a, iolimit.NewReader(t.Context(), payloadFile(t), b))
		},
		"a file into a limited writer": func(t *testing.T, a *net.TCPConn, b *tokenbucket.Bucket) (int64, error) {
			return io.Copy(iolimit.NewWriter(t.Context(), embedded{a}, b), payloadFile(t))
		},
		"a limited file's part into a conn": func(t *testing.T, a *net.TCPConn, b *tokenbucket.Bucket) (int64, error) {
			return io.Copy(a, io.LimitReader(iolimit.NewReader(t.Context(), payloadFile(t), b), payload))
		},
		"buffers into a limited conn": func(_ *testing.T, a *net.TCPConn, b *tokenbucket.Bucket) (int64, error) {
			buffers := net.Buffers{count(payload)[:1000], count(payload)[1000:]}
			return buffers.WriteTo(iolimit.NewConn(a, iolimit.WithWrite(b)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			received := make(chan error, 1)
			go func() { received <- checkPayload(b) }()
			bucket, charged := counting()
			n, err := copyOver(t, a, bucket)
			require.NoError(t, err)
			require.EqualValues(t, payload, n)
			require.NoError(t, a.CloseWrite())
			require.NoError(t, <-received)
			require.Equal(t, float64(payload), charged())
		})
	}
}

// Without a limit, io.Copy splices a connection into another one, or into a file.
func TestReadingShortcutsDoNotBypassTheLimit(t *testing.T) {
	a, b := tcpPair(t)
	sent := make(chan error, 1)
	go func() {
		_, err := a.Write(count(payload))
		sent <- err
		_ = a.CloseWrite()
	}()
	out, in := tcpPair(t)
	received := make(chan error, 1)
	go func() { received <- checkPayload(in) }()
	bucket, charged := counting()
	n, err := io.Copy(out, iolimit.NewConn(embedded{b}, iolimit.WithRead(bucket)))
	require.NoError(t, err)
	require.EqualValues(t, payload, n)
	require.NoError(t, <-sent)
	require.NoError(t, out.CloseWrite())
	require.NoError(t, <-received)
	require.Equal(t, float64(payload), charged())
}

// A file server passes its files to the connection, which could send them without a
// Write.
func TestFileServerDoesNotBypassTheLimit(t *testing.T) {
	name := payloadFile(t).Name()
	bucket, charged := counting()
	server, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }), bucket)
	server.Start()
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, checkPayload(answer.Body))
	require.GreaterOrEqual(t, charged(), float64(payload))
}

func TestListenerReturnsTheErrorOfAccept(t *testing.T) {
	l, _ := listen(t)
	require.NoError(t, l.Close())
	_, err := l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestListenerWithoutAFunctionLimitsNothing(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := iolimit.NewListener(inner, nil)
	defer l.Close()
	go serve(l)
	require.NoError(t, drain(net.Dial("tcp", l.Addr().String())))
}
