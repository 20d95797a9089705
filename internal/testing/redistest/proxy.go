package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fault is what a Proxy does to a run of the script.
type Fault int

const (
	None      Fault = iota
	LoseReply       // the server carries it out, and the connection breaks before the answer comes
	LoseBatch       // the same, to the next runs that are sent together
	Reply           // an answer of the proxy's own; the server does not get it
)

// Proxy passes on what clients and a server say to each other, until told otherwise.
type Proxy struct {
	Addr string

	backend func() (net.Conn, error)

	mu     sync.Mutex
	silent bool
	delay  time.Duration
	fault  Fault
	reply  string
	runs   int
	conns  []net.Conn
}

// NewProxy returns a proxy that has no address: Dial is for a client's options.
func NewProxy(backend func() (net.Conn, error)) *Proxy { return &Proxy{backend: backend} }

// StartProxy returns a proxy that listens on a loopback port of its own, until the
// end of the test.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := NewProxy(func() (net.Conn, error) { return net.Dial("tcp", server) })
	p.Addr = listener.Addr().String()
	t.Cleanup(func() {
		_ = listener.Close()
		p.Break()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if p.connect(client) != nil {
				_ = client.Close()
			}
		}
	}()
	return p
}

// Dial returns a connection to the server through the proxy.
func (p *Proxy) Dial(context.Context, string, string) (net.Conn, error) {
	client, inner := net.Pipe()
	return client, p.connect(inner)
}

// Next sets what happens to the next run of the script, once. A reply is in the
// protocol's words, such as "-LOADING ...\r\n".
func (p *Proxy) Next(fault Fault, reply string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.reply = fault, reply
}

// Silence lets nothing through any more in either direction, or again.
func (p *Proxy) Silence(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// Delay lets every answer come later.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Runs returns how many runs of the script were sent, passed on or not.
func (p *Proxy) Runs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

// Break closes all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

func (p *Proxy) connect(client net.Conn) error {
	server, err := p.backend()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, client, server)
	l := &link{proxy: p, client: client, server: server}
	go l.passRequests()
	go l.passAnswers()
	return nil
}

// link is a client's connection, and the one to the server that goes with it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	lose           bool // guarded by the proxy's mutex
}

func (l *link) passRequests() {
	defer l.server.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(chunk)
		if err != nil {
			return
		}
		if !l.meddle(chunk[:n]) {
			continue
		}
		if _, err := l.server.Write(chunk[:n]); err != nil {
			return
		}
	}
}

// meddle does what is to be done to a request, and reports whether it goes on to
// the server. A client writes a request in one piece.
func (l *link) meddle(chunk []byte) (pass bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := bytes.Count(chunk, []byte("evalsha"))
	if runs == 0 {
		return !p.silent
	}
	p.runs += runs
	fault := p.fault
	if fault == LoseBatch && runs == 1 {
		return !p.silent
	}
	p.fault = None
	if fault == Reply {
		_, _ = io.WriteString(l.client, p.reply)
		return false
	}
	l.lose = l.lose || fault == LoseReply || fault == LoseBatch
	return !p.silent
}

func (l *link) passAnswers() {
	defer l.client.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(chunk)
		if err != nil {
			return
		}
		l.proxy.mu.Lock()
		lose, silent, delay := l.lose, l.proxy.silent, l.proxy.delay
		l.proxy.mu.Unlock()
		if lose {
			_ = l.client.Close()
			_, _ = io.Copy(io.Discard, l.server) // it must not wait for us
			return
		}
		if silent {
			continue
		}
		time.Sleep(delay)
		if _, err := l.client.Write(chunk[:n]); err != nil {
			return
		}
	}
}
