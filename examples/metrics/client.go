package metrics

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Client returns an observer for httplimit.WithTransportObserver. Each attempt is a
// decision of the client's own buckets: admitted if a server answered, whatever the
// answer; refused if the buckets refused the wait; an error if the context ended or the
// request failed. The hosts are keys, so they are not labels.
//
// The tokens of httplimit.WithTransportCostEach are counted by limit. Pass the names of the
// limits, in the order of the costs; further limits have names such as "limit-3".
func Client(to Sink, limiter string, limits ...string) func(httplimit.TransportEvent) {
	return func(e httplimit.TransportEvent) {
		outcome := attempted(to, limiter, e.Waited, e.Err)
		if len(e.Costs) == 0 {
			to.Asked(limiter, "", outcome, countable(e.Cost))
		}
		for i, cost := range e.Costs {
			limit := "limit-" + strconv.Itoa(i+1)
			if i < len(limits) {
				limit = limits[i]
			}
			to.Asked(limiter, limit, outcome, countable(cost))
		}
		if e.Pause > 0 {
			to.Paused(limiter, strings.ReplaceAll(strings.ToLower(string(e.Reason)), " ", "_"))
		}
	}
}

// GRPCClient returns an observer for grpclimit.WithClientObserver. Each attempt is a decision
// of the client's own buckets: admitted if it was sent, whatever the result; refused if the
// buckets refused the wait; an error if the context ended during the wait. The reason of
// pauses is "server".
func GRPCClient(to Sink, limiter string) func(grpclimit.ClientEvent) {
	return func(e grpclimit.ClientEvent) {
		if e.Pause > 0 {
			to.Paused(limiter, "server")
		}
		if e.Ended {
			return // the stream was counted when it was opened
		}
		var failed error
		if e.Unsent {
			failed = e.Err
		}
		outcome := attempted(to, limiter, e.Waited, failed)
		to.Asked(limiter, "", outcome, countable(e.Cost))
	}
}

// attempted counts an attempt of a client, records its wait, and returns its outcome.
func attempted(to Sink, limiter string, waited time.Duration, err error) Outcome {
	outcome := Admitted
	switch refusal, ok := waitOfRefusal(err); {
	case ok:
		outcome, waited = Refused, refusal
	case err != nil:
		outcome = Error
	}
	to.Decided(limiter, "", outcome)
	wait(to, limiter, outcome, waited)
	return outcome
}

// waitOfRefusal reports whether buckets refused to let a request wait, and how long it
// would have had to wait, Never if that is not known.
func waitOfRefusal(err error) (wait time.Duration, ok bool) {
	if deadline, ok := errors.AsType[*tokenbucket.DeadlineError](err); ok {
		return deadline.Wait, true
	}
	return tokenbucket.Never, errors.Is(err, tokenbucket.ErrCostExceedsCapacity) ||
		errors.Is(err, tokenbucket.ErrInvalidCost) || errors.Is(err, tokenbucket.ErrTooManyWaiters)
}
