package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// BenchmarkTransport measures the cost that a Transport adds to its base if no request
// has to wait.
func BenchmarkTransport(b *testing.B) {
	resp := &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{
		"Ratelimit": {`"default";r=999999;t=60, "hour";r=9999999;t=3600`},
	}}
	base := roundTripFunc(func(*http.Request) (*http.Response, error) { return resp, nil })
	fast := tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 1 << 40}
	hosts, err := keyed.New[string](fast)
	require.NoError(b, err)
	for _, row := range []struct {
		name    string
		buckets httplimit.HostBuckets
		opts    []httplimit.TransportOption
	}{
		{"one bucket", httplimit.AllHosts(tokenbucket.MustNew(fast)), nil},
		{"a bucket for each host", hosts, nil},
		{"with prices", hosts, []httplimit.TransportOption{httplimit.WithTransportCosts(tokenbucket.Costs{"GET /export": 5})}},
		{"with fields", hosts, []httplimit.TransportOption{httplimit.WithRateLimitFields()}},
		{"with an observer", hosts, []httplimit.TransportOption{httplimit.WithTransportObserver(func(httplimit.TransportEvent) {})}},
	} {
		b.Run(row.name, func(b *testing.B) {
			transport, err := httplimit.NewTransport(row.buckets, append(row.opts, httplimit.WithBase(base))...)
			require.NoError(b, err)
			req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := transport.RoundTrip(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
