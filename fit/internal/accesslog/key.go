package accesslog

import (
	"net/netip"
	"strings"
)

// keyMaker makes keys from fields. It remembers the latest fields, so that a frequent key
// is allocated once.
type keyMaker struct {
	isAddress bool
	known     map[string]string
}

// maxKnown bounds the fields that a keyMaker remembers: one /64 can hold any number of addresses.
const maxKnown = 1 << 16

func (m *keyMaker) make(field []byte) string {
	if key, ok := m.known[string(field)]; ok {
		return key
	}
	if m.known == nil || len(m.known) == maxKnown {
		m.known = map[string]string{}
	}
	text := string(field)
	key := text
	if m.isAddress {
		key = addressKey(text)
	}
	m.known[text] = key
	return key
}

// addressKey returns the key of an address, with or without a port: all of an IPv4 address,
// also if it is mapped to IPv6, and the /64 of an IPv6 address, without its zone. Any other
// text is its own key.
func addressKey(text string) string {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return text
		}
		address = withPort.Addr()
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	prefix, err := address.Prefix(64)
	if err != nil {
		return text
	}
	return prefix.String()
}
