// Command gateway is an HTTP server with a token bucket for every client: a read
// costs 1 token, an export 5. Every answer tells how much is left, and a refusal
// is a 429 whose Retry-After says when that very request will be admitted. At / is
// a page to try it on.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	var t terms
	flag.Float64Var(&t.limit.Capacity, "capacity", 10, "tokens that a client's bucket holds, a whole number")
	flag.Float64Var(&t.limit.RefillPerSec, "refill", 0.5, "tokens per second that flow into it")
	flag.Float64Var(&t.read, "read", 1, "what a read costs, in tokens")
	flag.Float64Var(&t.export, "export", 5, "what an export costs, in tokens")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("gateway: unexpected argument %q: everything is set by flags, see -help", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *addr, t, os.Stdout); err != nil {
		log.Fatalf("gateway: %v", err)
	}
}

// terms are what clients get, and for how much.
type terms struct {
	limit        tokenbucket.Limit
	read, export float64 // prices in tokens
}

// validate refuses what the header fields could not tell, or nobody would wait for.
// The prices are checked by httplimit.
func (t terms) validate() error {
	if t.limit.Capacity != math.Trunc(t.limit.Capacity) {
		return fmt.Errorf("capacity %v: choose a whole number of tokens: the header fields tell it in whole ones", t.limit.Capacity)
	}
	if err := t.limit.Validate(); err != nil {
		return err
	}
	const year = 365 * 24 * time.Hour
	if t.limit.Capacity/t.limit.RefillPerSec > year.Seconds() {
		return fmt.Errorf("refill %v: choose one that fills the bucket of %s within a year", t.limit.RefillPerSec, plain(t.limit.Capacity))
	}
	return nil
}

// plain writes numbers as people do: a million is not 1e+06.
func plain(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }

// serve answers requests until the context ends, then lets those under way finish.
func serve(ctx context.Context, addr string, t terms, out io.Writer) error {
	handler, err := newHandler(t, nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Every client has a bucket of capacity %[2]s, refilled at %[3]s a second; a read costs %[4]s, an export %[5]s. Try:\n"+
		"  http://%[1]s/ in a browser\n  curl -i http://%[1]s/read\n  curl -i http://%[1]s/export\nCtrl-C stops.\n",
		listener.Addr(), plain(t.limit.Capacity), plain(t.limit.RefillPerSec), plain(t.read), plain(t.export))

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

// newHandler makes the gateway on a clock; nil is the system's. The page costs
// nothing, and yet its header tells the level; what is nowhere costs 1.
func newHandler(t terms, clock tokenbucket.Clock) (http.Handler, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	clients, err := keyed.New[string](t.limit, keyed.WithMaxKeys(1_000_000), keyed.WithClock(clock))
	if err != nil {
		return nil, err
	}
	mux, costs := http.NewServeMux(), tokenbucket.Costs{}
	for _, r := range []struct {
		pattern string
		price   float64
		handler http.HandlerFunc
	}{
		{"GET /read", t.read, answer("a read")},
		{"GET /export", t.export, answer("an export")},
		{"GET /{$}", 0, t.servePage},
		{"GET /page/{file}", 0, servePageFile},
		{"GET /favicon.ico", 0, serveIcon},
	} {
		mux.Handle(r.pattern, r.handler)
		costs[r.pattern] = r.price
	}
	limit, err := httplimit.New(httplimit.PerKey(clients), httplimit.WithCosts(costs))
	if err != nil {
		return nil, err
	}
	return limit(mux), nil
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) }
}
