// Command gateway is an HTTP server with a token bucket for every client: a read
// costs 1 token, an export 5. Every answer reports how many tokens are left. A refusal
// is a 429 whose Retry-After says when the same request will be admitted. The page at /
// sends requests and draws the bucket.
package main

import (
	"context"
	"errors"
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
	"sync"
	"syscall"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	var t terms
	flag.Float64Var(&t.limit.Capacity, "capacity", 10, "most tokens that a client's bucket holds, a whole number")
	flag.Float64Var(&t.limit.RefillPerSec, "refill", 0.5, "tokens per second that flow into each bucket")
	flag.Float64Var(&t.read, "read", 1, "price of a read, in tokens")
	flag.Float64Var(&t.export, "export", 5, "price of an export, in tokens")
	flag.StringVar(&t.state, "state", "", "`file` that keeps the buckets over a restart; empty for none")
	flag.DurationVar(&t.saveEvery, "save-every", 5*time.Second, "how often to write the state file")
	flag.BoolVar(&t.showClients, "show-clients", false, "list the most limited clients on the page even if others can reach this server")
	flag.StringVar(&t.metrics, "metrics", "", "`address` to serve metrics for Prometheus at, in /metrics; empty for none")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("gateway: unexpected argument %q: everything is set by flags, see -help", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, t, os.Stdout); err != nil {
		log.Fatalf("gateway: %v", err)
	}
}

// terms are the limit and prices of clients, and the settings of the server.
type terms struct {
	limit        tokenbucket.Limit
	read, export float64 // prices in tokens

	state       string        // a file; "" for none
	saveEvery   time.Duration // how often it is written
	showClients bool          // on the page

	metrics string                // an address; "" for none
	observe func(httplimit.Event) // of each request; nil for none
}

// validate checks that the header fields can report the terms, and that they make sense.
// The prices are checked by httplimit.
func (t terms) validate() error {
	if t.limit.Capacity != math.Trunc(t.limit.Capacity) {
		return fmt.Errorf("capacity %v: choose a whole number of tokens, as the header fields report it", t.limit.Capacity)
	}
	if err := t.limit.Validate(); err != nil {
		return err
	}
	const year = 365 * 24 * time.Hour
	if t.state != "" && t.saveEvery <= 0 {
		return fmt.Errorf("save-every %v: choose more than 0", t.saveEvery)
	}
	if t.limit.Capacity/t.limit.RefillPerSec > year.Seconds() {
		return fmt.Errorf("refill %v: choose one that fills the bucket of %s within a year", t.limit.RefillPerSec, plain(t.limit.Capacity))
	}
	return nil
}

// plain writes a number without an exponent: 1000000, not 1e+06.
func plain(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }

// serve answers requests until the context ends. Then it waits for the requests under
// way, and saves the buckets.
func serve(ctx context.Context, addr string, t terms, out io.Writer) (err error) {
	if err := t.validate(); err != nil {
		return err
	}
	clients, err := newClients(t.limit, nil)
	if err != nil {
		return err
	}
	file := stateFile{t.state, clients}
	if t.state != "" {
		if err := file.load(); err != nil {
			return err
		}
	}
	if t.metrics != "" {
		m := &metrics{keys: clients.Len}
		stop, err := m.start(t.metrics, out)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }() // the process ends anyway
		t.observe = m.observe
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	t.showClients = t.showClients || listener.Addr().(*net.TCPAddr).IP.IsLoopback()
	handler, err := newHandler(t, clients)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	printUsage(out, listener.Addr(), t)
	if t.state == "" {
		return serveOn(ctx, listener, handler, out)
	}
	saving, stopSaving := context.WithCancel(ctx)
	var saver sync.WaitGroup
	saver.Go(func() {
		file.saveEvery(saving, t.saveEvery, func(err error) {
			log.Printf("gateway: could not save the buckets: %v: check the folder of -state", err)
		})
	})
	err = serveOn(ctx, listener, handler, out)
	stopSaving()
	saver.Wait()
	return errors.Join(err, file.save())
}

func printUsage(out io.Writer, addr net.Addr, t terms) {
	fmt.Fprintf(out, "Every client has a bucket of capacity %[2]s, refilled at %[3]s a second; a read costs %[4]s, an export %[5]s. Try:\n"+
		"  http://%[1]s/ in a browser\n  curl -i http://%[1]s/read\n  curl -i http://%[1]s/export\nCtrl-C stops.\n",
		addr, plain(t.limit.Capacity), plain(t.limit.RefillPerSec), plain(t.read), plain(t.export))
}

// serveOn serves until the context ends. Requests under way then have five seconds to finish.
func serveOn(ctx context.Context, listener net.Listener, handler http.Handler, out io.Writer) error {
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
	if err := server.Shutdown(deadline); err != nil {
		return server.Close() // a browser may have opened a connection for a later request
	}
	return nil
}

// newClients makes the buckets on a clock; nil is the system clock.
func newClients(limit tokenbucket.Limit, clock tokenbucket.Clock) (*keyed.Buckets[string], error) {
	return keyed.New[string](limit, keyed.WithMaxKeys(1_000_000), keyed.WithClock(clock))
}

// route is a request that the gateway answers, and its price in tokens.
type route struct {
	pattern string
	price   float64
	handler http.HandlerFunc
}

// newHandler makes the gateway. The page costs 0, and its header fields report the level.
// A path that does not exist costs 1.
func newHandler(t terms, clients *keyed.Buckets[string]) (http.Handler, error) {
	mux, costs := http.NewServeMux(), tokenbucket.Costs{}
	routes := []route{
		{"GET /read", t.read, answer("a read")},
		{"GET /export", t.export, answer("an export")},
		{"GET /{$}", 0, t.servePage},
		{"GET /page/{file}", 0, servePageFile},
		{"GET /favicon.ico", 0, serveIcon},
	}
	if t.showClients {
		list := &limitedClients{clients: clients, now: time.Now}
		routes = append(routes, route{"GET /clients", 0, list.ServeHTTP})
	}
	for _, r := range routes {
		mux.Handle(r.pattern, r.handler)
		costs[r.pattern] = r.price
	}
	limit, err := httplimit.New(httplimit.PerKey(clients), httplimit.WithCosts(costs), httplimit.WithObserver(t.observe))
	if err != nil {
		return nil, err
	}
	return limit(mux), nil
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) }
}
