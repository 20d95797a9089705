// Command polite is a client of an API that bans whoever hammers it: every
// request, login included, passes one limiter. First it sends a dozen requests to
// a stand-in server in real time; then it lives through a day of a greedy client
// on a virtual clock, with the limits that the API demands and without each.
package main

import (
	"context"
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
)

func main() {
	burst := flag.Float64("burst", 30, "how many requests may go out at once")
	flag.Parse()
	if err := fetch(os.Stdout, *burst); err != nil {
		log.Fatal(err)
	}
	fmt.Println()
	liveThroughDays(os.Stdout)
}

// fetch sends a dozen requests through one bucket and prints when each went out.
func fetch(out io.Writer, burst float64) error {
	bucket, err := tokenbucket.New(tokenbucket.Limit{Capacity: burst, RefillPerSec: 0.5})
	if err != nil {
		return err
	}
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()

	start := time.Now()
	for i := range 12 {
		path := "/login"
		if i > 0 {
			path = fmt.Sprintf("/satellites/%d", i)
		}
		before := time.Now()
		if err := bucket.Wait(context.Background(), 1); err != nil {
			return err
		}
		sent := time.Now()
		answer, err := http.Get(server.URL + path)
		if err != nil {
			return err
		}
		answer.Body.Close()
		fmt.Fprintf(out, "%6.2f s  waited %5.2f s  %s %s\n", sent.Sub(start).Seconds(), sent.Sub(before).Seconds(), path, answer.Status)
	}
	fmt.Fprintf(out, "the server counted %d requests\n", served.Load())
	return nil
}
