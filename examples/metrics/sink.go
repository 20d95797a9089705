// Package metrics counts what the limiters decide, for Prometheus and OpenTelemetry, and
// logs refusals. Copy sink.go, client.go and one of the collectors, prometheus.go or
// otel.go. For servers, copy server.go as well.
//
// The observers of httplimit, grpclimit and redisbucket feed a [Sink]. [Prometheus] and
// [OTel] are sinks with the same metrics. The key of a request is never a label: there
// may be millions of keys, and they identify people.
package metrics

import (
	"math"
	"time"

	"github.com/aa014e13/tokenbucket"
)

// Sink collects metrics. limiter is the name that the caller has chosen. limit is the
// name of a policy, "" if it is not known. The methods are called by any number of
// goroutines.
//
// For a request that is or would be refused, Waited gets the wait that the refusal
// reports. Otherwise Waited gets the time that was waited, for requests that the
// observers of Client and GRPCClient report, and for messages of a stream without
// grpclimit.WithReportOnly. It is not called for other requests to a server.
type Sink interface {
	// Decided counts a decision.
	Decided(limiter, limit string, outcome Outcome)
	// Asked counts the tokens, finite and 0 or more, that a decision was about.
	Asked(limiter, limit string, outcome Outcome, tokens float64)
	// Waited records a wait, 0 or more, but not Never.
	Waited(limiter string, outcome Outcome, wait time.Duration)
	// Paused counts a pause that a server ordered.
	Paused(limiter, reason string)
	// Failed counts a failure of a limiter or of its store.
	Failed(limiter string)
}

// Outcome is the result of a decision.
type Outcome string

// The outcomes. Each decision has one of them.
const (
	Admitted    Outcome = "admitted"
	Refused     Outcome = "refused"      // Envoy calls it over_limit
	WouldRefuse Outcome = "would_refuse" // refused, but admitted since refusals are only reported
	Fallback    Outcome = "fallback"     // admitted by the fallback; its refusals count as refused
	Error       Outcome = "error"        // no limiter decided, or a client's request got no answer
)

// The descriptions of the metrics, for both collectors.
const (
	decisionsHelp = "Decisions of rate limiters."
	tokensHelp    = "Costs of the decided requests, in tokens."
	waitHelp      = "Time that requests waited for tokens, or that refused requests have to wait."
	pausesHelp    = "Pauses that servers ordered."
	errorsHelp    = "Failures of rate limiters and their stores."
	keysHelp      = "Keys that a rate limiter remembers."
	waitingHelp   = "Requests that are waiting for tokens."
)

// waitBuckets are the upper bounds of the histogram of waits, in seconds.
var waitBuckets = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 300, 3600}

// countable returns a cost as tokens to count: 0 if it is negative, NaN or infinite. A
// counter must not decrease.
func countable(cost float64) float64 {
	if cost > 0 && cost <= math.MaxFloat64 {
		return cost
	}
	return 0
}

// wait records a wait unless it is Never, which would make the sum useless.
func wait(to Sink, limiter string, outcome Outcome, d time.Duration) {
	if d != tokenbucket.Never {
		to.Waited(limiter, outcome, d)
	}
}

// Each returns an observer that calls several observers in order, such as a collector and
// a log.
func Each[E any](observers ...func(E)) func(E) {
	return func(e E) {
		for _, observe := range observers {
			observe(e)
		}
	}
}
