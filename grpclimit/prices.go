package grpclimit

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/aa014e13/tokenbucket"
)

// prices are the costs of methods, in tokens. Without any, every call costs 1.
type prices struct {
	methods  map[string]float64 // by full method
	services map[string]float64 // by full method up to its last slash
}

// newPrices checks prices, also against limits, if there are any.
func newPrices(costs tokenbucket.Costs, limits []tokenbucket.Limit) (prices, error) {
	capacity := math.Inf(1)
	for _, l := range limits {
		capacity = min(capacity, l.Capacity)
	}
	p := prices{map[string]float64{}, map[string]float64{}}
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		service, method := splitMethod(name)
		switch {
		case !isService(service) || method == "" || strings.Contains(method, "*") && method != "*":
			return p, invalid("price of %q: write /package.Service/Method or /package.Service/*", name)
		case method == "*":
			p.services[service] = costs[name]
		default:
			p.methods[name] = costs[name]
		}
	}
	return p, costs.Validate(capacity)
}

// splitMethod splits a full method after its last slash.
func splitMethod(full string) (service, method string) {
	slash := strings.LastIndexByte(full, '/') + 1
	return full[:slash], full[slash:]
}

// isService reports whether s has the form "/package.Service/".
func isService(s string) bool {
	name := strings.Trim(s, "/")
	return name != "" && s == "/"+name+"/" && !strings.ContainsAny(name, "*/")
}

// of returns the price of a method, or that of its service, or 1.
func (p prices) of(method string) float64 {
	if cost, ok := p.methods[method]; ok {
		return cost
	}
	service, _ := splitMethod(method)
	if cost, ok := p.services[service]; ok {
		return cost
	}
	return 1
}
