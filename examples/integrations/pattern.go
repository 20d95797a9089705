package integrations

import (
	"net/http"

	"github.com/aa014e13/tokenbucket"
)

// PriceByPattern returns a function for httplimit.WithCost that looks a request up by the
// pattern its router has matched, such as "GET /export/:id", in that router's own syntax.
// So every spelling of a path that the router serves has the same price. The price of a
// pattern without a method, such as "/export/:id", is for the methods that are not listed.
// HEAD costs what GET costs, unless HEAD itself is listed, because some routers serve it by
// the handler of GET. The middleware must run after routing. Before routing, the pattern is
// "", so every request has the price of "", which is 1 if the list has none.
//
// ServeMux, chi and echo v5 set Request.Pattern. For gin and fiber, the functions Gin
// and Fiber of this package set it.
func PriceByPattern(costs tokenbucket.Costs) func(*http.Request) float64 {
	return func(r *http.Request) float64 {
		methods := []string{r.Method + " ", ""} // "" too, because a ServeMux's pattern has the method
		if r.Method == http.MethodHead {
			methods = []string{"HEAD ", "GET ", ""}
		}
		for _, method := range methods {
			if price, listed := costs[method+r.Pattern]; listed {
				return price
			}
		}
		return 1
	}
}
