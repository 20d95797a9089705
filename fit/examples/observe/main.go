// Command observe serves requests, refuses none, and writes one line of JSON for each to
// standard output. fitlimit reads these lines. Run the server for a day, then choose a
// limit.
//
//	go run ./examples/observe > requests.jsonl
//	go run ./cmd/fitlimit -format json -time ts -key key -cost cost requests.jsonl
//	go run ./cmd/fitlimit -format json -time ts -key key -cost cost -try 10,0.5 requests.jsonl
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	handler, err := newHandler(os.Stdout)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*addr, handler))
}

// newHandler returns a server whose requests are written to out. The limit of its buckets
// does not matter, since WithReportOnly admits everything.
func newHandler(out io.Writer) (http.Handler, error) {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, keyed.WithMaxKeys(1_000_000))
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.PerKey(clients),
		httplimit.WithCosts(tokenbucket.Costs{"GET /export": 5}),
		httplimit.WithReportOnly(), httplimit.WithObserver(newObserver(out)))
	if err != nil {
		return nil, err
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })), nil
}

// newObserver returns an observer that writes a line for each request. The lines hold
// addresses: treat them as personal data.
func newObserver(out io.Writer) func(httplimit.Event) {
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	return func(e httplimit.Event) {
		mu.Lock()
		defer mu.Unlock()
		err := encoder.Encode(struct {
			TS     time.Time `json:"ts"`
			Key    string    `json:"key"`
			Cost   float64   `json:"cost"`
			Method string    `json:"method"`
			Path   string    `json:"path"`
		}{time.Now(), e.Key, e.Cost, e.Request.Method, e.Request.URL.Path})
		if err != nil {
			log.Print(err)
		}
	}
}
