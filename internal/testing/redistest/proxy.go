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
	CutReply        // the server carries it out, and the connection breaks in the middle of the answer
	CutBatch        // the same, to the next runs that are sent together
)

// Proxy passes the bytes between clients and a server on, unless a method changes that.
type Proxy struct {
	Addr string

	backend func() (net.Conn, error)

	mu     sync.Mutex
	silent bool
	delay  time.Duration
	fault  Fault
	reply  string
	cut    int // bytes of the answer that pass
	runs   int
	conns  []net.Conn
	links  []*link
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
	go p.Serve(listener)
	return p
}

// Serve lets clients connect until the listener is closed.
func (p *Proxy) Serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if p.connect(client) != nil {
			_ = client.Close()
		}
	}
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

// Cut sets what happens to the next run of the script, or the next runs that are sent
// together: only the first n bytes of the answer pass, once.
func (p *Proxy) Cut(fault Fault, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.cut = fault, n
}

// Forget lets nothing through any more on the present connections, in either direction,
// as a firewall does that has forgotten them. New ones work.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.dead = true
	}
}

// Connections returns how many connections were made so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
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
	l := &link{proxy: p, client: client, server: server, cut: -1}
	p.links = append(p.links, l)
	go l.passRequests()
	go l.passAnswers()
	return nil
}

// link is a client's connection, and the one to the server that goes with it.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	// The proxy's mutex guards these.
	lose, dead bool
	cut        int // bytes of the next answer that pass; below 0: all of them
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
	if runs == 0 || l.dead {
		return !p.silent && !l.dead
	}
	p.runs += runs
	fault := p.fault
	if (fault == LoseBatch || fault == CutBatch) && runs == 1 {
		return !p.silent
	}
	p.fault = None
	if fault == Reply {
		_, _ = io.WriteString(l.client, p.reply)
		return false
	}
	l.lose = l.lose || fault == LoseReply || fault == LoseBatch
	if fault == CutReply || fault == CutBatch {
		l.cut = p.cut
	}
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
		lose, silent, delay, cut := l.lose, l.proxy.silent || l.dead, l.proxy.delay, l.cut
		l.proxy.mu.Unlock()
		if lose = lose || cut >= 0; cut > 0 {
			_, _ = l.client.Write(chunk[:min(n, cut)])
		}
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
