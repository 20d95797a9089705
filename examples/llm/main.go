// Command llm sends requests to a language-model API that limits requests and tokens per
// minute. Eight workers share one bucket with both limits. Each worker estimates the
// tokens that its request will use, waits for request and tokens together, and afterwards
// settles the difference to the tokens that the answer reports.
//
// The API is simulated on this machine. It runs on a clock that is faster than the real
// one, so a few seconds show minutes. Ctrl-C stops.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
)

func main() {
	log.SetFlags(0)
	minutes := flag.Float64("minutes", 5, "minutes to run, by the fast clock")
	speed := flag.Float64("speed", 60, "how many times faster the clock is than the real one")
	workers := flag.Int("workers", 8, "how many requests may be on their way at once")
	flag.Parse()
	if !(*minutes > 0 && *speed > 0 && *workers > 0) {
		log.Fatal("llm: -minutes, -speed and -workers must be above 0")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// The context has no deadline: that would be in real time, but the waits of the bucket are in
	// fast time. So Wait would fail although the tokens come before the deadline.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	time.AfterFunc(time.Duration(*minutes / *speed * float64(time.Minute)), cancel)
	if err := serve(ctx, *workers, newFastClock(*speed), os.Stdout); err != nil {
		log.Fatalf("llm: %v", err)
	}
}

// perMinute holds the limits of the API: 60 requests and 40,000 tokens a minute.
var perMinute = tokenbucket.Limits{tokenbucket.PerMinute(60), tokenbucket.PerMinute(40_000)}

// serve starts the simulated API, runs the workers until ctx ends, and prints how much
// they used.
func serve(ctx context.Context, workers int, clock tokenbucket.Clock, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newAPI(perMinute, clock, 1)}
	go server.Serve(listener)
	defer server.Close()

	c, err := newClient(http.DefaultTransport, "http://"+listener.Addr().String(), perMinute, clock)
	if err != nil {
		return err
	}
	stopProgress := showProgress(c, out)
	err = run(ctx, c, workers)
	stopProgress()
	fmt.Fprintln(out, c.report())
	return err
}

// run lets workers send requests until ctx ends.
func run(ctx context.Context, c *client, workers int) error {
	var group sync.WaitGroup
	failed := make(chan error, workers)
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 2))
			for ctx.Err() == nil {
				prompt, longest := 100+random.IntN(900), 200+random.IntN(1800)
				err := c.complete(ctx, prompt, longest)
				if errors.Is(err, context.DeadlineExceeded) { // in a test, ctx has a deadline: the tokens would come after it
					return
				}
				if err != nil && ctx.Err() == nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// showProgress rewrites one line on a terminal until it is stopped. Elsewhere it shows nothing.
func showProgress(c *client, out io.Writer) (stop func()) {
	file, ok := out.(*os.File)
	if !ok {
		return func() {}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				fmt.Fprint(out, "\r\x1b[K")
				return
			case <-time.After(100 * time.Millisecond):
				fmt.Fprintf(out, "\r\x1b[K%s", c.report())
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
