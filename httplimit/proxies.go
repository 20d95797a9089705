package httplimit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// WithTrustedProxies reads the client's address from X-Forwarded-For if the peer's address
// is in one of the prefixes. All lines of the field are one list. The list is read from
// the right. Reading ends after the first address that is in none of the prefixes, before
// an element that is not an address, or at the beginning of the list. The last address
// read is the client's. If none was read, the peer's address counts. Elements may have a
// port, and brackets.
//
// A peer on a Unix socket has no address that a prefix could contain: use
// WithTrustedHops for it. Calling WithTrustedProxies again adds prefixes. No prefix, or an
// invalid one, is an ErrInvalidOption. Only one of the options WithTrustedProxies,
// WithTrustedHops, WithForwarded and WithTrustedHeader can be used: two of them are an
// ErrInvalidOption. By default, the peer's address counts and no field is read.
func WithTrustedProxies(prefixes ...netip.Prefix) Option {
	return withSource(source{option: "WithTrustedProxies", field: forwardedFor, cut: cutLast, parse: parseListed}, prefixes)
}

// WithForwarded reads the client's address from the "for" parameters of Forwarded (RFC
// 7239) if the peer's address is in one of the prefixes. In all other respects it works
// as WithTrustedProxies does. An element without an address, such as "for=unknown" or
// "for=_hidden", ends the reading. By default, the field is not read.
func WithForwarded(prefixes ...netip.Prefix) Option {
	return withSource(source{option: "WithForwarded", field: "Forwarded", cut: cutLastForwarded, parse: parseForwarded}, prefixes)
}

// WithTrustedHeader reads the client's address from a field in which a proxy writes only
// that address, such as CF-Connecting-IP, X-Real-IP or Fly-Client-IP. It does so if the
// peer's address is in one of the prefixes. If the field is missing, has more than one
// line or is not an address, the peer's address counts. The proxy must overwrite the
// field. If it passes on the field that the client sent, clients can choose their address.
//
// Calling WithTrustedHeader again with the same name adds prefixes. No prefix, an invalid
// prefix or an invalid name is an ErrInvalidOption. It is also an error to use another of
// the options that WithTrustedProxies lists. By default, no such field is read.
func WithTrustedHeader(name string, prefixes ...netip.Prefix) Option {
	name = http.CanonicalHeaderKey(name)
	return withSource(source{option: "WithTrustedHeader(" + name + ")", field: name, parse: parseListed}, prefixes)
}

// WithTrustedHops reads the client's address from X-Forwarded-For. It counts n proxies,
// and does not look at their addresses. The peer is one of them. With n = 1, the peer is
// the only proxy, and the client's address is the last of the list. With n = 2, it is the
// last but one. If the list is shorter, the client's address is the first of the list.
// The list is read from its end. Reading stops at an element that is not an address; then
// the address read before it is the client's, or the peer's address if there is none.
//
// WithTrustedHops trusts every peer. Use it only if every request passes the proxies;
// otherwise clients can choose their address. An n below 1 is an ErrInvalidOption. It is
// also an error to use another of the options that WithTrustedProxies lists. By default,
// the peer's address counts.
func WithTrustedHops(n int) Option {
	return addressOption(func(a *addresses) {
		a.sources = append(a.sources, source{option: "WithTrustedHops", field: forwardedFor, cut: cutLast, parse: parseListed, byHops: true, hops: n})
	})
}

// withSource returns an option that adds a source. The option may be used any number of times,
// so applying it changes neither s nor the array behind s.trusted.
func withSource(s source, prefixes []netip.Prefix) Option {
	s.isEmpty = len(prefixes) == 0
	for _, p := range prefixes {
		s.trusted = append(s.trusted, foldPrefix(p))
	}
	s.trusted = slices.Clip(s.trusted)
	return addressOption(func(a *addresses) {
		for i := range a.sources {
			if known := &a.sources[i]; known.option == s.option {
				known.trusted = append(known.trusted, s.trusted...)
				known.isEmpty = known.isEmpty || s.isEmpty
				return
			}
		}
		a.sources = append(a.sources, s)
	})
}

const forwardedFor = "X-Forwarded-For"

// source is a field in which proxies write addresses, with the peers that may write it.
type source struct {
	option string // the name of the option that set it
	field  string // the canonical name
	cut    func(list string) (rest, last string, more bool)
	parse  func(element string) (netip.Addr, bool)

	trusted []netip.Prefix
	isEmpty bool // an option was given no prefix
	byHops  bool // hops counts, and not trusted
	hops    int
}

func (s *source) validate() error {
	switch {
	case s.byHops && s.hops < 1:
		return invalid("WithTrustedHops(%d): choose 1 or more, since the peer counts", s.hops)
	case !isToken(s.field):
		return invalid("%s: name a header field, with letters, digits and -", s.option)
	case s.isEmpty:
		return invalid("%s without a prefix: pass the addresses of your proxies", s.option)
	}
	for i, p := range s.trusted {
		if !p.IsValid() {
			return invalid("%s: prefix %d is not valid: pass what netip.ParsePrefix returned without an error", s.option, i)
		}
	}
	return nil
}

// client returns the client's address. It reads the lines from the right, where the nearest
// proxy has written, and returns the first address that is not trusted: a client may have
// made up everything to the left of it. If peer is zero, the peer has no address.
func (s *source) client(peer netip.Addr, h http.Header) netip.Addr {
	lines := h[s.field]
	if s.cut == nil {
		return s.ofOneLine(peer, lines)
	}
	client, hop := peer, 1
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; hop++ {
			if !s.isTrusted(client, hop) {
				return client
			}
			var element string
			line, element, more = s.cut(line)
			addr, ok := s.parse(element)
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// ofOneLine returns the address in a field that must have one line with one address. Otherwise
// it returns the peer's.
func (s *source) ofOneLine(peer netip.Addr, lines []string) netip.Addr {
	if len(lines) == 1 && s.isTrusted(peer, 1) {
		if addr, ok := s.parse(lines[0]); ok {
			return addr
		}
	}
	return peer
}

func (s *source) isTrusted(addr netip.Addr, hop int) bool {
	if s.byHops {
		return hop <= s.hops
	}
	for _, prefix := range s.trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// cutLast cuts the last element off a list.
func cutLast(list string) (rest, last string, more bool) {
	comma := strings.LastIndexByte(list, ',')
	if comma < 0 {
		return "", list, false
	}
	return list[:comma], list[comma+1:], true
}

func parseListed(element string) (netip.Addr, bool) { return parseAddr(trim(element)) }

// trim drops optional whitespace (RFC 9110, section 5.6.3).
func trim(s string) string { return strings.Trim(s, " \t") }
