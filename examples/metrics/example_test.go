package metrics_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/metrics"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// A server counts its decisions, and logs at most 10 refusals at once and 1 per second.
func Example() {
	clients, err := keyed.New[string](tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	collector, err := metrics.NewPrometheus(registry)
	if err != nil {
		panic(err)
	}
	if err := collector.Watch("api", clients.Len, nil); err != nil {
		panic(err)
	}
	log := metrics.NewRefusalLog(slog.New(slog.NewTextHandler(os.Stderr, nil)),
		tokenbucket.MustNew(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}))
	limit, err := httplimit.New(httplimit.PerKey(clients),
		httplimit.WithObserver(metrics.Each(metrics.Server(collector, "api"), log.HTTP)))
	if err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /", limit(http.NotFoundHandler()))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for _, path := range []string{"/a", "/b", "/metrics"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if path == "/metrics" {
			fmt.Print(w.Body)
		}
	}
	// Output:
	// # HELP tokenbucket_decisions_total Decisions of rate limiters.
	// # TYPE tokenbucket_decisions_total counter
	// tokenbucket_decisions_total{limit="default",limiter="api",outcome="admitted"} 2
	// # HELP tokenbucket_keys Keys that a rate limiter remembers.
	// # TYPE tokenbucket_keys gauge
	// tokenbucket_keys{limiter="api"} 1
	// # HELP tokenbucket_tokens_total Costs of the decided requests, in tokens.
	// # TYPE tokenbucket_tokens_total counter
	// tokenbucket_tokens_total{limit="default",limiter="api",outcome="admitted"} 2
}
