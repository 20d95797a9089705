package iolimit

import "net"

// NewListener returns a listener whose connections are limited: for each one it calls accept,
// which returns the options for [NewConn]. So a connection may have a bucket of its own
// beside one that all share. A nil accept limits nothing.
//
// Accept waits for the function, so it should not block. It may set options of the connection
// that the limited one hides, or close it; it must not read or write.
//
// Put TLS above: tls.NewListener(iolimit.NewListener(l, accept), config), or
// the ServeTLS method of an http.Server. The server does not recognise TLS below.
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
