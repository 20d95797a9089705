package httplimit_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// These limiters have some of the methods of levels.
type (
	taking      struct{ all *levels }
	refunding   struct{ taking }
	charging    struct{ taking }
	eachTaking  struct{ refunding }
	eachSparing struct{ eachTaking }
	eachDrawing struct{ eachTaking }
)

func (l taking) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	return l.all.Take(ctx, key, cost)
}

func (l taking) Limits() []tokenbucket.Limit { return l.all.Limits() }

func (l refunding) Refund(ctx context.Context, key string, cost float64) error {
	return l.all.Refund(ctx, key, cost)
}

func (l charging) Charge(ctx context.Context, key string, cost float64) error {
	return l.all.Charge(ctx, key, cost)
}

func (l eachTaking) TakeEach(ctx context.Context, key string, costs ...float64) (tokenbucket.Decision, error) {
	return l.all.TakeEach(ctx, key, costs...)
}

func (l eachTaking) Charge(ctx context.Context, key string, cost float64) error {
	return l.all.Charge(ctx, key, cost)
}

func (l eachSparing) RefundEach(ctx context.Context, key string, costs ...float64) error {
	return l.all.RefundEach(ctx, key, costs...)
}

func (l eachDrawing) ChargeEach(ctx context.Context, key string, costs ...float64) error {
	return l.all.ChargeEach(ctx, key, costs...)
}

// half returns a bucket with 5 of 10 tokens.
func half() *levels {
	l := newLevels(10)
	l.tokens[0] = 5
	return l
}

// Both has the methods that both of its limiters have. The others change nothing.
func TestBothHasTheMethodsOfBoth(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*levels) httplimit.Limiter
		has  string
		with []httplimit.Option // an option that needs more
	}{
		"Take":       {func(l *levels) httplimit.Limiter { return taking{l} }, "", []httplimit.Option{httplimit.WithAdmission()}},
		"Refund":     {func(l *levels) httplimit.Limiter { return refunding{taking{l}} }, "Refund", []httplimit.Option{httplimit.WithAdmission()}},
		"Charge":     {func(l *levels) httplimit.Limiter { return charging{taking{l}} }, "Charge", []httplimit.Option{httplimit.WithAdmission()}},
		"TakeEach":   {func(l *levels) httplimit.Limiter { return eachTaking{refunding{taking{l}}} }, "Refund Charge TakeEach", []httplimit.Option{httplimit.WithAdmission(), costingEach(1, 1)}},
		"RefundEach": {func(l *levels) httplimit.Limiter { return eachSparing{eachTaking{refunding{taking{l}}}} }, "Refund Charge TakeEach RefundEach", []httplimit.Option{httplimit.WithAdmission(), costingEach(1, 1)}},
		"ChargeEach": {func(l *levels) httplimit.Limiter { return eachDrawing{eachTaking{refunding{taking{l}}}} }, "Refund Charge TakeEach ChargeEach", []httplimit.Option{httplimit.WithAdmission(), costingEach(1, 1)}},
		"all":        {func(l *levels) httplimit.Limiter { return l }, "Refund Charge TakeEach RefundEach ChargeEach", nil},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := half(), half()
			both := settler(httplimit.Both(first, c.of(second)))
			requireMethods(t, both, c.has, first, second)
			nested := settler(httplimit.Both(newLevels(10), both))
			requireMethods(t, nested, c.has, first, second)
			if c.with != nil {
				_, err := httplimit.New(both, c.with...)
				require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
			}
		})
	}
}

// requireMethods calls all methods that may be missing, with a cost of 1 for each limit.
func requireMethods(t *testing.T, both eachSettler, has string, first, second *levels) {
	t.Helper()
	ctx, costs := context.Background(), make([]float64, len(both.(interface{ Limits() []tokenbucket.Limit }).Limits()))
	for i := range costs {
		costs[i] = 1
	}
	for method, call := range map[string]func() error{
		"Refund":     func() error { return both.Refund(ctx, "", 1) },
		"Charge":     func() error { return both.Charge(ctx, "", 1) },
		"TakeEach":   func() error { _, err := both.TakeEach(ctx, "", costs...); return err },
		"RefundEach": func() error { return both.RefundEach(ctx, "", costs...) },
		"ChargeEach": func() error { return both.ChargeEach(ctx, "", costs...) },
	} {
		first.tokens[0], second.tokens[0] = 5, 5
		err := call()
		if slices.Contains(strings.Fields(has), method) {
			require.NoError(t, err, method)
			require.NotEqual(t, 5.0, first.tokens[0], method)
			require.Equal(t, first.tokens, second.tokens, method)
			continue
		}
		require.ErrorIs(t, err, errors.ErrUnsupported, method)
		require.Equal(t, []float64{5, 5}, []float64{first.tokens[0], second.tokens[0]}, method)
	}
}

// Costs for each limit can be divided only if all limiters but the last report their limits.
func TestBothDividesCostsByLimits(t *testing.T) {
	ctx := context.Background()
	silent, last := half(), half()
	for name, first := range map[string]httplimit.Refunder{
		"the first":            silentLevels{silent},
		"the second of nested": httplimit.Both(half(), silentLevels{silent}).(httplimit.Refunder),
	} {
		both := settler(httplimit.Both(first, last))
		_, err := httplimit.New(both, costingEach(1, 1))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
		for n := range 4 {
			costs := make([]float64, n)
			_, err := both.TakeEach(ctx, "", costs...)
			require.ErrorIs(t, err, errors.ErrUnsupported, name)
			require.ErrorIs(t, both.RefundEach(ctx, "", costs...), errors.ErrUnsupported, name)
			require.ErrorIs(t, both.ChargeEach(ctx, "", costs...), errors.ErrUnsupported, name)
		}
		require.NoError(t, both.Refund(ctx, "", 1), name)
	}
	_, err := httplimit.New(httplimit.Both(eachTaking{refunding{taking{half()}}}, half()), costingEach(1, 1))
	require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, "the first has no RefundEach")
}

// The first limiter must take tokens back, also if Both made it.
func TestBothNeedsAFirstLimiterThatRefunds(t *testing.T) {
	inner := httplimit.Both(half(), taking{half()})
	_, err := httplimit.New(inner)
	require.NoError(t, err)
	for _, limiter := range []httplimit.Limiter{
		httplimit.Both(inner.(httplimit.Refunder), half()),
		httplimit.Both(half(), httplimit.Both(inner.(httplimit.Refunder), half())),
	} {
		_, err = httplimit.New(limiter)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
		require.ErrorContains(t, err, "no Refund")
		_, err = httplimit.NewGate(half(), httplimit.WithFallback(limiter))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption)
	}
}

// The first limiter may report any number of tokens.
func TestBothReportsNoNegativeRemaining(t *testing.T) {
	endless := mute{fixed{OK: true, Tokens: math.Inf(1), Limit: tokenbucket.Limit{Capacity: 1 << 42, RefillPerSec: 1}}}
	empty := fixed{Wait: time.Second, Tokens: 0.5, Limit: tokenbucket.Limit{Capacity: 3, RefillPerSec: 1}}
	answer := newGatewayOf(t, httplimit.Both(endless, empty)).get("/")
	require.Equal(t, "0", answer.Header.Get("X-RateLimit-Remaining"))
	require.Equal(t, `"default";r=0;t=1`, answer.Header.Get("RateLimit"))
}

// eachFixed is fixed also for costs of several limits.
type eachFixed struct{ fixed }

func (f eachFixed) TakeEach(context.Context, string, ...float64) (tokenbucket.Decision, error) {
	return tokenbucket.Decision(f.fixed), nil
}

func TestARefusalWithoutALimitSaysWhenToRetry(t *testing.T) {
	answer := newGatewayOf(t, eachFixed{fixed{Wait: 5 * sec, LimitIndex: -1}}, costingEach(1, 2)).get("/")
	require.Equal(t, "5", answer.Header.Get("Retry-After"))
	require.Equal(t, "Retry in 5 s.", body(t, answer)["detail"])
}

// A free request is admitted behind a queue. Then the time until the bucket is full is exact,
// but the level is rounded.
func TestFreeRequestsBehindAQueueReportAPossibleTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		clock := new(waittest.Clock)
		bucket := tokenbucket.MustNew(tokenbucket.PerSecond(1000), tokenbucket.WithClock(clock))
		require.NoError(t, bucket.Charge(900))
		for range 200 {
			busy := time.Duration(random.Float64() * 10e9)
			clock.Add(busy)
			require.NoError(t, bucket.Charge(float64(int(busy.Seconds()*1000))))
		}
		for range 3 {
			_, err := bucket.Reserve(float64(1 + random.IntN(1000)))
			require.NoError(t, err)
		}
		limit := newGatewayOf(t, httplimit.Shared(bucket), costing(0)).get("/").Header.Get("RateLimit")
		require.Less(t, len(limit), len(`"default";r=0;t=99999`), limit)
	}
}

func TestOptionsKeepNothingOfTheCaller(t *testing.T) {
	header, name, prices := []string{"X-Tenant"}, []string{"mine"}, tokenbucket.Costs{"/": 2}
	opts := []httplimit.Option{httplimit.WithKeyHeader(header...), httplimit.WithPolicyNames(name...), httplimit.WithCosts(prices)}
	header[0], name[0], prices["/"] = "X-Other", "other", 3
	g := newGatewayOf(t, newLevels(10), opts...)
	answer := g.get("/", func(r *http.Request) { r.Header = http.Header{"X-Tenant": {"a"}, "X-Other": {"b"}} })
	require.Contains(t, answer.Header.Get("RateLimit"), `"mine"`)
	require.Equal(t, 2.0, g.lastEvent().Cost)
	require.Equal(t, "X-Tenant:a", g.lastEvent().Key)
}
