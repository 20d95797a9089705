package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// twoEach returns a limiter with 2 tokens for each client, whose clock stands still.
func twoEach() (httplimit.Refunder, *keyed.Buckets[string]) {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 0.5}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		panic(err)
	}
	return httplimit.PerKey(clients), clients
}

// answerOf sends a request with one header field to a limited handler.
func answerOf(limit func(http.Handler) http.Handler, name, value string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil) // from 192.0.2.1
	if name != "" {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })).ServeHTTP(w, r)
	return w
}

// The key is the user that an outer layer has found. Requests without one count by
// their address.
func ExampleWithKey() {
	limiter, clients := twoEach()
	limit, err := httplimit.New(limiter, httplimit.WithKey(func(r *http.Request) string {
		user, _, _ := r.BasicAuth() // checked by the layer outside
		return user
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		fmt.Println(answerOf(limit, "Authorization", "Basic YWxpY2U6c2VjcmV0").Code)
	}
	fmt.Println(answerOf(limit, "", "").Code, clients.Tokens("alice"), clients.Tokens("!address:192.0.2.1"))
	// Output:
	// 204
	// 204
	// 429
	// 204 0 1
}

// The key contains a hash, so that secrets are not in logs or in a store.
func ExampleWithAPIKey() {
	limiter, _ := twoEach()
	limit, err := httplimit.New(limiter, httplimit.WithAPIKey("X-API-Key"),
		httplimit.WithObserver(func(e httplimit.Event) { fmt.Println(strings.Contains(e.Key, "secret"), e.Decision.Remaining()) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	answerOf(limit, "X-API-Key", "secret")
	answerOf(limit, "X-API-Key", "secret")
	answerOf(limit, "X-API-Key", "another")
	// Output:
	// false 1
	// false 0
	// false 1
}

// Behind a load balancer the client's address is in X-Forwarded-For. Addresses that the
// client itself wrote there, on the left, do not count.
func ExampleWithTrustedProxies() {
	limiter, _ := twoEach()
	limit, err := httplimit.New(limiter,
		httplimit.WithTrustedProxies(netip.MustParsePrefix("192.0.2.0/24")),
		httplimit.WithObserver(func(e httplimit.Event) { fmt.Println(e.Key) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	answerOf(limit, "X-Forwarded-For", "203.0.113.7")
	answerOf(limit, "X-Forwarded-For", "1.1.1.1, 203.0.113.7")
	answerOf(limit, "", "")
	// Output:
	// 203.0.113.7
	// 203.0.113.7
	// 192.0.2.1
}

// down is a limiter whose store does not answer. Any type with such a Take is a Limiter.
type down struct{}

func (down) Take(context.Context, string, float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision{}, errors.New("the store does not answer")
}

func ExampleLimiter() {
	var limiter httplimit.Limiter = down{}
	limit, err := httplimit.New(limiter)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answerOf(limit, "", "").Code, "by default, requests are admitted if the limiter fails")
	// Output: 204 by default, requests are admitted if the limiter fails
}

// While the store is down each process limits by itself.
func ExampleWithFallback() {
	local, _ := twoEach()
	limit, err := httplimit.New(down{}, httplimit.WithFallback(local),
		httplimit.WithObserver(func(e httplimit.Event) { fmt.Println(e.Err, "- fallback:", e.Fallback, "refused:", e.Refused) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		answerOf(limit, "", "")
	}
	// Output:
	// the store does not answer - fallback: true refused: false
	// the store does not answer - fallback: true refused: false
	// the store does not answer - fallback: true refused: true
}

// Use WithFailClosed if an unlimited request does more harm than a refused one.
func ExampleWithFailClosed() {
	limit, err := httplimit.New(down{}, httplimit.WithFailClosed(5*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := answerOf(limit, "", "")
	fmt.Println(answer.Code, answer.Header().Get("Retry-After"))
	// Output: 503 5
}

// Before you enforce a limit, find out which clients it would refuse.
func ExampleWithReportOnly() {
	limiter, _ := twoEach()
	limit, err := httplimit.New(limiter, httplimit.WithReportOnly(),
		httplimit.WithObserver(func(e httplimit.Event) {
			if e.Refused {
				fmt.Println("would refuse", e.Key)
			}
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		fmt.Println(answerOf(limit, "", "").Code)
	}
	// Output:
	// 204
	// 204
	// would refuse 192.0.2.1
	// 204
}

// WithRefusal answers in the form that the clients of an API know. When it is called, the
// header fields have been set.
func ExampleWithRefusal() {
	limiter, _ := twoEach()
	limit, err := httplimit.New(limiter,
		httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request, d tokenbucket.Decision) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintf(w, `{"error": "rate_limited", "retry_after_ms": %d}`, d.Wait.Milliseconds())
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		answerOf(limit, "", "")
	}
	answer := answerOf(limit, "", "")
	fmt.Println(answer.Code, answer.Body, answer.Header().Get("Retry-After"))
	// Output: 429 {"error": "rate_limited", "retry_after_ms": 2000} 2
}
