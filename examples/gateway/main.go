// Command gateway is an HTTP server behind one token bucket: a read costs 1 token,
// an export 5. Every answer tells how much is left, and a refusal is a 429 whose
// Retry-After says when that very request will be admitted.
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
	"strconv"
	"time"

	"github.com/aa014e13/tokenbucket"
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
	bucket, err := tokenbucket.New(tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "10 tokens, one every 2 s; a read costs 1, an export 5. Try:\n"+
		"  curl -i http://%[1]s/read\n  curl -i http://%[1]s/export\nCtrl-C stops.\n", listener.Addr())

	server := &http.Server{Handler: newHandler(bucket), ReadHeaderTimeout: 10 * time.Second}
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

func newHandler(bucket *tokenbucket.Bucket) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /read", limit(bucket, 1, answer("a read")))
	mux.Handle("GET /export", limit(bucket, 5, answer("an export")))
	return mux
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) }
}

// limit admits a request if the bucket has its cost.
func limit(bucket *tokenbucket.Bucket, cost float64, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d := bucket.Take(cost)
		h := w.Header()
		h.Set("X-RateLimit-Limit", strconv.Itoa(int(d.Limit.Capacity)))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining(), 10))
		reset, _ := tokenbucket.RetryAfter(d.Reset())
		h.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
		if d.OK {
			next(w, r)
			return
		}
		if seconds, ok := d.RetryAfter(); ok {
			h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		}
		http.Error(w, fmt.Sprintf("too many requests: this one costs %v and will be admitted in %v", cost, d.Wait), http.StatusTooManyRequests)
	}
}
