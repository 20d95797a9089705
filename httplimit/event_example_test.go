package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Each event has the limit and the limiter that refused the request. The names are those
// of WithPolicyNames.
func ExampleEvent() {
	clients, _ := twoEach()
	everybody := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 3, RefillPerSec: 0.25}, tokenbucket.WithClock(clock.NewMock()))
	limit, err := httplimit.New(httplimit.Both(clients, httplimit.Shared(everybody)),
		httplimit.WithPolicyNames("client", "everybody"), httplimit.WithKey(func(r *http.Request) string { return r.Header.Get("X-User") }),
		httplimit.WithObserver(func(e httplimit.Event) {
			if e.Refused {
				fmt.Println(e.Key, "refused by", e.Policy, "for", e.Decision.Wait, "- limiter", e.LimiterIndex)
			}
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		answerOf(limit, "X-User", user)
	}
	// Output:
	// ann refused by client for 2s - limiter 0
	// bob refused by everybody for 4s - limiter 1
}

// A language model has a limit for requests and one for words. A request takes one
// request and an estimate of the words. When the answer has arrived, the words are
// settled.
func ExampleAdmission() {
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1},
		tokenbucket.WithLimit(tokenbucket.Limit{Capacity: 1000, RefillPerSec: 100}), tokenbucket.WithClock(clock.NewMock()))
	limit, err := httplimit.New(httplimit.Shared(bucket), httplimit.WithAdmission(),
		httplimit.WithCostEach(func(*http.Request) []float64 { return []float64{1, 300} }))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		words, _ := strconv.ParseFloat(r.FormValue("words"), 64) // what the model answers
		admission := httplimit.AdmissionFromContext(r.Context())
		if more := words - admission.Costs[1]; more > 0 {
			err = admission.ChargeEach(r.Context(), 0, more)
		} else {
			err = admission.RefundEach(r.Context(), 0, -more)
		}
		fmt.Println(words, "words, error:", err, "- 1000 more have to wait", bucket.PeekEach(1, 1000).Wait)
	}))
	for _, words := range []string{"120", "700"} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/?words="+words, nil))
	}
	// Output:
	// 120 words, error: <nil> - 1000 more have to wait 1.2s
	// 700 words, error: <nil> - 1000 more have to wait 8.2s
}

// pausing starts a server that answers some requests with "too fast", and returns a client
// with an observer.
func pausing(observe func(httplimit.TransportEvent)) (client *http.Client, url string, stop func(), err error) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked++; asked {
		case 1:
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	clock := &sleepless{}
	bucket := tokenbucket.MustNew(tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}, tokenbucket.WithClock(clock))
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithTransportClock(clock),
		httplimit.WithRetries(1), httplimit.WithTransportObserver(observe))
	return &http.Client{Transport: transport}, server.URL, server.Close, err
}

// Each attempt has an event, with the time that it waited and the pause that its answer
// began.
func ExampleTransportEvent() {
	client, url, stop, err := pausing(func(e httplimit.TransportEvent) {
		fmt.Printf("attempt %d: answer %d, paused %v, waited for 30 s %v\n", e.Attempt, e.Status, e.Pause > 0, e.Waited >= 30*time.Second)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	resp, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// attempt 1: answer 429, paused true, waited for 30 s false
	// attempt 2: answer 200, paused false, waited for 30 s true
}

// This counts pauses by reason.
func ExamplePauseReason() {
	pauses := map[httplimit.PauseReason]int{}
	client, url, stop, err := pausing(func(e httplimit.TransportEvent) {
		if e.Pause > 0 {
			pauses[e.Reason]++
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	for range 2 {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	fmt.Println(pauses[httplimit.PausedByRetryAfter], "by Retry-After")
	fmt.Println(pauses[httplimit.PausedByDefault], "by a 429 without it")
	// Output:
	// 1 by Retry-After
	// 1 by a 429 without it
}
