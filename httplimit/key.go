package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// WithKey sets the function that returns the key of a request: requests with the same
// key share what a Limiter has for it. The function is called by any number of
// goroutines. It overrides WithKeyHeader and WithAPIKey.
//
// A request for which it returns "" counts by its address, as the options about
// addresses say, under a key that begins with "!address:". No key that the function
// returns can be the same: one that begins with "!" gets another "!" in front. By default,
// and for nil, the key is the peer's address: an IPv4 address whole, an IPv6 address by
// its first 64 bits, without port and zone.
func WithKey(key func(*http.Request) string) Option {
	return serverOption(func(c *config) { c.keyFunc = key })
}

// WithKeyHeader takes the value of a header field as the key, for example a tenant's
// name: of the fields named here and by WithAPIKey, in order, the first that a request
// has and that is not empty. A request without any counts by its address. Host is the
// name of the server that the client asked for.
//
// The key is the name of the field, a colon and the value. It is never the same as the key
// of an address. The key of a field whose name begins with "!" gets another "!" in front.
// A key of an address that begins with one of the fields' names and a colon gets
// "!address:" in front.
//
// A value of more than 64 bytes counts by its SHA-256, so that no key is longer.
// Clients that may send any value have any number of full buckets: let a layer that
// checks the value come before this one, or bound the number of keys. A name that is not
// one of a header field is an ErrInvalidOption. By default, no field counts.
func WithKeyHeader(names ...string) Option {
	return withKeyHeaders(names, false)
}

// WithAPIKey is WithKeyHeader for secrets: the key is made of the SHA-256 of the
// value, so that the secret is neither in logs nor in a store. Of Authorization
// only what follows the scheme counts. It is of no use for schemes that sign every
// request anew. By default, no field counts.
func WithAPIKey(names ...string) Option {
	return withKeyHeaders(names, true)
}

func withKeyHeaders(names []string, secret bool) Option {
	return serverOption(func(c *config) {
		for _, name := range names {
			c.keyHeaders = append(c.keyHeaders, newKeyHeader(name, secret))
		}
	})
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

// ofAddress is in front of the key of an address that could also be another kind of key.
// No key of another kind begins with it: see doubleMark.
const ofAddress = "!address:"

// ownOrAddress returns the key of a request for which a function returned own: the key of
// its address if own is "".
func (c *config) ownOrAddress(own string, r *http.Request) string {
	if own == "" {
		return ofAddress + c.addresses.key(r)
	}
	return doubleMark(own)
}

// doubleMark puts another "!" in front of a key that begins with "!".
func doubleMark(key string) string {
	if strings.HasPrefix(key, "!") {
		return "!" + key
	}
	return key
}

// maxKeyLen bounds what a key of a header field makes the buckets remember, in bytes.
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
