package metrics_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/aa014e13/tokenbucket/examples/metrics"
)

// collector is one of the sinks, with the metrics that a Prometheus server would read
// from it.
type collector struct {
	metrics.Sink
	*prometheus.Registry
	watch func(limiter string, keys, waiting func() int) error
}

func newPrometheus(t *testing.T) collector {
	registry := prometheus.NewPedanticRegistry()
	p, err := metrics.NewPrometheus(registry)
	require.NoError(t, err)
	return collector{p, registry, p.Watch}
}

// newOTel exports OpenTelemetry's metrics to a registry.
func newOTel(t *testing.T) collector {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	o, err := metrics.NewOTel(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("tokenbucket"))
	require.NoError(t, err)
	return collector{o, registry, o.Watch}
}

// forEachCollector runs a test with each of the collectors.
func forEachCollector(t *testing.T, run func(t *testing.T, c collector)) {
	t.Run("Prometheus", func(t *testing.T) { run(t, newPrometheus(t)) })
	t.Run("OTel", func(t *testing.T) { run(t, newOTel(t)) })
}

// samples returns the samples of the metrics whose names begin with one of the prefixes,
// sorted, without those of the histograms' buckets.
func samples(t *testing.T, from prometheus.Gatherer, prefixes ...string) (lines []string) {
	families, err := from.Gather()
	require.NoError(t, err)
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		require.NoError(t, encoder.Encode(family))
	}
	for line := range strings.Lines(text.String()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "tokenbucket_")
		for _, prefix := range prefixes {
			if strings.HasPrefix(line, prefix) && !strings.Contains(line, "_bucket{") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// feed adds a value to every metric.
func feed(t *testing.T, c collector) {
	for _, tokens := range []float64{1, 2.5} {
		c.Decided("api", "default", metrics.Admitted)
		c.Asked("api", "default", metrics.Admitted, tokens)
	}
	c.Decided("api", "hourly", metrics.Refused)
	c.Asked("api", "hourly", metrics.Refused, 4)
	c.Decided("github", "", metrics.Admitted)
	c.Asked("github", "", metrics.Admitted, 0)
	c.Waited("api", metrics.Refused, 20*time.Second)
	c.Waited("github", metrics.Admitted, 0)
	c.Waited("github", metrics.Admitted, 250*time.Millisecond)
	c.Paused("github", "retry-after")
	c.Failed("redis")
	require.NoError(t, c.watch("api", func() int { return 7 }, nil))
	require.NoError(t, c.watch("github", func() int { return 2 }, func() int { return 3 }))
}

// Both collectors expose the same metrics, with the same names, texts, labels and buckets.
func TestExposition(t *testing.T) {
	forEachCollector(t, func(t *testing.T, c collector) {
		feed(t, c)
		want, err := os.Open("testdata/exposition.txt")
		require.NoError(t, err)
		defer want.Close()
		require.NoError(t, testutil.GatherAndCompare(c, want))
	})
}

// TestLint runs the checks of promtool check metrics.
func TestLint(t *testing.T) {
	text, err := os.Open("testdata/exposition.txt")
	require.NoError(t, err)
	defer text.Close()
	problems, err := promlint.New(text).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	forEachCollector(t, func(t *testing.T, c collector) {
		feed(t, c)
		problems, err := testutil.GatherAndLint(c)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}

func TestOTelInstruments(t *testing.T) {
	reader := sdk.NewManualReader()
	o, err := metrics.NewOTel(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("tokenbucket"))
	require.NoError(t, err)
	feed(t, collector{o, nil, o.Watch})
	var read metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &read))
	units := map[string]string{}
	for _, m := range read.ScopeMetrics[0].Metrics {
		units[m.Name] = m.Unit
	}
	require.Equal(t, map[string]string{
		"tokenbucket.decisions": "{decision}", "tokenbucket.tokens": "{token}", "tokenbucket.wait.duration": "s",
		"tokenbucket.pauses": "{pause}", "tokenbucket.errors": "{error}",
		"tokenbucket.keys": "{key}", "tokenbucket.waiting_requests": "{request}",
	}, units)
}

func TestRegisteringTwiceIsAnError(t *testing.T) {
	registry := prometheus.NewRegistry()
	p, err := metrics.NewPrometheus(registry)
	require.NoError(t, err)
	_, err = metrics.NewPrometheus(registry)
	require.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
	keys := func() int { return 1 }
	require.NoError(t, p.Watch("api", keys, nil))
	require.Error(t, p.Watch("api", keys, nil))
}
