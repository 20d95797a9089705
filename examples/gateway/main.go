// Command gateway is an HTTP server with a token bucket for every client: a read
// costs 1 token, an export 5. Every answer tells how much is left, and a refusal
// is a 429 whose Retry-After says when that very request will be admitted.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// serve answers requests until the context ends, then lets those under way finish.
func serve(ctx context.Context, addr string, out io.Writer) error {
	handler, err := newHandler(nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "10 tokens for every client, one every 2 s; a read costs 1, an export 5. Try:\n"+
		"  curl -i http://%[1]s/read\n  curl -i http://%[1]s/export\nCtrl-C stops.\n", listener.Addr())

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(out, "stopping")
	deadline, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(deadline)
}

// newHandler makes the gateway on a clock; nil is the system's.
func newHandler(clock tokenbucket.Clock) (http.Handler, error) {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5},
		keyed.WithMaxKeys(100_000), keyed.WithClock(clock))
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.PerKey(clients),
		httplimit.WithCosts(tokenbucket.Costs{"GET /read": 1, "GET /export": 5}))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /read", answer("a read"))
	mux.Handle("GET /export", answer("an export"))
	return limit(mux), nil
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) }
}
