package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// In this gateway every client has a bucket of 10 tokens, which gets one more every 2
// seconds. An export costs 5, any other request 1.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "here you are") })
	mux.HandleFunc("GET /read", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "read on") })

	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, keyed.WithMaxKeys(1_000_000), keyed.WithClock(clock.NewMock()))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.PerKey(clients), // the key is the client's address
		httplimit.WithCosts(tokenbucket.Costs{"GET /export": 5}))
	if err != nil {
		log.Fatal(err) // for example, a price above the capacity
	}
	handler := limit(mux) // for http.ListenAndServe

	for _, path := range []string{"/export", "/read", "/export"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		h := answer.Header()
		fmt.Printf("%s %d %s retry after %q\n", path, answer.Code, h.Get("RateLimit"), h.Get("Retry-After"))
	}
	fmt.Println(clients.Tokens("192.0.2.1"), "tokens left") // httptest's client
	// Output:
	// /export 200 "default";r=5;t=10 retry after ""
	// /read 200 "default";r=4;t=8 retry after ""
	// /export 429 "default";r=4;t=2 retry after "2"
	// 4 tokens left
}

// A client that its own bucket refuses takes nothing from the shared one. A client that the
// shared bucket refuses gets its own tokens back.
func ExampleBoth() {
	mock := clock.NewMock()
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}, keyed.WithClock(mock))
	if err != nil {
		log.Fatal(err)
	}
	everybody := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.25}, tokenbucket.WithClock(mock))
	limit, err := httplimit.New(httplimit.Both(httplimit.PerKey(clients), httplimit.Shared(everybody)),
		httplimit.WithPolicyNames("client", "everybody"))
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.NotFoundHandler())
	for _, client := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"} {
		request := httptest.NewRequest("GET", "/", nil)
		request.RemoteAddr = client + ":1234"
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		fmt.Println(client, answer.Code, answer.Header().Get("RateLimit"))
	}
	fmt.Println(clients.Tokens("192.0.2.2"), "left for 192.0.2.2")
	// Output:
	// 192.0.2.1 404 "client";r=1;t=1
	// 192.0.2.1 404 "client";r=0;t=1
	// 192.0.2.1 429 "client";r=0;t=1
	// 192.0.2.2 404 "everybody";r=0;t=4
	// 192.0.2.2 429 "everybody";r=0;t=4
	// 1 left for 192.0.2.2
}

// Refusals and failures in the log.
func ExampleWithObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	observe := func(e httplimit.Event) {
		if e.Err != nil {
			logger.Error("limiter failed", "err", e.Err)
		}
		if e.Refused {
			logger.Warn("refused", "path", e.Request.URL.Path, "key", e.Key, "cost", e.Cost, "wait", e.Decision.Wait)
		}
	}
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.5}, tokenbucket.WithClock(clock.NewMock()))
	limit, err := httplimit.New(httplimit.Shared(bucket), httplimit.WithObserver(observe))
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.NotFoundHandler())
	for range 2 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/export", nil))
	}
	// Output: level=WARN msg=refused path=/export key=192.0.2.1 cost=1 wait=2s
}

// An upload declares bytes for 6 tokens, but has bytes for 2.
func ExampleWithAdmission() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, keyed.WithClock(clock.NewMock()))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.PerKey(clients), httplimit.WithAdmission(),
		httplimit.WithCost(func(r *http.Request) float64 { return float64(r.ContentLength) }))
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		read, _ := io.Copy(io.Discard, io.LimitReader(r.Body, 2))
		admission := httplimit.AdmissionFromContext(r.Context())
		if err := admission.Refund(r.Context(), admission.Cost-float64(read)); err != nil {
			log.Print(err)
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader("upload")))
	fmt.Println(clients.Tokens("192.0.2.1"), "tokens left")
	// Output: 8 tokens left
}

// There are two keys: the user's limit is outside, the tenant's limit is inside. The
// lists have both items; X-RateLimit has the values with less remaining.
func ExampleNew_twoKeys() {
	mock := clock.NewMock()
	users, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, keyed.WithClock(mock))
	if err != nil {
		log.Fatal(err)
	}
	tenants, err := keyed.New[string](tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}, keyed.WithClock(mock))
	if err != nil {
		log.Fatal(err)
	}
	byUser, err := httplimit.New(httplimit.PerKey(users), httplimit.WithKeyHeader("X-User"), httplimit.WithPolicyNames("user"))
	if err != nil {
		log.Fatal(err)
	}
	byTenant, err := httplimit.New(httplimit.PerKey(tenants), httplimit.WithKeyHeader("X-Tenant"), httplimit.WithPolicyNames("tenant"))
	if err != nil {
		log.Fatal(err)
	}
	handler := byUser(byTenant(http.NotFoundHandler()))
	request := httptest.NewRequest("GET", "/", nil)
	request.Header.Set("X-User", "alice")
	request.Header.Set("X-Tenant", "blue")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	fmt.Println("RateLimit:", answer.Header().Get("RateLimit"))
	fmt.Println("X-RateLimit-Remaining:", answer.Header().Get("X-RateLimit-Remaining"))
	// Output:
	// RateLimit: "user";r=9;t=9, "tenant";r=2;t=2
	// X-RateLimit-Remaining: 2
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
