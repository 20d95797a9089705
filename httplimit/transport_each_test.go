package httplimit_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// 3 requests and 1000 tokens a minute, as a language-model API allows.
var requestsAndTokens = []tokenbucket.Limit{tokenbucket.PerMinute(3), tokenbucket.PerMinute(1000)}

// byPath returns the costs of a request: 1 request, and the number of tokens in its path.
func byPath(req *http.Request) []float64 {
	switch req.URL.Path {
	case "/small":
		return []float64{1, 1}
	case "/large":
		return []float64{1, 400}
	case "/free":
		return []float64{0, 0}
	case "/huge":
		return []float64{1, 1001}
	case "/wrong":
		return []float64{1}
	default:
		return []float64{math.NaN(), 1}
	}
}

func TestTransportCostEach(t *testing.T) {
	hostByHost := func(t *testing.T) httplimit.HostBuckets {
		hosts, err := keyed.New[string](requestsAndTokens[0], keyed.WithLimit(requestsAndTokens[1]))
		require.NoError(t, err)
		return hosts
	}
	oneForAll := func(*testing.T) httplimit.HostBuckets {
		return httplimit.AllHosts(tokenbucket.MustNew(requestsAndTokens[0], tokenbucket.WithLimit(requestsAndTokens[1])))
	}
	for name, newBuckets := range map[string]func(*testing.T) httplimit.HostBuckets{"one bucket": oneForAll, "a bucket for each host": hostByHost} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				var o observer
				client := s.client(newBuckets(t), httplimit.WithTransportCostEach(byPath), o.option())
				for _, path := range []string{"large", "large", "large", "free"} { // the third lacks 200 tokens, which take 12 s
					s.get(client, exampleURL+path)
				}
				require.Equal(t, []time.Duration{0, 0, 12 * time.Second, 12 * time.Second}, s.instants())
				require.Equal(t, httplimit.TransportEvent{Host: "api.example.com", Costs: []float64{1, 400}, Attempt: 1, Waited: 12 * time.Second, Status: 200}, o.events[2])
				for path, want := range map[string]error{
					"huge": tokenbucket.ErrCostExceedsCapacity, "wrong": tokenbucket.ErrInvalidCost, "nan": tokenbucket.ErrInvalidCost,
				} {
					_, err := client.Get(exampleURL + path)
					require.ErrorIs(t, err, want)
				}
				require.Len(t, s.instants(), 4, "nothing is sent")
			})
		})
	}
}

// A free request is not held by a pause, but its retry is.
func TestTransportCostEachOfFreeRequests(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		bucket := tokenbucket.MustNew(requestsAndTokens[0], tokenbucket.WithLimit(requestsAndTokens[1]))
		client := s.client(httplimit.AllHosts(bucket), httplimit.WithTransportCostEach(byPath), httplimit.WithRetries(1))
		bucket.Pause(time.Minute)
		s.will(200).will(429, "Retry-After", "120")
		s.get(client, exampleURL+"free")
		s.get(client, exampleURL+"free")
		at := s.instants()
		require.Equal(t, []time.Duration{0, 0}, at[:2])
		require.Len(t, at, 3)
		require.GreaterOrEqual(t, at[2], 2*time.Minute)
	})
}

func TestTransportCostOptionsOverrideEachOther(t *testing.T) {
	one := func(*http.Request) float64 { return 1 }
	two := func(*http.Request) float64 { return 2 }
	prices := tokenbucket.Costs{"/": 2}
	for _, row := range []struct {
		opts   []httplimit.TransportOption
		tokens float64
	}{
		{[]httplimit.TransportOption{httplimit.WithTransportCostEach(byPath), httplimit.WithTransportCost(one)}, 2},
		{[]httplimit.TransportOption{httplimit.WithTransportCostEach(byPath), httplimit.WithTransportCosts(prices)}, 1},
		{[]httplimit.TransportOption{httplimit.WithTransportCosts(prices), httplimit.WithTransportCostEach(byPath)}, 2},
		{[]httplimit.TransportOption{httplimit.WithTransportCost(nil), httplimit.WithTransportCostEach(byPath)}, 2},
		{[]httplimit.TransportOption{httplimit.WithTransportCost(two), httplimit.WithTransportCosts(nil)}, 2},
		{[]httplimit.TransportOption{httplimit.WithTransportCost(nil), httplimit.WithTransportCosts(tokenbucket.Costs{})}, 2},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			bucket := tokenbucket.MustNew(requestsAndTokens[0], tokenbucket.WithLimit(requestsAndTokens[1]))
			s.get(s.client(httplimit.AllHosts(bucket), row.opts...), exampleURL+"small")
			require.Equal(t, row.tokens, bucket.Tokens())
		})
	}
}

func TestTransportCostEachChecksItsConfiguration(t *testing.T) {
	bucket := httplimit.AllHosts(tokenbucket.MustNew(requestsAndTokens[0], tokenbucket.WithLimit(requestsAndTokens[1])))
	each := httplimit.WithTransportCostEach(byPath)
	for _, row := range []struct {
		buckets httplimit.HostBuckets
		opts    []httplimit.TransportOption
		says    string
	}{
		{bucket, []httplimit.TransportOption{httplimit.WithTransportCostEach(nil)}, "WithTransportCostEach(nil)"},
		{bucket, []httplimit.TransportOption{each, httplimit.WithRateLimitFields()}, "one unit"},
		{&ledger{}, []httplimit.TransportOption{each}, "WaitEach"},
	} {
		_, err := httplimit.NewTransport(row.buckets, row.opts...)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
		require.ErrorContains(t, err, row.says)
	}
	_, err := httplimit.NewTransport(&ledger{}, each, httplimit.WithTransportCost(func(*http.Request) float64 { return 1 }))
	require.NoError(t, err)
	require.NoError(t, bucket.Wait(context.Background(), "", 1))
}
