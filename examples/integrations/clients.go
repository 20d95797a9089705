package integrations

import (
	"net/http"
	"slices"

	"github.com/go-resty/resty/v2"
	"github.com/gocolly/colly/v2"
	"github.com/google/go-github/v88/github"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// Resty returns a client of resty v2 whose requests wait for tokens. A timeout by
// SetTimeout includes the wait.
func Resty(transport *httplimit.Transport) *resty.Client {
	return resty.New().SetTransport(transport)
}

// Colly makes a collector wait for tokens before each request. If the transport has
// keyed buckets, each host has a bucket of its own. Colly's client has a timeout of 10
// seconds, the wait included: set a longer one with SetRequestTimeout.
func Colly(collector *colly.Collector, transport *httplimit.Transport) {
	collector.WithTransport(transport)
}

// GitHub returns a client of go-github that waits for tokens, and during the pauses that
// GitHub demands. A 403 counts as a refusal if it has a Retry-After, as those of the
// secondary limits have. With httplimit.WithRetries among the options, such a request is
// sent again after the wait. Then go-github does not see the refusal; otherwise it would
// refuse further requests by itself.
func GitHub(buckets httplimit.HostBuckets, opts ...httplimit.TransportOption) (*github.Client, error) {
	transport, err := httplimit.NewTransport(buckets, append(slices.Clip(opts),
		httplimit.WithRateLimitFields(),
		httplimit.WithTooFastFunc(func(resp *http.Response) bool {
			return resp.StatusCode == http.StatusForbidden && resp.Header.Get("Retry-After") != ""
		}))...)
	if err != nil {
		return nil, err
	}
	return github.NewClient(github.WithTransport(transport))
}
