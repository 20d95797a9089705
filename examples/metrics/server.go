package metrics

import (
	"context"
	"errors"
	"strings"

	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Server returns an observer for httplimit.WithObserver. Pass the names of the limiters,
// in the order given to httplimit.Both. A decision of none of these limiters, for
// example of the fallback, is counted once, under all names joined by "+".
func Server(to Sink, limiters ...string) func(httplimit.Event) {
	names := namesOf(limiters)
	return func(e httplimit.Event) { names.count(to, &e) }
}

// GRPCServer returns an observer for grpclimit.WithObserver, as [Server] does. With
// grpclimit.WithMessageCost each message of a stream is a decision, too. Without
// grpclimit.WithReportOnly, messages are counted under all names joined by "+", since their
// events do not say which limiter decided.
func GRPCServer(to Sink, limiters ...string) func(grpclimit.Event) {
	names := namesOf(limiters)
	return func(e grpclimit.Event) {
		outcome := names.count(to, &e.Event)
		if e.Message && !e.ReportOnly && outcome != Refused {
			wait(to, names.all, outcome, e.Waited)
		}
	}
}

// names are the names of a server's limiters.
type names struct {
	each []string
	all  string
}

func namesOf(limiters []string) names { return names{limiters, strings.Join(limiters, "+")} }

// count counts a decision, and returns its outcome.
func (n names) count(to Sink, e *httplimit.Event) Outcome {
	limiter, outcome := n.all, outcomeOf(e)
	if !e.Fallback && e.LimiterIndex >= 0 && e.LimiterIndex < len(n.each) {
		limiter = n.each[e.LimiterIndex]
	}
	to.Decided(limiter, e.Policy, outcome)
	to.Asked(limiter, e.Policy, outcome, countable(e.Cost))
	if outcome == Refused || outcome == WouldRefuse {
		wait(to, limiter, outcome, e.Decision.Wait)
	}
	if _, isRefusal := waitOfRefusal(e.Err); e.Err != nil && !isRefusal && !errors.Is(e.Err, context.Canceled) {
		to.Failed(limiter)
	}
	return outcome
}

// Store returns a function for redisbucket.WithErrorHandler that counts the failures of
// the Redis server. Decisions are counted by the observer that [Server] returns.
func Store(to Sink, store string) func(error) {
	return func(error) { to.Failed(store) }
}

func outcomeOf(e *httplimit.Event) Outcome {
	_, isRefusal := waitOfRefusal(e.Err) // of a message of a stream
	switch {
	case e.LimiterIndex < 0 && !isRefusal && !e.Decision.OK:
		return Error
	case e.Refused && e.ReportOnly:
		return WouldRefuse
	case e.Refused:
		return Refused
	case e.Fallback:
		return Fallback
	default:
		return Admitted
	}
}
