package httplimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestUnlimitedSetsNoFields(t *testing.T) {
	g := newGateway(t, []tokenbucket.Limit{tokenbucket.Unlimited()}, httplimit.WithExposedFields())
	for range 3 {
		answer := g.get("/")
		require.Equal(t, 200, answer.StatusCode)
		requireFields(t, map[string]string{}, answer)
		require.Empty(t, answer.Header.Values("Access-Control-Expose-Headers"))
	}
}

func TestGateHasNoFiguresOfUnlimited(t *testing.T) {
	bucket := tokenbucket.MustNew(tokenbucket.Unlimited(), tokenbucket.WithClock(new(waittest.Clock)))
	gate, err := httplimit.NewGate(httplimit.Shared(bucket))
	require.NoError(t, err)
	for _, goesOn := range []bool{true, false} {
		answer := gate.Ask(t.Context(), "", 1)
		require.Equal(t, goesOn, answer.GoesOn())
		require.Empty(t, answer.AppendRateLimit(nil))
		require.Empty(t, answer.RateLimitPolicy())
		bucket.Pause(time.Second)
	}
}

// A pause still holds, and a cost above 2^42 is still refused.
func TestRefusalsOfUnlimited(t *testing.T) {
	bucket := tokenbucket.MustNew(tokenbucket.Unlimited(), tokenbucket.WithClock(new(waittest.Clock)))
	bucket.Pause(2 * time.Second)
	answer := newGatewayOf(t, httplimit.Shared(bucket)).get("/")
	require.Equal(t, 429, answer.StatusCode)
	requireFields(t, map[string]string{"Retry-After": "3", "Cache-Control": "no-store"}, answer)

	answer = newGateway(t, []tokenbucket.Limit{tokenbucket.Unlimited()}, costing(1<<42+1)).get("/")
	require.Equal(t, 429, answer.StatusCode)
	requireFields(t, map[string]string{"Cache-Control": "no-store"}, answer)
}

func TestUnlimitedBesideALimit(t *testing.T) {
	want := map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "2",
		"RateLimit": `"client";r=9;t=18`, "RateLimit-Policy": `"client";q=10;w=20`,
	}
	limits := []tokenbucket.Limit{tenHalf[0], tokenbucket.Unlimited()}
	requireFields(t, want, newGateway(t, limits, httplimit.WithPolicyNames("client", "everybody")).get("/"))

	everybody := tokenbucket.MustNew(tokenbucket.Unlimited(), tokenbucket.WithClock(new(waittest.Clock)))
	client := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)))
	for _, c := range []struct {
		first, second *tokenbucket.Bucket
		names         []string
	}{
		{client, everybody, []string{"client", "everybody"}},
		{everybody, client, []string{"everybody", "client"}},
	} {
		client.Fill()
		both := httplimit.Both(httplimit.Shared(c.first), httplimit.Shared(c.second))
		requireFields(t, want, newGatewayOf(t, both, httplimit.WithPolicyNames(c.names...)).get("/"))
	}
}

func TestLimitsThatBecomeUnlimited(t *testing.T) {
	bucket := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)))
	g := newGatewayOf(t, httplimit.Shared(bucket))
	require.NotEmpty(t, g.get("/").Header.Get("RateLimit"))
	require.NoError(t, bucket.SetLimits(tokenbucket.Unlimited()))
	requireFields(t, map[string]string{}, g.get("/"))
	require.NoError(t, bucket.SetLimits(tenHalf[0]))
	require.NotEmpty(t, g.get("/").Header.Get("RateLimit"))
}
