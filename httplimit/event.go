package httplimit

import (
	"net/http"

	"github.com/aa014e13/tokenbucket"
)

// WithObserver sets a function that is called once for every request, before the
// request goes on or is answered, also if no limiter could decide. It is called by any
// number of goroutines. By default, and for nil, no function is called.
func WithObserver(observe func(Event)) Option {
	return serverOption(func(c *config) { c.observe = observe })
}

// Event is a decision about a request.
type Event struct {
	Request *http.Request
	Key     string

	// Cost is in tokens. With WithCostEach, it is the cost for the limit that Decision
	// describes, or for the first limit if no limiter could decide.
	Cost  float64
	Costs []float64 // tokens, as WithCostEach returned them; nil without it

	// Decision is the decision of the limiter that decided. Its LimitIndex counts the
	// limits of that limiter alone. If no limiter could decide, Decision is zero, so its
	// LimitIndex is 0.
	Decision tokenbucket.Decision

	// LimiterIndex is the index of the limiter that decided, in the order given to Both,
	// 0 if there is only one, and -1 if no limiter could decide.
	LimiterIndex int

	// Policy is the name of the limit that Decision describes, as in RateLimit. It is
	// empty if Decision has no valid limit.
	Policy string

	Fallback bool // whether the fallback decided
	Refused  bool // with 429, or with 503 if no limiter could decide; also set if WithReportOnly admits it

	// ReportOnly reports whether WithReportOnly is set: then the request goes on in any
	// case.
	ReportOnly bool

	Err error // of the limiter, and of the fallback, if they failed
}

func (m *middleware) eventOf(v *verdict) Event {
	e := Event{
		Request: v.request, Key: v.ask.key, Cost: v.cost, Costs: v.ask.costs,
		Decision: v.decision, LimiterIndex: v.limiter, Fallback: v.fallback, Refused: v.refused, ReportOnly: m.reportOnly, Err: v.err,
	}
	if v.policy != nil {
		e.Policy = v.policy.name
	}
	return e
}
