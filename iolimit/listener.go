package iolimit

import "net"

// NewListener returns a listener whose connections are limited. It calls accept for each
// connection; accept returns the options for [NewConn]. So a connection can have a bucket of
// its own and share others. A nil accept limits nothing.
//
// The listener's Accept waits until accept returns, so accept should not block. The function
// accept may close the connection. It may also call methods that the limited connection
// hides, such as SetNoDelay. It must not read or write.
//
// TLS must wrap the limited listener: use tls.NewListener(iolimit.NewListener(l, accept),
// config), or the ServeTLS method of an http.Server. If the limited listener wraps a TLS
// listener, an http.Server does not see that its connections use TLS.
func NewListener(l net.Listener, accept func(net.Conn) []Option) net.Listener {
	if accept == nil {
		accept = func(net.Conn) []Option { return nil }
	}
	return &listener{l, accept}
}

type listener struct {
	net.Listener
	accept func(net.Conn) []Option
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return NewConn(c, l.accept(c)...), nil
}
