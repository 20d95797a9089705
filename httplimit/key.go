package httplimit

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"
)

// addresses tells clients apart by their addresses.
type addresses struct {
	trusted  []netip.Prefix // proxies
	ipv6Bits int
}

// key returns the key of the client. A peer whose address can't be read, such as
// one on a Unix socket, is a key of its own.
func (a *addresses) key(r *http.Request) string {
	peer, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr
	}
	client := a.client(peer, r.Header["X-Forwarded-For"])
	if client.Is4() {
		return client.String()
	}
	prefix, err := client.Prefix(a.ipv6Bits)
	if err != nil { // the number of bits was checked at start-up
		return client.String()
	}
	return prefix.String()
}

// client walks the X-Forwarded-For lines from the right, where the nearest proxy
// has written, past trusted addresses to the first that is not: what stands left
// of it, anybody may have made up. A malformed element ends the walk.
func (a *addresses) client(peer netip.Addr, lines []string) netip.Addr {
	client := peer
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; {
			if !a.isTrusted(client) {
				return client
			}
			var element string
			line, element, more = cutLast(line)
			addr, ok := parseAddr(strings.TrimSpace(element))
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

// parseAddr reads an address with or without port and brackets. IPv4-mapped
// addresses are folded into IPv4, and zones dropped.
func parseAddr(s string) (netip.Addr, bool) {
	addrPort, err := netip.ParseAddrPort(s)
	addr := addrPort.Addr()
	if err != nil {
		if inner, ok := strings.CutPrefix(s, "["); ok {
			if s, ok = strings.CutSuffix(inner, "]"); !ok {
				return addr, false
			}
		}
		if addr, err = netip.ParseAddr(s); err != nil {
			return addr, false
		}
	}
	return addr.Unmap().WithZone(""), true
}

const maxHeaderKey = 64 // bytes; longer values count by their hash

// headerKey returns the key of a request with one of the headers, "" without.
// The name is part of it, so that nobody can pass for an address.
func headerKey(r *http.Request, names []string) string {
	for _, name := range names {
		value := r.Header.Get(name)
		if len(value) > maxHeaderKey {
			hash := sha256.Sum256([]byte(value))
			value = string(hash[:])
		}
		if value != "" {
			return name + ":" + value
		}
	}
	return ""
}
