package grpclimit_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// keyOf returns the key and the cost of one call.
func keyOf(t *testing.T, p *peer.Peer, md metadata.MD, opts ...grpclimit.Option) (key string, cost float64) {
	limiter := limiterFunc(func(k string, c float64) (tokenbucket.Decision, error) {
		key, cost = k, c
		return tokenbucket.Decision{OK: true}, nil
	})
	interceptor, err := grpclimit.UnaryServerInterceptor(limiter, opts...)
	require.NoError(t, err)
	ctx := metadata.NewIncomingContext(t.Context(), md)
	if p != nil {
		ctx = peer.NewContext(ctx, p)
	}
	info := &grpc.UnaryServerInfo{FullMethod: "/package.Service/Method"}
	for range 2 { // the second time from the cache
		_, err = interceptor(ctx, "message", info, func(context.Context, any) (any, error) { return nil, nil })
		require.NoError(t, err)
	}
	return key, cost
}

func from(address string) *peer.Peer {
	return &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}
}

func certified(uris []*url.URL, verified bool) *peer.Peer {
	p := from("192.0.2.1:4000")
	state := tls.ConnectionState{}
	if verified {
		state.VerifiedChains = [][]*x509.Certificate{{{URIs: uris, Subject: pkix.Name{CommonName: "alice"}}}}
	}
	p.AuthInfo = credentials.TLSInfo{State: state}
	return p
}

func TestKeys(t *testing.T) {
	proxy := netip.MustParsePrefix("192.0.2.0/24")
	proxied := grpclimit.WithAddress(httplimit.WithTrustedProxies(proxy))
	forwarded := metadata.MD{"x-forwarded-for": {"203.0.113.9, 198.51.100.7", "192.0.2.77"}}
	function := func(key string) grpclimit.Option {
		return grpclimit.WithKey(func(_ context.Context, method string) string {
			require.Equal(t, "/package.Service/Method", method)
			return key
		})
	}
	spiffe := []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/alice"}}
	for _, test := range []struct {
		name string
		peer *peer.Peer
		md   metadata.MD
		opts []grpclimit.Option
		want string
	}{
		{"IPv4", from("192.0.2.1:4000"), nil, nil, "192.0.2.1"},
		{"IPv4 in IPv6", from("[::ffff:192.0.2.1]:4000"), nil, nil, "192.0.2.1"},
		{"IPv6", from("[2001:db8:1:2:3:4:5:6]:4000"), nil, nil, "2001:db8:1:2::/64"},
		{"IPv6 by another prefix", from("[2001:db8:1:2:3:4:5:6]:4000"), nil, []grpclimit.Option{grpclimit.WithAddress(httplimit.WithIPv6Prefix(48))}, "2001:db8:1::/48"},
		{"a zone", from("[fe80::1%eth0]:4000"), nil, nil, "fe80::/64"},
		{"a Unix socket", &peer.Peer{Addr: &net.UnixAddr{Name: "@", Net: "unix"}}, nil, nil, "@"},
		{"no peer", nil, nil, nil, ""},
		{"nobody is trusted by default", from("192.0.2.1:4000"), forwarded, nil, "192.0.2.1"},
		{"a trusted proxy", from("192.0.2.1:4000"), forwarded, []grpclimit.Option{proxied}, "198.51.100.7"},
		{"a peer that is no proxy", from("203.0.113.1:4000"), forwarded, []grpclimit.Option{proxied}, "203.0.113.1"},
		{"metadata", from("192.0.2.1:4000"), metadata.MD{"tenant": {"acme"}}, []grpclimit.Option{grpclimit.WithMetadataKey("Tenant")}, "Tenant:acme"},
		{"no metadata", from("192.0.2.1:4000"), nil, []grpclimit.Option{grpclimit.WithMetadataKey("tenant")}, "192.0.2.1"},
		{"authority", from("192.0.2.1:4000"), metadata.MD{":authority": {"API.example"}}, []grpclimit.Option{grpclimit.WithMetadataKey("host")}, "Host:api.example"},
		{"function", from("192.0.2.1:4000"), nil, []grpclimit.Option{function("acme")}, "acme"},
		{"function that looks like an address", from("192.0.2.1:4000"), nil, []grpclimit.Option{function("!address:192.0.2.1")}, "!!address:192.0.2.1"},
		{"function that returns nothing", from("192.0.2.1:4000"), nil, []grpclimit.Option{function("")}, "!address:192.0.2.1"},
		{"function that returns nothing, behind a proxy", from("192.0.2.1:4000"), forwarded, []grpclimit.Option{function(""), proxied}, "!address:198.51.100.7"},
		{"certificate with a URI", certified(spiffe, true), nil, []grpclimit.Option{grpclimit.WithCertificateKey()}, "spiffe://example.org/alice"},
		{"certificate with a subject", certified(nil, true), nil, []grpclimit.Option{grpclimit.WithCertificateKey()}, "CN=alice"},
		{"certificate that is not verified", certified(nil, false), nil, []grpclimit.Option{grpclimit.WithCertificateKey()}, "!address:192.0.2.1"},
		{"no certificate", from("192.0.2.1:4000"), nil, []grpclimit.Option{grpclimit.WithCertificateKey()}, "!address:192.0.2.1"},
	} {
		key, cost := keyOf(t, test.peer, test.md, test.opts...)
		require.Equal(t, test.want, key, test.name)
		require.Equal(t, 1.0, cost, test.name)
	}
	secret, _ := keyOf(t, from("192.0.2.1:4000"), metadata.MD{"authorization": {"Bearer s3cret"}}, grpclimit.WithAPIKey("authorization"))
	require.Regexp(t, "^Authorization:[0-9a-f]{32}$", secret)
}

// Two connections with the same port must not get each other's key.
func TestPeersWithOnePort(t *testing.T) {
	taken := map[string]int{}
	limiter := limiterFunc(func(key string, _ float64) (tokenbucket.Decision, error) {
		taken[key]++
		return tokenbucket.Decision{OK: true}, nil
	})
	interceptor, err := grpclimit.UnaryServerInterceptor(limiter)
	require.NoError(t, err)
	for _, address := range []string{"192.0.2.1:4000", "192.0.2.2:4000", "192.0.2.1:4000", "192.0.2.1:5024"} {
		_, err := interceptor(peer.NewContext(t.Context(), from(address)), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int{"192.0.2.1": 3, "192.0.2.2": 1}, taken)
}

func TestCosts(t *testing.T) {
	length := func(_ context.Context, method string, message any) float64 { return float64(len(message.(string))) }
	for _, test := range []struct {
		opt  grpclimit.Option
		want float64
	}{
		{grpclimit.WithCosts(nil), 1},
		{grpclimit.WithCosts(tokenbucket.Costs{"/package.Service/Method": 5, "/package.Service/*": 3}), 5},
		{grpclimit.WithCosts(tokenbucket.Costs{"/package.Service/*": 3}), 3},
		{grpclimit.WithCosts(tokenbucket.Costs{"/package.Service/*": 0}), 0},
		{grpclimit.WithCosts(tokenbucket.Costs{"/package.Other/*": 3, "/package.Service/Other": 2}), 1},
		{grpclimit.WithCost(length), 7},
	} {
		_, cost := keyOf(t, from("192.0.2.1:4000"), nil, test.opt)
		require.Equal(t, test.want, cost)
	}
}
