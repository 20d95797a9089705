package grpclimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// WithKey sets the function that returns the key of a call: calls with the same key share a
// bucket of the limiter. The function is called by any number of goroutines. A call for
// which it returns "" counts by its address. The key of such a call never equals a key that
// the function returns. WithKey overrides WithMetadataKey and WithAPIKey. By default, and
// for nil, the key is the peer's address without port and zone: all of an IPv4 address, the
// first 64 bits of an IPv6 address.
func WithKey(key func(ctx context.Context, fullMethod string) string) Option {
	return func(c *config) { c.key = key }
}

// WithMetadataKey uses a value of the call's metadata as the key, as
// httplimit.WithKeyHeader does. If a call has several of the names, the first of them
// counts. A call with none of them counts by its address. By default, metadata is not
// read.
func WithMetadataKey(names ...string) Option {
	return withMetadata(httplimit.WithKeyHeader(names...))
}

// WithAPIKey is like WithMetadataKey, for secrets. Instead of the value, the key
// contains the first 128 bits of its SHA-256, in hexadecimal. By default, metadata is
// not read.
func WithAPIKey(names ...string) Option {
	return withMetadata(httplimit.WithAPIKey(names...))
}

// WithAddress sets how an address becomes a key, by the options that httplimit.AddressKey
// takes: WithIPv6Prefix and one of WithTrustedProxies, WithTrustedHops, WithForwarded and
// WithTrustedHeader, which read the call's metadata. By default, it is the peer's
// address.
func WithAddress(opts ...httplimit.Option) Option {
	opts = slices.Clone(opts)
	return func(c *config) {
		c.address = append(c.address, opts...)
		withMetadata(opts...)(c)
	}
}

func withMetadata(opts ...httplimit.Option) Option {
	return func(c *config) {
		c.http = append(c.http, opts...)
		c.readsMetadata = true
	}
}

// WithCertificateKey uses the identity in the client's verified TLS certificate as the
// key: its first URI, such as a SPIFFE ID, or else its subject. A call without one counts
// by its address. WithCertificateKey and WithKey replace each other: the later of the two
// is used. By default, certificates are not read.
func WithCertificateKey() Option {
	return WithKey(func(ctx context.Context, _ string) string { return certificateIdentity(ctx) })
}

func certificateIdentity(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return ""
	}
	leaf := info.State.VerifiedChains[0][0]
	if len(leaf.URIs) > 0 {
		return leaf.URIs[0].String()
	}
	return leaf.Subject.String()
}

// keyOf returns the key of a call.
func (s *server) keyOf(ctx context.Context, method string) string {
	switch {
	case s.key != nil:
		if own := s.key(ctx, method); own != "" {
			return s.gate.OwnKey(own, nil)
		}
		return s.gate.OwnKey("", s.requestOf(ctx))
	case s.readsMetadata:
		return s.gate.Key(s.requestOf(ctx))
	default:
		return s.addressKey(ctx)
	}
}

// addressKey returns the key of a call by the peer's address alone. It caches the keys of
// TCP connections, since making a key takes longer than the decision.
func (s *server) addressKey(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return s.gate.Key(&http.Request{})
	}
	tcp, ok := p.Addr.(*net.TCPAddr)
	if !ok {
		return s.gate.Key(s.requestOf(ctx))
	}
	addr := tcp.AddrPort()
	known := &s.addressKeys[addr.Port()%uint16(len(s.addressKeys))]
	if k := known.Load(); k != nil && k.addr == addr {
		return k.key
	}
	key := s.gate.Key(s.requestOf(ctx))
	known.Store(&addressKey{addr, key})
	return key
}

// addressKey is the key of a connection's address.
type addressKey struct {
	addr netip.AddrPort
	key  string
}

// addressKeys is a cache of the keys of connections, by the peer's port modulo its size. A
// connection replaces another one in the same place; each entry is immutable, so readers
// need no lock.
type addressKeys [1024]atomic.Pointer[addressKey]

// requestOf returns an HTTP request with the parts of a call from which httplimit makes keys:
// the peer's address and, if it is used, the metadata.
func (s *server) requestOf(ctx context.Context) *http.Request {
	r := &http.Request{}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		r.RemoteAddr = p.Addr.String()
	}
	if !s.readsMetadata {
		return r
	}
	incoming, _ := metadata.FromIncomingContext(ctx)
	r.Header = make(http.Header, len(incoming))
	for name, values := range incoming {
		if name == ":authority" && len(values) == 1 {
			r.Host = values[0]
		}
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	return r
}
