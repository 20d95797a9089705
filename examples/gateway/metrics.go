package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// waitBounds are the upper bounds of the histogram of waits, in seconds.
var waitBounds = [...]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 300, 3600}

// metrics counts decisions and writes them as Prometheus reads them. The names are those
// of examples/metrics, which is better for a program that may have dependencies. Any
// number of goroutines may use metrics at the same time.
type metrics struct {
	keys func() int

	mu       sync.Mutex
	admitted tally
	refused  tally
	waits    [len(waitBounds)]int // refusals whose wait is at most the bound
	waitSum  time.Duration
	waitAll  int // refusals with any wait
}

// tally counts decisions with one outcome.
type tally struct {
	decisions int
	tokens    float64
}

func (y *tally) add(e httplimit.Event) {
	y.decisions++
	y.tokens += e.Cost
}

// observe is the observer of the middleware.
func (m *metrics) observe(e httplimit.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.Refused {
		m.admitted.add(e)
		return
	}
	m.refused.add(e)
	if e.Decision.Wait == tokenbucket.Never {
		return
	}
	m.waitAll++
	m.waitSum += e.Decision.Wait
	first, _ := slices.BinarySearch(waitBounds[:], e.Decision.Wait.Seconds())
	for i := first; i < len(m.waits); i++ {
		m.waits[i]++
	}
}

// ServeHTTP answers with the metrics in Prometheus' text format.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(m.text()) // an error means that the reader has gone
}

func (m *metrics) text() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b bytes.Buffer
	const byOutcome = "%s{limit=\"default\",limiter=\"gateway\",outcome=%q} %s\n"
	name := writeHead(&b, "tokenbucket_decisions_total", "counter", "Decisions of rate limiters.")
	fmt.Fprintf(&b, byOutcome, name, "admitted", fmt.Sprint(m.admitted.decisions))
	fmt.Fprintf(&b, byOutcome, name, "refused", fmt.Sprint(m.refused.decisions))
	name = writeHead(&b, "tokenbucket_keys", "gauge", "Keys that a rate limiter remembers.")
	fmt.Fprintf(&b, "%s{limiter=\"gateway\"} %d\n", name, m.keys())
	name = writeHead(&b, "tokenbucket_tokens_total", "counter", "Costs of the decided requests, in tokens.")
	fmt.Fprintf(&b, byOutcome, name, "admitted", plain(m.admitted.tokens))
	fmt.Fprintf(&b, byOutcome, name, "refused", plain(m.refused.tokens))
	name = writeHead(&b, "tokenbucket_wait_duration_seconds", "histogram", "Time that requests waited for tokens, or that refused requests have to wait.")
	const refused = `{limiter="gateway",outcome="refused"`
	for i, count := range m.waits {
		fmt.Fprintf(&b, "%s_bucket%s,le=\"%s\"} %d\n", name, refused, plain(waitBounds[i]), count)
	}
	fmt.Fprintf(&b, "%s_bucket%s,le=\"+Inf\"} %d\n", name, refused, m.waitAll)
	fmt.Fprintf(&b, "%s_sum%s} %s\n", name, refused, plain(m.waitSum.Seconds()))
	fmt.Fprintf(&b, "%s_count%s} %d\n", name, refused, m.waitAll)
	return b.Bytes()
}

// writeHead writes the lines before the samples of a metric, and returns the name of the
// metric.
func writeHead(b *bytes.Buffer, name, kind, help string) string {
	fmt.Fprintf(b, "# HELP %[1]s %[3]s\n# TYPE %[1]s %[2]s\n", name, kind, help)
	return name
}

// start serves the metrics at an address of their own, since clients should not see them.
// Call stop to end that.
func (m *metrics) start(addr string, out io.Writer) (stop func() error, err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	fmt.Fprintf(out, "Metrics for Prometheus: http://%s/metrics\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	return server.Close, nil
}
