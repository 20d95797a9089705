package integrations

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Customer is the owner of an API key.
type Customer struct {
	Class string // such as "gold"; without "/"
	Name  string
}

// Customers is a list of customers by the SHA-256 of their API keys. So the list does not
// contain the API keys, and the time of a look-up reveals nothing about them.
type Customers map[[sha256.Size]byte]Customer

// find returns the customer who has sent X-API-Key.
func (cs Customers) find(r *http.Request) (Customer, bool) {
	c, ok := cs[sha256.Sum256([]byte(r.Header.Get("X-API-Key")))]
	return c, ok
}

// Key is a function for httplimit.WithKey. A request with an unknown API key counts by
// its address, so guessed keys get no new buckets.
func (cs Customers) Key(r *http.Request) string {
	if c, ok := cs.find(r); ok {
		return c.Class + "/" + c.Name
	}
	return ""
}

// Require refuses requests with an unknown API key with 401. Put it outside the limiter
// if such requests should never be served.
func (cs Customers) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := cs.find(r); !ok {
			w.Header().Set("WWW-Authenticate", "ApiKey")
			http.Error(w, "unknown API key", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Classes is a limiter that asks another limiter for each class of customers. Use it
// with the keys of Customers.Key. It has no method Limits, so RateLimit-Policy has only
// the limit of the class that a request belongs to.
type Classes struct {
	ByName map[string]httplimit.Limiter
	Others httplimit.Limiter // of requests without a customer, and of classes that have no limiter
}

// Take asks the limiter of the key's class.
func (c Classes) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	if class, _, ok := strings.Cut(key, "/"); ok && c.ByName[class] != nil {
		return c.ByName[class].Take(ctx, key, cost)
	}
	return c.Others.Take(ctx, key, cost)
}
