package metrics

import (
	"errors"
	"strings"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Client returns an observer for httplimit.WithTransportObserver. Each attempt is a
// decision of the client's own buckets: admitted if a server answered, whatever it
// answered; refused if the buckets refused the wait; an error if the context ended or
// the request failed. Costs of httplimit.WithTransportCostEach are not counted, since
// each has its own unit. The hosts are keys, so they are no labels either.
func Client(to Sink, limiter string) func(httplimit.TransportEvent) {
	return func(e httplimit.TransportEvent) {
		outcome, waited := Admitted, e.Waited
		switch refusal, ok := waitOfRefusal(e.Err); {
		case ok:
			outcome, waited = Refused, refusal
		case e.Err != nil:
			outcome = Error
		}
		to.Decided(limiter, "", outcome, countable(e.Cost))
		wait(to, limiter, outcome, waited)
		if e.Pause > 0 {
			to.Paused(limiter, strings.ReplaceAll(strings.ToLower(string(e.Reason)), " ", "_"))
		}
	}
}

// GRPCClient returns an observer for grpclimit.WithClientObserver. Each attempt that was
// sent is an admitted decision of the client's own buckets. Its cost and its wait are
// not in the event, so they are not counted. The reason of pauses is "server".
func GRPCClient(to Sink, limiter string) func(grpclimit.ClientEvent) {
	return func(e grpclimit.ClientEvent) {
		outcome := Admitted
		if _, ok := waitOfRefusal(e.Err); ok {
			outcome = Refused
		}
		to.Decided(limiter, "", outcome, 0)
		if e.Pause > 0 {
			to.Paused(limiter, "server")
		}
	}
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
