package httplimit

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"

	"github.com/aa014e13/tokenbucket"
)

// prices finds the price of a request by the pattern that a ServeMux finds for it,
// so that precedence is the one everybody knows.
type prices struct {
	mux   *http.ServeMux
	costs tokenbucket.Costs
}

func newPrices(costs tokenbucket.Costs, limits []tokenbucket.Limit) (*prices, error) {
	capacity := math.Inf(1)
	for _, l := range limits {
		capacity = min(capacity, l.Capacity)
	}
	if err := costs.Validate(capacity); err != nil {
		return nil, err
	}
	p := &prices{http.NewServeMux(), maps.Clone(costs)}
	for _, pattern := range slices.Sorted(maps.Keys(costs)) {
		if err := p.register(pattern); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// register turns the panic of a ServeMux that does not take a pattern into an error.
func (p *prices) register(pattern string) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%w: price of %q: write the pattern as for http.ServeMux: %v", tokenbucket.ErrInvalidOption, pattern, problem)
		}
	}()
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

func (p *prices) of(r *http.Request) float64 {
	_, pattern := p.mux.Handler(r)
	return p.costs.Of(pattern)
}
