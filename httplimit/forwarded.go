package httplimit

import (
	"net/netip"
	"strings"
)

// cutLastForwarded cuts the last element off a Forwarded list (RFC 7239, section 4),
// in which quoted strings may have commas. It reads from the right, so that the element
// of the nearest proxy does not depend on the text before it. So a quote that a client
// has opened and not closed cannot hide that element.
func cutLastForwarded(list string) (rest, last string, more bool) {
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case ',':
			return list[:i], list[i+1:], true
		case '"':
			i = openingQuote(list, i)
		}
	}
	return "", list, false
}

// openingQuote returns the index of the quote that opens the string that ends at the
// closing quote, -1 if there is none. A quote after an odd number of backslashes
// belongs to the string's text.
func openingQuote(s string, closing int) int {
	for i := closing - 1; i >= 0; i-- {
		if s[i] == '"' && trailingBackslashes(s[:i])%2 == 0 {
			return i
		}
	}
	return -1
}

func trailingBackslashes(s string) int { return len(s) - len(strings.TrimRight(s, `\`)) }

// parseForwarded returns the address in the "for" parameter of an element.
func parseForwarded(element string) (addr netip.Addr, ok bool) {
	for more := true; more; {
		var pair string
		pair, element, more = cutPair(element)
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(trim(name), "for") {
			continue
		}
		if ok { // "for" may occur only once
			return netip.Addr{}, false
		}
		if addr, ok = parseNode(trim(value)); !ok {
			return netip.Addr{}, false
		}
	}
	return addr, ok
}

// cutPair cuts the first parameter off an element, at a semicolon outside quotes.
func cutPair(element string) (pair, rest string, more bool) {
	quoted := false
	for i := 0; i < len(element); i++ {
		switch c := element[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted:
			return element[:i], element[i+1:], true
		}
	}
	return element, "", false
}

// parseNode reads an address with an optional port, quoted or not (RFC 7239, section 6).
// A port may be an obfuscated one, such as "_hidden".
func parseNode(node string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(node, `"`); ok {
		if node, ok = strings.CutSuffix(inner, `"`); !ok {
			return netip.Addr{}, false
		}
	}
	if host, port, ok := cutLastColon(node); ok && strings.HasPrefix(port, "_") {
		node = host
	}
	return parseAddr(node)
}

func cutLastColon(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
