package httplimit_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// An internationalised name and its punycode form are one host.
func TestTransportInternationalisedHostNames(t *testing.T) {
	for _, row := range []struct{ host, want string }{
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER.example", "xn--bcher-kva.example"},
		{"b%C3%BCcher.example", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
		{"bücher.example.", "xn--bcher-kva.example"},
		{"bücher.example:80", "xn--bcher-kva.example"},
		{"bücher.example:8080", "xn--bcher-kva.example:8080"},
		{"例え.テスト", "xn--r8jz45g.xn--zckzah"},
	} {
		t.Run(row.host, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, buckets := s.hostByHost(oneASecond)
				s.get(client, "http://"+row.host+"/")
				require.Zero(t, buckets.Tokens(row.want))
				require.Equal(t, 1, buckets.Len())
			})
			u, err := url.Parse("http://" + row.host + "/")
			require.NoError(t, err)
			var sent strings.Builder
			u.Host = strings.ToLower(u.Host)
			require.NoError(t, (&http.Request{URL: u}).Write(&sent))
			_, host, _ := strings.Cut(sent.String(), "Host: ")
			host, _, _ = strings.Cut(host, "\r\n")
			require.Equal(t, row.want, strings.TrimSuffix(strings.TrimSuffix(host, ":80"), "."), "as net/http sends it")
		})
	}
}

// A host that net/http refuses to send keeps its name, and the base reports the error.
func TestTransportHostNamesThatCannotBeSent(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		client, buckets := s.hostByHost(oneASecond)
		const host = "é é.example"
		resp, err := client.Transport.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: host}})
		require.NoError(t, err)
		resp.Body.Close()
		require.Zero(t, buckets.Tokens(host))
	})
}

func TestTransportCostsOfInternationalisedHosts(t *testing.T) {
	for _, pattern := range []string{"bücher.example/{path...}", "GET bücher.example/", "GET  xn--bcher-kva.example/"} {
		for _, host := range []string{"bücher.example", "xn--bcher-kva.example"} {
			for _, set := range []string{host, ""} {
				onStage(t, func(t *testing.T, s *stage) {
					client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithTransportCosts(tokenbucket.Costs{pattern: 4}))
					req, err := http.NewRequest(http.MethodGet, "http://"+host+"/é", nil)
					require.NoError(t, err)
					req.Host = set
					resp, err := client.Do(req)
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					resp.Body.Close()
					require.Equal(t, 6.0, bucket.Tokens(), "%s %s", pattern, host)
				})
			}
		}
	}
}

// The price is that of the host whose bucket pays, in any spelling of the host.
func TestTransportCostsOfAnySpellingOfAHost(t *testing.T) {
	prices := httplimit.WithTransportCosts(tokenbucket.Costs{"api.example.com/export": 5, "bücher.example/export": 5, "dot.example./export": 5})
	for _, host := range []string{"dot.example", "dot.example.", "api.example.com", "API.example.com", "api.example.com.", "Api.Example.Com.:80", "BÜCHER.example", "BÜCHER.example.", "xn--bcher-kva.example.:8080"} {
		for _, set := range []string{host, ""} {
			onStage(t, func(t *testing.T, s *stage) {
				client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, prices)
				req, err := http.NewRequest(http.MethodGet, "http://"+host+"/export", nil)
				require.NoError(t, err)
				req.Host = set
				resp, err := client.Transport.RoundTrip(req)
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, 5.0, bucket.Tokens(), host)
			})
		}
	}
}

func TestTransportCostsOfOneHostInTwoForms(t *testing.T) {
	bucket := tokenbucket.MustNew(oneASecond)
	for _, prices := range []tokenbucket.Costs{
		{"bücher.example/x": 1, "xn--bcher-kva.example/x": 1},
		{"GET api.example.com/x": 1, "GET api.example.com./x": 2},
	} {
		for range 10 { // the prices are visited in any order
			_, err := httplimit.NewTransport(httplimit.AllHosts(bucket), httplimit.WithTransportCosts(prices))
			require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
			require.ErrorContains(t, err, "listed twice")
		}
	}
}
