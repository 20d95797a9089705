package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// addresses tells clients apart by their addresses.
type addresses struct {
	trusted  []netip.Prefix // proxies
	ipv6Bits int
}

func (a *addresses) key(r *http.Request) string {
	if len(a.trusted) == 0 {
		if host, ok := ipv4Host(r.RemoteAddr); ok {
			return host
		}
	}
	peer, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return unparsed(r.RemoteAddr)
	}
	return a.keyOf(a.client(peer, r.Header["X-Forwarded-For"]))
}

// ipv4Host returns the host of "host:port" if both are digits and dots. An IPv4
// address has one spelling, and what is none counts as it is: so most keys can be cut
// out of what is there, and need not be parsed.
func ipv4Host(hostPort string) (string, bool) {
	colon := strings.LastIndexByte(hostPort, ':')
	if colon < 0 {
		return "", false
	}
	for i, c := range []byte(hostPort) {
		if i != colon && c != '.' && (c < '0' || c > '9') {
			return "", false
		}
	}
	return hostPort[:colon], true
}

// unparsed returns the key of a peer that is not an address, such as one on a Unix
// socket. A port does not count: it would make a key of every connection.
func unparsed(remoteAddr string) string {
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		return host
	}
	return remoteAddr
}

// keyOf returns an IPv4 address whole and the prefix of an IPv6 address.
func (a *addresses) keyOf(client netip.Addr) string {
	var buf [48]byte
	if client.Is4() {
		return string(client.AppendTo(buf[:0]))
	}
	prefix, _ := client.Prefix(a.ipv6Bits) // checked at start-up
	return string(prefix.AppendTo(buf[:0]))
}

// client walks the X-Forwarded-For lines from the right, where the nearest proxy
// has written, past trusted addresses to the first that is not: what stands left
// of it anybody may have made up. A malformed element ends the walk.
func (a *addresses) client(peer netip.Addr, lines []string) netip.Addr {
	client := peer
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; {
			if !a.isTrusted(client) {
				return client
			}
			var element string
			line, element, more = cutLast(line)
			addr, ok := parseAddr(strings.Trim(element, " \t"))
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// cutLast cuts the last element off a list.
func cutLast(list string) (rest, last string, more bool) {
	comma := strings.LastIndexByte(list, ',')
	if comma < 0 {
		return "", list, false
	}
	return list[:comma], list[comma+1:], true
}

func (a *addresses) isTrusted(addr netip.Addr) bool {
	for _, prefix := range a.trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// parseAddr reads an address with or without a port, an IPv6 address with or
// without brackets. IPv4-mapped addresses are folded into IPv4, and zones dropped.
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

// foldPrefix folds a prefix as fold does the addresses in it.
func foldPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// maxKeyLen bounds what a key of a header field makes the buckets remember, in bytes.
const maxKeyLen = 64

// keyHeader is a header field whose value is a key.
type keyHeader struct {
	name   string // canonical
	secret bool
}

// key returns the key of a request that has the field, "" if it is empty. The name
// is part of the key, so that no value can pass for an address.
func (k keyHeader) key(r *http.Request) string {
	value := r.Header.Get(k.name)
	if k.name == "Host" { // which net/http takes out of the header
		value = strings.ToLower(r.Host)
	}
	if k.secret {
		value = digest(credentials(k.name, value))
	}
	if len(value) > maxKeyLen {
		value = digest(value)
	}
	if value == "" {
		return ""
	}
	return k.name + ":" + value
}

// credentials returns a secret without the scheme that Authorization has before
// it, of which upper and lower case are the same.
func credentials(name, value string) string {
	if name == "Authorization" {
		if _, rest, ok := strings.Cut(value, " "); ok {
			return strings.TrimLeft(rest, " ")
		}
	}
	return value
}

// digest returns 128 bits of a secret's SHA-256, "" of "".
func digest(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:16])
}

// isToken reports whether s may be the name of a header field (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
