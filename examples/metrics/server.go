package metrics

import (
	"strings"

	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// Server returns an observer for httplimit.WithObserver. The names are those of the
// limiters, in the order given to httplimit.Both. What cannot be counted for one of
// them, as decisions of the fallback, is counted for all: their names are joined by "+".
func Server(to Sink, limiters ...string) func(httplimit.Event) {
	all := strings.Join(limiters, "+")
	return func(e httplimit.Event) {
		limiter, outcome := all, outcomeOf(&e)
		if !e.Fallback && e.LimiterIndex >= 0 && e.LimiterIndex < len(limiters) {
			limiter = limiters[e.LimiterIndex]
		}
		to.Decided(limiter, e.Policy, outcome, countable(e.Cost))
		if outcome == Refused || outcome == WouldRefuse {
			wait(to, limiter, outcome, e.Decision.Wait)
		}
		if _, isRefusal := waitOfRefusal(e.Err); e.Err != nil && !isRefusal {
			to.Failed(limiter)
		}
	}
}

// GRPCServer returns an observer for grpclimit.WithObserver, as [Server] does. Of the
// messages of streams only those whose wait failed are counted.
func GRPCServer(to Sink, limiters ...string) func(grpclimit.Event) {
	observe := Server(to, limiters...)
	return func(e grpclimit.Event) { observe(e.Event) }
}

// Store returns a function for redisbucket.WithErrorHandler. The decisions themselves
// are counted by the observer of the server.
func Store(to Sink, store string) func(error) {
	return func(error) { to.Failed(store) }
}

func outcomeOf(e *httplimit.Event) Outcome {
	_, isRefusal := waitOfRefusal(e.Err) // of a message of a stream
	switch {
	case e.LimiterIndex < 0 && !isRefusal:
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
