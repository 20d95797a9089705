package httplimit

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// AddressKey returns the function that turns the client's address into a key, as New does
// by default. Call the returned function inside a function for WithKey. If the function for
// WithKey also returns other keys, such as names of users, put a prefix such as "user:" in
// front of these, so that no name equals an address. AddressKey accepts only the options
// about addresses: WithIPv6Prefix and one of WithTrustedProxies, WithTrustedHops,
// WithForwarded and WithTrustedHeader. Any other option is an ErrInvalidOption. Any number
// of goroutines may call the returned function.
func AddressKey(opts ...Option) (func(*http.Request) string, error) {
	a := newAddresses()
	for i, opt := range opts {
		if opt == nil {
			return nil, invalid("AddressKey: option %d is nil: leave it out", i)
		}
		set, ok := opt.(addressOption)
		if !ok {
			return nil, invalid("AddressKey: option %d is not about addresses: pass it to New, and only WithIPv6Prefix, "+
				"WithTrustedProxies, WithTrustedHops, WithForwarded or WithTrustedHeader to AddressKey", i)
		}
		set(&a)
	}
	if err := a.validate(); err != nil {
		return nil, err
	}
	return a.key, nil
}

// WithIPv6Prefix sets how many leading bits of an IPv6 address make a key, from 1 to
// 128. Other values are an ErrInvalidOption. If a client's addresses are in several
// prefixes, the client has several buckets. By default, it is 64, the size of most
// networks.
func WithIPv6Prefix(bits int) Option {
	return addressOption(func(a *addresses) { a.ipv6Bits = bits })
}

// addresses makes keys of the clients' addresses.
type addresses struct {
	ipv6Bits int
	sources  []source // at most one after validate; if there is none, the peer's address counts
}

func newAddresses() addresses { return addresses{ipv6Bits: 64} }

func (a *addresses) validate() error {
	if a.ipv6Bits < 1 || a.ipv6Bits > 128 {
		return invalid("WithIPv6Prefix(%d): choose from 1 to 128 bits", a.ipv6Bits)
	}
	for i := range a.sources {
		if err := a.sources[i].validate(); err != nil {
			return err
		}
	}
	if len(a.sources) > 1 {
		return invalid("%s and %s: choose one option that says where the client's address is read", a.sources[0].option, a.sources[1].option)
	}
	return nil
}

func (a *addresses) key(r *http.Request) string {
	if len(a.sources) == 0 {
		if host, ok := ipv4Host(r.RemoteAddr); ok {
			return host
		}
	}
	client, ok := parseAddr(r.RemoteAddr)
	if !ok {
		client = netip.Addr{}
	}
	if len(a.sources) > 0 {
		client = a.sources[0].client(client, r.Header)
	}
	if !client.IsValid() {
		return unparsed(r.RemoteAddr)
	}
	return a.keyOf(client)
}

// ipv4Host returns the host of "host:port" if the host has only digits and dots, and the
// port only digits. Such a host is the key. An IPv4 address has only one spelling. If
// the digits and dots are no IPv4 address, the function unparsed would return the same
// host. So most keys are a part of RemoteAddr and need no parsing.
func ipv4Host(hostPort string) (host string, ok bool) {
	colon := len(hostPort) - 1
	for colon >= 0 && isDigit(hostPort[colon]) {
		colon--
	}
	if colon < 0 || hostPort[colon] != ':' {
		return "", false
	}
	host = hostPort[:colon]
	for i := range len(host) {
		if c := host[i]; c != '.' && !isDigit(c) {
			return "", false
		}
	}
	return host, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// unparsed returns the key of a peer that has no IP address, such as one on a Unix
// socket. The port is left out, or each connection would have a key of its own.
func unparsed(remoteAddr string) string {
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		return host
	}
	return remoteAddr
}

// keyOf returns the key of an address: all of an IPv4 address, the prefix of an IPv6 one.
func (a *addresses) keyOf(client netip.Addr) string {
	var buf [48]byte
	if client.Is4() {
		return string(client.AppendTo(buf[:0]))
	}
	prefix, _ := client.Prefix(a.ipv6Bits) // validated before
	return string(prefix.AppendTo(buf[:0]))
}

// parseAddr reads an address with or without a port. An IPv6 address may have brackets.
// IPv4-mapped addresses become IPv4 addresses, and zones are dropped.
func parseAddr(s string) (netip.Addr, bool) {
	if addrPort, err := netip.ParseAddrPort(s); err == nil {
		return fold(addrPort.Addr()), true
	}
	inner, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		var closed bool
		if inner, closed = strings.CutSuffix(inner, "]"); !closed {
			return netip.Addr{}, false
		}
	}
	addr, err := netip.ParseAddr(inner)
	return fold(addr), err == nil && !(bracketed && addr.Is4())
}

func fold(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// foldPrefix converts a prefix as fold converts the addresses in it.
func foldPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
