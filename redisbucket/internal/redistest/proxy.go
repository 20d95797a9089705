package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fault is what a Proxy does to the next command that a client sends.
type Fault int

const (
	None      Fault = iota
	LoseReply       // the server carries it out, and the connection breaks before the answer comes
	Reply           // an answer of the proxy's own; the server does not get it
)

// Proxy passes on what a client and a server say to each other, until told
// otherwise.
type Proxy struct {
	Addr string

	backend string
	dial    func() (net.Conn, error)

	mu     sync.Mutex
	silent bool
	fault  Fault
	reply  string
	hits   int
	conns  []net.Conn
}

// StartProxy listens on a loopback port of its own, until the end of the test.
func StartProxy(t testing.TB, backend string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Addr: listener.Addr().String(), backend: backend}
	p.dial = func() (net.Conn, error) { return net.Dial("tcp", p.backend) }
	t.Cleanup(func() {
		_ = listener.Close()
		p.Break()
	})
	go p.accept(listener)
	return p
}

// Next sets what happens to the next EVALSHA, once; reply is in the protocol's
// words, such as "-LOADING ...\r\n".
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

// Hits returns how many EVALSHA were sent, passed on or not.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
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

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := p.dial()
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		l := &link{proxy: p, client: client, server: server}
		go l.requests()
		go l.answers()
	}
}

// link is a client's connection, and the one to the server that goes with it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	mu             sync.Mutex
	lose           bool
}

func (l *link) requests() {
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

// meddle does what is to be done to a command, and reports whether it goes on to
// the server. A client writes a command in one piece.
func (l *link) meddle(chunk []byte) (pass bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bytes.Contains(chunk, []byte("evalsha")) {
		return !p.silent
	}
	p.hits++
	fault := p.fault
	p.fault = None
	switch {
	case fault == LoseReply:
		l.mu.Lock()
		l.lose = true
		l.mu.Unlock()
	case fault == Reply:
		_, _ = io.WriteString(l.client, p.reply)
		return false
	}
	return !p.silent
}

func (l *link) answers() {
	defer l.client.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(chunk)
		if err != nil {
			return
		}
		l.mu.Lock()
		lose := l.lose
		l.mu.Unlock()
		if lose {
			return
		}
		l.proxy.mu.Lock()
		silent := l.proxy.silent
		l.proxy.mu.Unlock()
		if silent {
			continue
		}
		if _, err := l.client.Write(chunk[:n]); err != nil {
			return
		}
	}
}
