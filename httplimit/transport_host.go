package httplimit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/aa014e13/tokenbucket"
)

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// hostOf returns the name under which a URL's host has its bucket.
func hostOf(u *url.URL) string {
	if !isASCII(u.Host) {
		u = &url.URL{Scheme: u.Scheme, Host: asciiHost(u.Host)}
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || port == defaultPorts[u.Scheme] {
		return host
	}
	return host + ":" + port
}

// asciiHost returns the ASCII form of an internationalised host name, with its port:
// "xn--bcher-kva.example" for "bücher.example". It is the Host that net/http sends for the
// name in lower case. If net/http refuses to send it, asciiHost returns the name in lower
// case.
func asciiHost(host string) string {
	host = strings.ToLower(host) // first, because upper case has another punycode
	sent := ""
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		WroteHeaderField: func(key string, value []string) {
			if key == "Host" {
				sent = value[0]
			}
		},
	})
	req := (&http.Request{URL: &url.URL{Scheme: "http", Host: host}}).WithContext(ctx)
	if err := req.Write(io.Discard); err != nil || sent == "" {
		return host
	}
	return sent
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// asServed returns a request that has only the fields of req that a ServeMux in the server
// would read.
func asServed(req *http.Request) *http.Request {
	served := &http.Request{Method: req.Method, Host: req.Host, URL: req.URL}
	if served.Method == "" {
		served.Method = http.MethodGet
	}
	if served.Host == "" {
		served.Host = hostOf(req.URL)
	} else if !isASCII(served.Host) {
		served.Host = asciiHost(served.Host)
	}
	served.Host = canonicalHost(served.Host)
	return served
}

// canonicalHost returns a host in lower case and without a final dot, as hostOf does. It keeps
// the port.
func canonicalHost(host string) string {
	host = strings.ToLower(host)
	if name, port, ok := strings.Cut(host, ".:"); ok {
		return name + ":" + port
	}
	return strings.TrimSuffix(host, ".")
}

// asciiPatterns returns prices with the hosts of their patterns in ASCII form and without a
// final dot, as asServed makes them. It returns an error if two patterns have the same form.
func asciiPatterns(prices tokenbucket.Costs) (tokenbucket.Costs, error) {
	ascii := make(tokenbucket.Costs, len(prices))
	for pattern, price := range prices {
		if path := strings.IndexByte(pattern, '/'); path > 0 {
			begin := strings.LastIndexAny(pattern[:path], " \t") + 1
			host := pattern[begin:path]
			if !isASCII(host) {
				host = asciiHost(host)
			}
			if host != "." { // no host: NewTransport would take it for a pattern of all hosts
				host = strings.TrimSuffix(host, ".")
			}
			pattern = pattern[:begin] + host + pattern[path:]
		}
		if _, listed := ascii[pattern]; listed {
			return nil, invalid("price of %q: the host is listed twice, in two spellings: leave one out", pattern)
		}
		ascii[pattern] = price
	}
	return ascii, nil
}
