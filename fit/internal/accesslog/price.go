package accesslog

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aa014e13/tokenbucket"
)

// Prices are costs by method and path, in the patterns of http.ServeMux. A request that
// matches no pattern costs 1.
type Prices struct {
	mux   *http.ServeMux
	costs tokenbucket.Costs
	known map[string]float64 // by method and target
}

// ParsePrices reads prices such as "GET /export=5".
func ParsePrices(prices []string) (*Prices, error) {
	p := &Prices{http.NewServeMux(), tokenbucket.Costs{}, map[string]float64{}}
	for _, price := range prices {
		i := strings.LastIndexByte(price, '=')
		if i < 0 {
			return nil, fmt.Errorf("price %q: write a pattern and a cost, such as GET /export=5", price)
		}
		pattern := price[:i]
		cost, err := strconv.ParseFloat(price[i+1:], 64)
		if err == nil {
			err = tokenbucket.Costs{pattern: cost}.Validate(1 << 42)
		}
		if err == nil {
			err = p.handle(pattern)
		}
		if err != nil {
			return nil, fmt.Errorf("price %q: %w", price, err)
		}
		p.costs[pattern] = cost
	}
	return p, nil
}

// handle registers a pattern. ServeMux panics for a pattern that it cannot read.
func (p *Prices) handle(pattern string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("pattern %q: write one that http.ServeMux takes, and each only once", pattern)
		}
	}()
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// of returns the cost of a request.
func (p *Prices) of(method, target string) float64 {
	request := method + " " + target
	cost, ok := p.known[request]
	if !ok {
		cost = p.find(method, target)
		if len(p.known) < 1<<16 {
			p.known[request] = cost
		}
	}
	return cost
}

func (p *Prices) find(method, target string) float64 {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return 1
	}
	_, pattern := p.mux.Handler(&http.Request{Method: method, URL: u, Host: u.Host})
	return p.costs.Of(pattern)
}
