package integrations

import (
	"net/http"
	"strings"

	"github.com/aa014e13/tokenbucket"
)

// PriceByPattern returns a function for httplimit.WithCost that looks a request up by the
// pattern its router has matched, such as "GET /export/:id", in that router's own syntax.
// So every spelling of a path that the router serves has the same price. The middleware
// must run after routing. Before routing, the pattern is "", so every request has the
// price of "", which is 1 if the list has none.
//
// ServeMux, chi and echo v5 set Request.Pattern. For gin and fiber, the functions Gin
// and Fiber of this package set it.
func PriceByPattern(costs tokenbucket.Costs) func(*http.Request) float64 {
	return func(r *http.Request) float64 {
		if r.Pattern == "" || strings.Contains(r.Pattern, " ") { // a ServeMux's has the method
			return costs.Of(r.Pattern)
		}
		return costs.Of(r.Method + " " + r.Pattern)
	}
}
