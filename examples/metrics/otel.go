package metrics

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// OTel is a [Sink] with the instruments of OpenTelemetry. It may be used by any number of
// goroutines. Make it with [NewOTel].
type OTel struct {
	meter                     metric.Meter
	decisions, pauses, errors metric.Int64Counter
	tokens                    metric.Float64Counter
	waits                     metric.Float64Histogram
	keys, waiting             metric.Int64ObservableUpDownCounter
}

// NewOTel makes the instruments. It returns the errors of the meter.
func NewOTel(meter metric.Meter) (*OTel, error) {
	o, failed := &OTel{meter: meter}, make([]error, 7)
	counter := func(name, help, unit string, failed *error) (c metric.Int64Counter) {
		c, *failed = meter.Int64Counter(name, metric.WithDescription(help), metric.WithUnit(unit))
		return c
	}
	gauge := func(name, help, unit string, failed *error) (g metric.Int64ObservableUpDownCounter) {
		g, *failed = meter.Int64ObservableUpDownCounter(name, metric.WithDescription(help), metric.WithUnit(unit))
		return g
	}
	o.decisions = counter("tokenbucket.decisions", decisionsHelp, "{decision}", &failed[0])
	o.pauses = counter("tokenbucket.pauses", pausesHelp, "{pause}", &failed[1])
	o.errors = counter("tokenbucket.errors", errorsHelp, "{error}", &failed[2])
	o.keys = gauge("tokenbucket.keys", keysHelp, "{key}", &failed[3])
	o.waiting = gauge("tokenbucket.waiting_requests", waitingHelp, "{request}", &failed[4])
	o.tokens, failed[5] = meter.Float64Counter("tokenbucket.tokens",
		metric.WithDescription(tokensHelp), metric.WithUnit("{token}"))
	o.waits, failed[6] = meter.Float64Histogram("tokenbucket.wait.duration", metric.WithDescription(waitHelp),
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(waitBuckets...))
	return o, errors.Join(failed...)
}

// Decided implements [Sink].
func (o *OTel) Decided(limiter, limit string, outcome Outcome) {
	o.decisions.Add(context.Background(), 1, with("limiter", limiter, "limit", limit, "outcome", string(outcome)))
}

// Asked implements [Sink].
func (o *OTel) Asked(limiter, limit string, outcome Outcome, tokens float64) {
	o.tokens.Add(context.Background(), tokens, with("limiter", limiter, "limit", limit, "outcome", string(outcome)))
}

// Waited implements [Sink].
func (o *OTel) Waited(limiter string, outcome Outcome, wait time.Duration) {
	o.waits.Record(context.Background(), wait.Seconds(), with("limiter", limiter, "outcome", string(outcome)))
}

// Paused implements [Sink].
func (o *OTel) Paused(limiter, reason string) {
	o.pauses.Add(context.Background(), 1, with("limiter", limiter, "reason", reason))
}

// Failed implements [Sink].
func (o *OTel) Failed(limiter string) {
	o.errors.Add(context.Background(), 1, with("limiter", limiter))
}

// Watch observes the keys that a limiter remembers and the requests that wait at it, as
// [Prometheus.Watch] does. Watch each limiter once.
func (o *OTel) Watch(limiter string, keys, waiting func() int) error {
	_, err := o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		if keys != nil {
			to.ObserveInt64(o.keys, int64(keys()), with("limiter", limiter))
		}
		if waiting != nil {
			to.ObserveInt64(o.waiting, int64(waiting()), with("limiter", limiter))
		}
		return nil
	}, o.keys, o.waiting)
	return err
}

// with returns attributes, given as names and values in turn.
func with(pairs ...string) metric.MeasurementOption {
	var attributes []attribute.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		attributes = append(attributes, attribute.String(pairs[i], pairs[i+1]))
	}
	return metric.WithAttributes(attributes...)
}
