package httplimit

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/aa014e13/tokenbucket"
)

// prices finds the price of a request by the pattern that a ServeMux matches, so that the
// ServeMux's rules of precedence apply.
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
	p := &prices{http.NewServeMux(), costs}
	for _, pattern := range slices.Sorted(maps.Keys(costs)) {
		if err := p.register(pattern); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// register adds a pattern to the ServeMux. It returns an error if the ServeMux panics, and
// for a pattern that no request would match.
func (p *prices) register(pattern string) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = invalid("price of %q: write the pattern as for http.ServeMux: %s", pattern, registeredAt.ReplaceAllString(fmt.Sprint(problem), ""))
		}
	}()
	if advice := neverMatches(pattern); advice != "" {
		return invalid("price of %q: no request would match: %s", pattern, advice)
	}
	p.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// registeredAt matches the place in this file that a ServeMux reports as the source of a
// pattern. It does not help users of this package.
var registeredAt = regexp.MustCompile(` \(registered at .*?:\d+\)`)

// neverMatches returns advice for a pattern that a ServeMux accepts but no request would
// match, and "" for any other.
func neverMatches(pattern string) (advice string) {
	method, rest := "", pattern
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, rest = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return "" // the ServeMux reports the fault
	}
	host, file := rest[:slash], rest[slash:]
	_, _, portErr := net.SplitHostPort(host)
	switch {
	case method != strings.ToUpper(method):
		return "write the method in upper case"
	case portErr == nil:
		return "write the host without a port"
	case !isASCII(host):
		return "write the host in its ASCII form, which begins with xn--"
	case strings.Contains(host, "*"):
		return "name each host in a pattern of its own"
	case host != strings.ToLower(host):
		return "write the host in lower case"
	case strings.ContainsAny(file, "?#"):
		return "leave the query out, or write %3F for ? and %23 for # in a path"
	case method != http.MethodConnect && !isClean(file):
		return "write the path without //, . and .."
	}
	for segment := range strings.SplitSeq(file, "/") {
		switch {
		case strings.HasPrefix(segment, ":"):
			return "write {name} for a parameter, or %3A for : at the beginning of a segment"
		case strings.HasPrefix(segment, "*"):
			return "write {name...} for the rest of a path, or %2A for * at the beginning of a segment"
		}
	}
	return ""
}

// isClean reports whether a ServeMux would not redirect requests for a path.
func isClean(file string) bool {
	clean := path.Clean(file)
	return file == clean || file == clean+"/" && clean != "/"
}

func (p *prices) of(r *http.Request) float64 {
	_, pattern := p.mux.Handler(r)
	if _, listed := p.costs[pattern]; pattern != "" && !listed {
		_, pattern = p.mux.Handler(withSlash(r))
	}
	return p.costs.Of(pattern)
}

// withSlash returns a request for the path of r with a slash at its end. It has only the
// fields that a ServeMux reads. If a ServeMux has a pattern only for that path, it redirects r
// there. For the method CONNECT, Handler then returns the path instead of the pattern.
func withSlash(r *http.Request) *http.Request {
	u := *r.URL
	u.Path += "/"
	if u.RawPath != "" {
		u.RawPath += "/"
	}
	return &http.Request{Method: r.Method, Host: r.Host, URL: &u}
}
