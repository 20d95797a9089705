package observe_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/extra/redisprometheus/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/redisbucket"
	"github.com/aa014e13/tokenbucket/redisbucket/examples/observe"
)

var limit = tokenbucket.Limit{Capacity: 1e6, RefillPerSec: 1}

// decide lets callers make decisions, each within a span of its own, and returns the spans.
func decide(t *testing.T, tracer trace.Tracer, b *redisbucket.Buckets, callers, each int) (spans []trace.SpanContext) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for range callers {
		group.Go(func() {
			for range each {
				ctx, span := tracer.Start(context.Background(), "decision")
				_, _, err := b.TryAcquire(ctx, "key", 1)
				span.End()
				require.NoError(t, err)
				mu.Lock()
				spans = append(spans, span.SpanContext())
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return spans
}

// requireAll checks that every span is the parent of another, or linked by it.
func requireAll(t *testing.T, exported tracetest.SpanStubs, spans []trace.SpanContext) {
	t.Helper()
	known := map[trace.SpanID]bool{}
	for _, span := range exported {
		known[span.Parent.SpanID()] = true
		for _, link := range span.Links {
			known[link.SpanContext.SpanID()] = true
		}
	}
	for _, span := range spans {
		require.True(t, known[span.SpanID()])
	}
}

func TestEverySpanHasItsCallersAsParentOrLink(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		name    string
		prompt  bool // the client's commands end with their contexts, so its own hooks are used
		callers int
	}{
		{"default options", false, 16},
		{"the client's own hooks", true, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			exporter := tracetest.NewInMemoryExporter()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
			trace := func(client redis.UniversalClient) {
				require.NoError(t, redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(provider)))
				client.AddHook(observe.Links{})
			}
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: c.prompt})
			defer client.Close()
			opts := []redisbucket.Option{redisbucket.WithTimeout(10 * time.Second)}
			if c.prompt {
				trace(client)
			} else {
				opts = append(opts, redisbucket.WithInstrument(trace))
			}
			b, err := redisbucket.New(client, limit, opts...)
			require.NoError(t, err)
			spans := decide(t, provider.Tracer("test"), b, c.callers, 20)
			requireAll(t, exporter.GetSpans(), spans)
		})
	}
}

func TestPoolStatistics(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	defer client.Close()
	registry := prometheus.NewRegistry()
	b, err := redisbucket.New(client, limit, redisbucket.WithTimeout(10*time.Second),
		redisbucket.WithInstrument(func(used redis.UniversalClient) {
			registry.MustRegister(redisprometheus.NewCollector("buckets", "redis", used))
		}))
	require.NoError(t, err)
	for range 10 {
		_, _, err := b.TryAcquire(context.Background(), "key", 1)
		require.NoError(t, err)
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	figures := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		figures[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	require.Equal(t, 1.0, figures["buckets_redis_pool_conn_idle_current"], figures)
	require.GreaterOrEqual(t, figures["buckets_redis_pool_hit_total"], 9.0)
}
