// Command polite is a client of an API that bans clients that send too many requests.
// Every request, login included, passes one limiter behind the http.Client. First the
// program sends a dozen requests to a server of its own, in real time. Then it simulates a
// day of a client that always has something to fetch, on a virtual clock: with both limits
// of the API, and with one of them missing.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

func main() {
	burst := flag.Float64("burst", 30, "how many requests may be sent at once")
	flag.Parse()
	if err := fetch(os.Stdout, *burst); err != nil {
		log.Fatal(err)
	}
	fmt.Println()
	liveThroughDays(os.Stdout)
}

// fetch sends a dozen requests through one client and prints when each was sent.
func fetch(out io.Writer, burst float64) error {
	bucket, err := tokenbucket.New(tokenbucket.Limit{Capacity: burst, RefillPerSec: 0.5})
	if err != nil {
		return err
	}
	transport, err := httplimit.NewTransport(httplimit.AllHosts(bucket),
		httplimit.WithTooFast(http.StatusInternalServerError), // such an API answers 500 to a client that is too fast
		httplimit.WithLongestPause(24*time.Hour))              // by default, a Retry-After of more than 5 minutes is obeyed for only 5 minutes
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	const requests = 12
	arrivals := make(chan time.Time, 1)
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served.Add(1)
		arrivals <- time.Now()
	}))
	defer server.Close()

	start := time.Now()
	for i := range requests {
		path := "/login"
		if i > 0 {
			path = fmt.Sprintf("/satellites/%d", i)
		}
		before := time.Now()
		answer, err := client.Get(server.URL + path)
		if err != nil {
			return err
		}
		answer.Body.Close()
		arrived := <-arrivals
		fmt.Fprintf(out, "%6.2f s  waited %5.2f s  %s %s\n", arrived.Sub(start).Seconds(), arrived.Sub(before).Seconds(), path, answer.Status)
	}
	fmt.Fprintf(out, "the server counted %d requests\n", served.Load())
	return nil
}
