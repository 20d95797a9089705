package httplimit_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// A gateway: a bucket for every client, an export costs 5 tokens, a read 1.
func ExampleNew() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5},
		keyed.WithMaxKeys(1_000_000), keyed.WithClock(clock.NewMock()))
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := httplimit.New(httplimit.PerKey(clients), httplimit.WithCosts(tokenbucket.Costs{"GET /export": 5}))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "here you are") }))

	for range 3 {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/export", nil))
		h := answer.Header()
		fmt.Printf("%d remaining %s, retry after %q\n", answer.Code, h.Get("X-RateLimit-Remaining"), h.Get("Retry-After"))
	}
	// Output:
	// 200 remaining 5, retry after ""
	// 200 remaining 0, retry after ""
	// 429 remaining 0, retry after "10"
}

func ExampleWithObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 0.5}, tokenbucket.WithClock(clock.NewMock()))
	limit, err := httplimit.New(httplimit.Shared(bucket), httplimit.WithObserver(func(e httplimit.Event) {
		if e.Err != nil {
			logger.Error("limiter failed", "err", e.Err)
		} else if !e.Decision.OK {
			logger.Warn("refused", "key", e.Key, "cost", e.Cost, "wait", e.Decision.Wait)
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.NotFoundHandler())
	for range 2 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	// Output: level=WARN msg=refused key=192.0.2.1 cost=1 wait=2s
}
