package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Prometheus is a [Sink] with the metrics of client_golang. It may be used by any number
// of goroutines. Make it with [NewPrometheus].
type Prometheus struct {
	registry                          prometheus.Registerer
	decisions, tokens, pauses, errors *prometheus.CounterVec
	waits                             *prometheus.HistogramVec
}

// NewPrometheus registers the metrics. Call it once for each registry and share the
// Prometheus: a second call returns the error of registry.Register.
func NewPrometheus(registry prometheus.Registerer) (*Prometheus, error) {
	var failed error
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		failed = errors.Join(failed, registry.Register(c))
		return c
	}
	p := &Prometheus{
		registry:  registry,
		decisions: counter("tokenbucket_decisions_total", decisionsHelp, "limiter", "limit", "outcome"),
		tokens:    counter("tokenbucket_tokens_total", tokensHelp, "limiter", "limit", "outcome"),
		pauses:    counter("tokenbucket_pauses_total", pausesHelp, "limiter", "reason"),
		errors:    counter("tokenbucket_errors_total", errorsHelp, "limiter"),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tokenbucket_wait_duration_seconds", Help: waitHelp, Buckets: waitBuckets,
		}, []string{"limiter", "outcome"}),
	}
	return p, errors.Join(failed, registry.Register(p.waits))
}

// Decided implements [Sink].
func (p *Prometheus) Decided(limiter, limit string, outcome Outcome) {
	p.decisions.WithLabelValues(limiter, limit, string(outcome)).Inc()
}

// Asked implements [Sink].
func (p *Prometheus) Asked(limiter, limit string, outcome Outcome, tokens float64) {
	p.tokens.WithLabelValues(limiter, limit, string(outcome)).Add(tokens)
}

// Waited implements [Sink].
func (p *Prometheus) Waited(limiter string, outcome Outcome, wait time.Duration) {
	p.waits.WithLabelValues(limiter, string(outcome)).Observe(wait.Seconds())
}

// Paused implements [Sink].
func (p *Prometheus) Paused(limiter, reason string) { p.pauses.WithLabelValues(limiter, reason).Inc() }

// Failed implements [Sink].
func (p *Prometheus) Failed(limiter string) { p.errors.WithLabelValues(limiter).Inc() }

// Watch makes gauges of the keys that a limiter remembers and of the requests that wait
// at it, as keyed.Buckets.Len and tokenbucket.Bucket.Waiting report them. The functions
// are called at each collection; nil means no gauge. It returns an error if the
// limiter is watched already.
func (p *Prometheus) Watch(limiter string, keys, waiting func() int) error {
	gauge := func(name, help string, value func() int) error {
		if value == nil {
			return nil
		}
		return p.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{"limiter": limiter},
		}, func() float64 { return float64(value()) }))
	}
	return errors.Join(gauge("tokenbucket_keys", keysHelp, keys), gauge("tokenbucket_waiting_requests", waitingHelp, waiting))
}
