package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// sleepless is a clock for one goroutine. A sleep returns at once and advances the clock.
type sleepless struct{ now time.Time }

func (c *sleepless) Now() time.Time                  { return c.now }
func (c *sleepless) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func (c *sleepless) After(d time.Duration) <-chan time.Time {
	c.now = c.now.Add(d)
	rings := make(chan time.Time, 1)
	rings <- c.now
	return rings
}

// An API bans clients that send 30 requests in a minute or 300 in an hour. It answers the
// first request here with Retry-After: 60, so the request is sent again a minute later.
func ExampleTransport() {
	clock := &sleepless{}
	refused := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !refused {
			refused = true
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	url := server.URL

	// At most 29 requests in any minute, and 299 in any hour.
	bucket := tokenbucket.MustNew(tokenbucket.Within(29, time.Minute, 14),
		tokenbucket.WithLimit(tokenbucket.Within(299, time.Hour, 28)), tokenbucket.WithClock(clock))
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithRetries(3), httplimit.WithTransportClock(clock))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	answer, err := client.Get(url) // waits for its turn
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status, clock.Since(time.Time{}) >= time.Minute)
	// Output: 200 OK true
}

// This client sends at most two requests a second, and pauses if the server demands it.
func ExampleNewTransport() {
	clock := &sleepless{}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 2 {
			w.Header().Set("Retry-After", "30")
			http.Error(w, "too fast", http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	hosts, err := keyed.New[string](tokenbucket.Limit{Capacity: 1, RefillPerSec: 2}, keyed.WithClock(clock))
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := httplimit.NewTransport(hosts, httplimit.WithTransportClock(clock))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	for range 4 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(clock.Since(time.Time{}), resp.Status)
	}
	// Output:
	// 0s 200 OK
	// 500ms 429 Too Many Requests
	// 31s 200 OK
	// 31.5s 200 OK
}

// This API says "too fast" with a 500, and an export costs as much as five requests.
// Refused requests are sent again after the pause.
func ExampleAllHosts() {
	clock := &sleepless{}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			http.Error(w, "you have violated your query rate limit", http.StatusInternalServerError)
		}
	}))
	defer server.Close()

	bucket := tokenbucket.MustNew(tokenbucket.Within(29, time.Minute, 14), tokenbucket.WithClock(clock))
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket),
		httplimit.WithTransportCosts(tokenbucket.Costs{"GET /export": 5}),
		httplimit.WithTooFast(http.StatusInternalServerError),
		httplimit.WithDefaultPause(time.Minute),
		httplimit.WithRetries(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Minute}
	resp, err := client.Get(server.URL + "/export")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status, "after", asked, "attempts and more than a minute:", clock.Since(time.Time{}) > time.Minute)
	// Output: 200 OK after 2 attempts and more than a minute: true
}

// GitHub answers 403 for its secondary limits, and also for a missing permission. The
// function distinguishes them by a field and by the start of the body.
func ExampleWithTooFastFunc() {
	clock := &sleepless{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message := "Resource not accessible by integration"
		if r.URL.Path == "/search" {
			message = "You have exceeded a secondary rate limit."
		}
		http.Error(w, message, http.StatusForbidden)
	}))
	defer server.Close()

	isSecondaryLimit := func(resp *http.Response) bool {
		if resp.StatusCode != http.StatusForbidden {
			return false
		}
		if resp.Header.Get("Retry-After") != "" {
			return true
		}
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), "secondary rate limit")
	}
	bucket := tokenbucket.MustNew(tokenbucket.PerHour(5000), tokenbucket.WithClock(clock))
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket),
		httplimit.WithTooFastFunc(isSecondaryLimit),
		httplimit.WithDefaultPause(time.Minute),
		httplimit.WithTransportObserver(func(e httplimit.TransportEvent) {
			fmt.Printf("%s: %d, paused for %v, %q\n", e.Request.URL.Path, e.Status, e.Pause, e.Reason)
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	for _, path := range []string{"/private", "/search"} {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output:
	// /private: 403, paused for 0s, ""
	// /search: 403, paused for 1m0s, "default pause"
}

// The server reports that no tokens are left for 20 seconds. The client waits that long and
// is not refused.
func ExampleWithRateLimitFields() {
	clock := &sleepless{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", `"default";r=0;t=20`)
	}))
	defer server.Close()

	hosts, err := keyed.New[string](tokenbucket.PerSecond(1000), keyed.WithClock(clock))
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := httplimit.NewTransport(hosts, httplimit.WithTransportClock(clock),
		httplimit.WithRateLimitFields(),
		httplimit.WithTransportObserver(func(e httplimit.TransportEvent) {
			fmt.Printf("waited %v, answer %d, paused for %v: %s\n", e.Waited, e.Status, e.Pause, e.Reason)
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	for range 2 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output:
	// waited 0s, answer 200, paused for 20s: rate limit
	// waited 20.001s, answer 200, paused for 20s: rate limit
}
