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
	LoseReply       // the server runs the script, and the connection breaks before the answer arrives
	LoseBatch       // like LoseReply, for the next runs that are sent together
	Reply           // the proxy answers; the server does not get the request
	CutReply        // the server runs the script, and the connection breaks in the middle of the answer
	CutBatch        // like CutReply, for the next runs that are sent together
)

// Proxy passes bytes between clients and a server. Its methods make it lose, delay or
// replace some of them.
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

// NewProxy returns a proxy without an address: set its Dial method as the dialer of a
// client.
func NewProxy(backend func() (net.Conn, error)) *Proxy { return &Proxy{backend: backend} }

// StartProxy returns a proxy that listens on a free loopback port until the end of the
// test.
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

// Next sets the fault for the next run of the script, once. reply is what the fault Reply
// sends, in the Redis protocol, such as "-LOADING ...\r\n".
func (p *Proxy) Next(fault Fault, reply string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.reply = fault, reply
}

// Cut sets CutReply or CutBatch, once: only the first n bytes of the answer pass.
func (p *Proxy) Cut(fault Fault, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.cut = fault, n
}

// Forget lets no more bytes through on the open connections, in either direction. A
// firewall that has forgotten connections behaves like this. New connections work.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.dead = true
	}
}

// Connections returns how many connections clients have made so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Silence(true) lets no bytes through in either direction, until Silence(false).
func (p *Proxy) Silence(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// Delay makes every answer arrive later by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Runs returns how many runs of the script clients have sent, whether the server got them
// or not.
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

// link is the connection of a client and the connection to the server that belongs to it.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	// The proxy's mutex guards these.
	lose, dead bool
	cut        int // bytes of the next answer that pass; all of them if below 0
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

// meddle applies the fault to a request, and reports whether to send it to the server. It
// expects that a client writes a request in one piece.
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
			_, _ = io.Copy(io.Discard, l.server) // so that the server need not wait
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
