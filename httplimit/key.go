package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// WithKey sets the function that returns the key of a request. Requests with the same
// key share a bucket of the Limiter. The function is called by any number of goroutines.
// WithKey overrides WithKeyHeader and WithAPIKey.
//
// If the function returns "", the request counts by its address, as the options about
// addresses say. The key is then "!address:" and the address. A key that the function
// returns never equals such a key: if it begins with "!", it gets another "!" in front.
// By default, and for nil, the key is the peer's address without port and zone: all of
// an IPv4 address, the first 64 bits of an IPv6 address.
func WithKey(key func(*http.Request) string) Option {
	return serverOption(func(c *config) { c.keyFunc = key })
}

// WithKeyHeader makes the key from the value of a header field, for example a tenant's
// name. If several fields are named, here or by WithAPIKey, the first one that is not
// empty counts. A request without any of them counts by its address. The name "Host"
// stands for the host of the request.
//
// The key is the name of the field, a colon and the value. It is never the same as the key
// of an address. The key of a field whose name begins with "!" gets another "!" in front.
// An address could begin like the key of a field: if the field is named 2001, the address
// 2001:db8::1 does. The key of such an address gets "!address:" in front.
//
// A value of more than 64 bytes is replaced by the first 128 bits of its SHA-256, in
// hexadecimal. A client that may send any value gets a full bucket for each: let an outer
// layer check the value, or bound the number of keys. A name that no header field can have
// is an ErrInvalidOption. By default, no field is read.
func WithKeyHeader(names ...string) Option {
	return withKeyHeaders(names, false)
}

// WithAPIKey is like WithKeyHeader, for secrets. Instead of the value, the key contains
// the first 128 bits of its SHA-256, in hexadecimal. So the secret is neither in logs nor
// in a store. Of the field Authorization, only the part after the scheme counts. Do not
// use WithAPIKey for schemes that sign each request: each request would have its own key.
// By default, no field is read.
func WithAPIKey(names ...string) Option {
	return withKeyHeaders(names, true)
}

func withKeyHeaders(names []string, secret bool) Option {
	var headers []keyHeader
	for _, name := range names {
		headers = append(headers, newKeyHeader(name, secret))
	}
	return serverOption(func(c *config) { c.keyHeaders = append(c.keyHeaders, headers...) })
}

// key returns the key of a request.
func (c *config) key(r *http.Request) string {
	if c.keyFunc != nil {
		return c.ownOrAddress(c.keyFunc(r), r)
	}
	for _, h := range c.keyHeaders {
		if key := h.key(r); key != "" {
			return key
		}
	}
	address := c.addresses.key(r)
	for _, h := range c.keyHeaders {
		if strings.HasPrefix(address, h.prefix) {
			return ofAddress + address
		}
	}
	return address
}

// ofAddress is put in front of an address where the address could equal a key of another
// kind. No key of another kind begins with ofAddress: see doubleMark.
const ofAddress = "!address:"

// ownOrAddress returns the key of a request for which a function returned own: the key of
// its address if own is "".
func (c *config) ownOrAddress(own string, r *http.Request) string {
	if own == "" {
		return ofAddress + c.addresses.key(r)
	}
	return doubleMark(own)
}

// doubleMark returns a key, with one more "!" in front if the key begins with "!". So a single
// "!" marks addresses only. The argument may also be only the beginning of a key.
func doubleMark(key string) string {
	if strings.HasPrefix(key, "!") {
		return "!" + key
	}
	return key
}

// maxKeyLen is the length, in bytes, of the longest field value that is used as a key
// unchanged. It bounds the memory that a client can fill.
const maxKeyLen = 64

// keyHeader is a header field whose value is a key.
type keyHeader struct {
	name   string // canonical
	prefix string // of its keys: the name and a colon
	secret bool
}

func newKeyHeader(name string, secret bool) keyHeader {
	name = http.CanonicalHeaderKey(name)
	return keyHeader{name, doubleMark(name) + ":", secret}
}

// key returns the key of a request that has the field, "" if the value is empty.
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
	return k.prefix + value
}

// credentials returns a secret without the scheme that precedes it in Authorization, so
// that "Bearer" and "bearer" make no difference.
func credentials(name, value string) string {
	if name == "Authorization" {
		if _, rest, ok := strings.Cut(value, " "); ok {
			return strings.TrimLeft(rest, " ")
		}
	}
	return value
}

// digest returns the first 128 bits of a text's SHA-256, in hexadecimal, and "" for "".
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
