// Command gateway is one service on two ports, as on two machines: both share their
// clients' buckets on one Redis, so a client that uses both gets no more than any other
// client. A read costs 1 token, an export 5.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

func main() {
	addrs := flag.String("addr", "127.0.0.1:8081,127.0.0.1:8082", "addresses to listen on")
	server := flag.String("redis", "127.0.0.1:6379", "address of a Redis or Valkey")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, strings.Split(*addrs, ","), *server, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// serve answers requests on all addresses until the context ends.
func serve(ctx context.Context, addrs []string, server string, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, len(addrs))
	for i, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: server}) // each service has its own client, as on another machine
		defer client.Close()
		if err := client.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("no Redis at %s: start one with: redis-server --save '': %w", server, err)
		}
		handler, err := newHandler(client, fmt.Sprint("machine ", i+1), len(addrs))
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "curl -i http://%s/export\n", listener.Addr())
		go func() { failed <- serveOne(ctx, listener, handler) }()
	}
	fmt.Fprintln(out, "Each client has 10 tokens, and gets one every 2 s, on both ports together. Ctrl-C stops.")
	var errs []error
	for range addrs {
		errs = append(errs, <-failed)
		stop()
	}
	return errors.Join(errs...)
}

// serveOne serves until ctx ends. Requests under way have five seconds to finish.
func serveOne(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(deadline); err != nil {
		return server.Close()
	}
	return nil
}

// newHandler returns the service of one of several machines. While Redis does not answer,
// each machine has its share of the limit.
func newHandler(client redis.UniversalClient, name string, machines int) (http.Handler, error) {
	limit := tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}
	share := tokenbucket.Limit{Capacity: limit.Capacity / float64(machines), RefillPerSec: limit.RefillPerSec / float64(machines)}
	local, err := keyed.New[string](share, keyed.WithMaxKeys(100_000))
	if err != nil {
		return nil, err
	}
	buckets, err := redisbucket.New(client, limit,
		redisbucket.WithPrefix("gateway:"),
		redisbucket.WithFallback(local),
		redisbucket.WithErrorHandler(func(err error) { log.Print(name, ": ", err) }))
	if err != nil {
		return nil, err
	}
	limited, err := httplimit.New(buckets, httplimit.WithCosts(tokenbucket.Costs{"GET /export": 5}))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /read", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a read by", name) })
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "an export by", name) })
	return limited(mux), nil
}
