// Command throttle is a reverse proxy that limits downloads to a number of bytes per
// second: for each client, and for all of them in total. On a terminal it shows a line of
// progress for each download. Without -upstream it passes requests to a server of its own,
// whose /bytes/N answers with N bytes, so you can try it offline.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:8081", "address to listen on")
	upstream := flag.String("upstream", "", "URL of the server behind the proxy; by default one that sends /bytes/N")
	client := flag.Float64("client", 500e3, "bytes per second for each client")
	total := flag.Float64("total", 800e3, "bytes per second for all clients together")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("throttle: unexpected argument %q: everything is set by flags, see -help", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := newProgress(os.Stdout, isTerminal(os.Stdout))
	if err := run(ctx, *addr, *upstream, iolimit.BytesPerSecond(*client), iolimit.BytesPerSecond(*total), out); err != nil {
		log.Fatalf("throttle: %v", err)
	}
}

// isTerminal reports whether a file is a terminal, where lines can be overwritten.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run serves the proxy until ctx ends, with a server of its own behind it if upstream is "".
func run(ctx context.Context, addr, upstream string, client, total tokenbucket.Limit, out *progress) error {
	if upstream == "" {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: newOrigin(), ReadHeaderTimeout: 10 * time.Second}
		go server.Serve(inner)
		defer server.Close()
		upstream = "http://" + inner.Addr().String()
	}
	target, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	handler, err := newThrottle(target, client, total, out)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	out.printf("%s per second for each client, %s for all together. Try, in several terminals:\n"+
		"  curl -o /dev/null http://%[3]s/bytes/5000000\n"+
		"  curl -o /dev/null --interface 127.0.0.2 http://%[3]s/bytes/5000000    (another client)\n"+
		"Ctrl-C stops.\n", size(client.RefillPerSec), size(total.RefillPerSec), listener.Addr())
	return serve(ctx, &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, listener, out)
}

// serve serves until ctx ends. Downloads under way have five seconds to finish.
func serve(ctx context.Context, server *http.Server, listener net.Listener, out *progress) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	go out.drawUntil(ctx)
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

// newOrigin returns the server behind the proxy that is used if there is no other.
func newOrigin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseUint(r.PathValue("n"), 10, 40)
		if err != nil {
			http.Error(w, fmt.Sprintf("%v: ask for a number of bytes, such as /bytes/5000000", err), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatUint(n, 10))
		_, _ = io.CopyN(w, zeros{}, int64(n)) // the client may go away
	})
	return mux
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
