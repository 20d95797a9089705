package httplimit

import (
	"context"
	"net/http"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// WithAdmission puts an *Admission into the context of every request that goes on to the
// next handler. AdmissionFromContext returns it there. Use it if a handler learns the
// true cost of a request only afterwards, such as the size of an upload. The handler then
// charges or refunds the difference. The handler gets a copy of the request. What the
// handler sets in the copy, such as Pattern and path values, is copied back for the
// layers outside the middleware.
//
// The limiter, and the fallback if there is one, need the methods Refund and Charge, see
// Limiter; otherwise New returns ErrInvalidOption. By default, there is no Admission.
func WithAdmission() Option {
	return serverOption(func(c *config) { c.admission = true })
}

// Admission describes a request that was admitted. Its methods correct the request's cost
// once the true cost is known.
//
// The methods act on the same key and on the limiter that decided, which may be the
// fallback. They work after the request's context has ended: they use the values of ctx, but
// ignore its end and its deadline. A Redis limiter has a timeout of its own. If no limiter
// could decide, or WithReportOnly admitted a request that was refused, nothing was taken:
// then the methods do nothing and return nil. The methods of a nil Admission do nothing too.
//
// The methods may be called by any number of goroutines, any number of times.
type Admission struct {
	Key      string
	Cost     float64              // tokens; with WithCostEach, the cost for the limit that Decision describes
	Costs    []float64            // tokens, one cost for each limit; nil without WithCostEach
	Decision tokenbucket.Decision // zero if no limiter could decide

	limiter Limiter // nil if nothing was taken
	outer   *Admission
}

type admissionKey struct{}

// AdmissionFromContext returns the Admission of the innermost middleware with
// WithAdmission that admitted the request, nil if there is none.
func AdmissionFromContext(ctx context.Context) *Admission {
	a, _ := ctx.Value(admissionKey{}).(*Admission)
	return a
}

// Outer returns the Admission of the next middleware outside this one that has
// WithAdmission, nil if there is none.
func (a *Admission) Outer() *Admission {
	if a == nil {
		return nil
	}
	return a.outer
}

// Charge takes a cost, in tokens, from the key's bucket, which may go into debt. If the
// cost is below 0 or not finite, Charge returns ErrInvalidCost, otherwise the limiter's
// error, if there is one.
func (a *Admission) Charge(ctx context.Context, cost float64) error {
	return a.settle(ctx, ask{cost: cost}, ask.charge)
}

// Refund gives a cost, in tokens, back to the key's bucket, up to the capacity. Errors
// are those of Charge.
func (a *Admission) Refund(ctx context.Context, cost float64) error {
	return a.settle(ctx, ask{cost: cost}, ask.refund)
}

// ChargeEach is like Charge, with one cost for each limit, in the order of the limiter's
// Limits. It returns ErrInvalidCost for another number of costs. It returns
// errors.ErrUnsupported, and changes nothing, if the limiter has no method ChargeEach.
func (a *Admission) ChargeEach(ctx context.Context, costs ...float64) error {
	return a.settle(ctx, ask{each: true, costs: costs}, ask.charge)
}

// RefundEach is like Refund, with one cost for each limit. Errors are those of
// ChargeEach.
func (a *Admission) RefundEach(ctx context.Context, costs ...float64) error {
	return a.settle(ctx, ask{each: true, costs: costs}, ask.refund)
}

func (a *Admission) settle(ctx context.Context, cost ask, do func(ask, context.Context, Limiter) error) error {
	if a == nil || a.limiter == nil {
		return nil
	}
	cost.key = a.Key
	return do(cost, context.WithoutCancel(ctx), a.limiter)
}

// admission returns the Admission of a request that goes on.
func (v *verdict) admission() *Admission {
	a := &Admission{Key: v.ask.key, Cost: v.cost, Costs: slices.Clone(v.ask.costs), Decision: v.decision}
	if !v.refused {
		a.limiter = v.by
	}
	return a
}

// serveAdmitted calls the next handler with an Admission in the request's context.
func serveAdmitted(next http.Handler, w http.ResponseWriter, r *http.Request, a *Admission) {
	ctx := r.Context()
	a.outer = AdmissionFromContext(ctx)
	if r.Trailer == nil && r.ContentLength < 0 {
		r.Trailer = http.Header{} // net/http adds trailers that were not announced, for r and its copies
	}
	admitted := r.WithContext(context.WithValue(ctx, admissionKey{}, a))
	// Inner handlers write into the copy: a ServeMux writes its pattern, ParseMultipartForm
	// writes the files that the server removes at the end. Copy this back into r, where the
	// outer layers and the server look for it.
	defer func() { *r = *admitted.WithContext(ctx) }()
	next.ServeHTTP(w, admitted)
}
