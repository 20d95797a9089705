package iolimit

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Option configures NewConn.
type Option func(*config)

type config struct{ read, write []*tokenbucket.Bucket }

// WithRead limits Read to the rate of each of the buckets. A stream takes tokens from them
// in the order given; nil buckets are ignored. A further WithRead adds buckets. By
// default, reading has no limit.
func WithRead(buckets ...*tokenbucket.Bucket) Option {
	buckets = slices.Clone(buckets)
	return func(c *config) { c.read = append(c.read, buckets...) }
}

// WithWrite limits Write to the rate of each of the buckets. A stream takes tokens from them
// in the order given; nil buckets are ignored. A further WithWrite adds buckets. By default,
// writing has no limit.
func WithWrite(buckets ...*tokenbucket.Bucket) Option {
	buckets = slices.Clone(buckets)
	return func(c *config) { c.write = append(c.write, buckets...) }
}

// NewConn returns a connection that reads and writes no faster than the options allow, in
// bytes per second. Read and Write work as those of NewReader and NewWriter do, and do
// not wait for each other unless they share a bucket. Nil options are ignored.
//
// Deadlines also apply to the waits. A wait ends with os.ErrDeadlineExceeded when the
// deadline passes, not before. Moving the deadline also moves it for a wait that has begun.
// Deadlines are in real time, even if a bucket has another clock. Close ends the waits with
// net.ErrClosed. Read may return bytes together with either error: they are part of the
// stream, as for any io.Reader.
//
// The connection has CloseRead and CloseWrite if c has them. CloseWrite ends the
// wait of a Write with net.ErrClosed. Other methods of c are hidden.
//
// Used below TLS, as in tls.Server(iolimit.NewConn(c, ...), config), it limits the bytes on
// the network, handshake included.
func NewConn(c net.Conn, opts ...Option) net.Conn {
	var cfg config
	for _, opt := range opts {
		if opt != nil {
			opt(&cfg)
		}
	}
	limited := &conn{
		Conn:    c,
		reader:  newReader(c, cfg.read),
		writer:  newWriter(c, cfg.write),
		reading: newExpiry(),
		writing: newExpiry(),
	}
	return limited.withHalves()
}

// conn embeds the interface net.Conn, so it has no other methods of the wrapped connection.
type conn struct {
	net.Conn
	reader           *reader
	writer           *writer
	reading, writing *expiry
}

func (c *conn) Read(p []byte) (int, error) {
	ctx := c.reading.context()
	n, err := c.reader.read(ctx, p)
	return n, causeOf(ctx, err)
}

func (c *conn) Write(p []byte) (int, error) {
	ctx := c.writing.context()
	n, err := c.writer.write(ctx, p)
	return n, causeOf(ctx, err)
}

// causeOf returns the cause of ctx if err is the error of ctx, and err otherwise.
func causeOf(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() {
		return context.Cause(ctx)
	}
	return err
}

func (c *conn) Close() error {
	c.reading.end(net.ErrClosed)
	c.writing.end(net.ErrClosed)
	return c.Conn.Close()
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetDeadline(t); err != nil {
		return err
	}
	c.reading.set(t)
	c.writing.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	c.reading.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if err := c.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	c.writing.set(t)
	return nil
}

type (
	readCloser  interface{ CloseRead() error }
	writeCloser interface{ CloseWrite() error }
)

// withHalves returns the connection with CloseRead and CloseWrite if the wrapped one has
// them. Callers test whether a connection has these methods, so they must not be there if
// they could only return an error.
func (c *conn) withHalves() net.Conn {
	r, reads := c.Conn.(readCloser)
	w, writes := c.Conn.(writeCloser)
	half := writeHalf{w, c.writing}
	switch {
	case reads && writes:
		return struct {
			*conn
			readCloser
			writeCloser
		}{c, r, half}
	case reads:
		return struct {
			*conn
			readCloser
		}{c, r}
	case writes:
		return struct {
			*conn
			writeCloser
		}{c, half}
	default:
		return c
	}
}

// writeHalf closes the writing half of a connection and ends the waits of its Writes.
type writeHalf struct {
	writeCloser
	writing *expiry
}

func (h writeHalf) CloseWrite() error {
	if err := h.writeCloser.CloseWrite(); err != nil {
		return err
	}
	h.writing.end(net.ErrClosed)
	return nil
}
