package httplimit_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestFields(t *testing.T) {
	g := newGateway(t, tenHalf, prices)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "2",
		"RateLimit": `"default";r=9;t=18`, "RateLimit-Policy": `"default";q=10;w=20`,
	}, g.get("/read"))
	require.Equal(t, 200, g.get("/export").StatusCode)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "4", "X-RateLimit-Reset": "12",
		"RateLimit": `"default";r=4;t=2`, "RateLimit-Policy": `"default";q=10;w=20`,
		"Retry-After": "2", "Cache-Control": "no-store",
	}, g.get("/export"))
	for range 4 {
		require.Equal(t, 200, g.get("/read").StatusCode)
	}
	g.clock.Set(500 * time.Millisecond)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "20",
		"RateLimit": `"default";r=0;t=2`, "RateLimit-Policy": `"default";q=10;w=20`,
	}, g.get("/free"))
}

func TestFieldsOfFractionsAndExtremes(t *testing.T) {
	for _, c := range []struct {
		capacity, refill   float64
		limit, remaining   string
		reset, rate, quota string
	}{
		{2.5, 100, "2", "1", "1", "r=1;t=1", "q=2;w=1"},
		{3, 0.3, "3", "2", "4", "r=2;t=7", "q=3;w=10"},
		{49, 1. / 49, "49", "48", "49", "r=48;t=2352", "q=49;w=2401"},
		{7, 0.1, "7", "6", "10", "r=6;t=60", "q=7;w=70"},
		{1, 4, "1", "0", "1", "r=0;t=1", "q=1;w=1"},
		{1, 0.3, "1", "0", "4", "r=0;t=4", "q=1;w=4"},
		{1.5, 0.3, "1", "0", "4", "r=0;t=2", "q=1;w=5"}, // half a token is there
		{1e6, 1e9, "1000000", "999999", "1", "r=999999;t=1", "q=1000000;w=1"},
		{1, 1e-11, "1", "0", "100000000000", "r=0;t=100000000000", "q=1;w=100000000000"}, // longer than a Duration
		{1, 1e-300, "1", "0", "999999999999999", "r=0;t=999999999999999", "q=1;w=999999999999999"},
		{2, 1e-300, "2", "1", "999999999999999", "r=1;t=999999999999999", "q=2;w=999999999999999"},
		{1 << 42, 1, "4398046511104", "4398046511103", "1", "r=4398046511103;t=4398046511103", "q=4398046511104;w=4398046511104"},
		{1 << 30, 1e-6, "1073741824", "1073741823", "1000000", "r=1073741823;t=999999999999999", "q=1073741824;w=999999999999999"},
		{1, math.MaxFloat64, "1", "0", "1", "r=0;t=1", "q=1;w=1"},
	} {
		g := newGateway(t, []tokenbucket.Limit{{Capacity: c.capacity, RefillPerSec: c.refill}})
		t.Logf("capacity %v, refill %v", c.capacity, c.refill)
		requireFields(t, map[string]string{
			"X-RateLimit-Limit": c.limit, "X-RateLimit-Remaining": c.remaining, "X-RateLimit-Reset": c.reset,
			"RateLimit": `"default";` + c.rate, "RateLimit-Policy": `"default";` + c.quota,
		}, g.get("/"))
	}
	half := newGateway(t, []tokenbucket.Limit{{Capacity: 0.5, RefillPerSec: 0.1}}, costing(0.5)).get("/")
	require.Equal(t, "0", half.Header.Get("X-RateLimit-Limit"))
	require.Equal(t, `"default";r=0;t=5`, half.Header.Get("RateLimit"), "there will never be one token: until it is full")
	half = newGateway(t, []tokenbucket.Limit{{Capacity: 0.5, RefillPerSec: 0.1}}, costing(0)).get("/")
	require.Equal(t, `"default";r=0;t=1`, half.Header.Get("RateLimit"), "and full it is")
}

// The fields have the decision's times in whole seconds, rounded up.
func TestFiguresAreThoseOfTheDecision(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	refills := []float64{0.1, 0.3, 0.7, 1. / 3, 1. / 49, 30. / 60, 299. / 3600, 7, 1000}
	for range 20_000 {
		limit := tokenbucket.Limit{Capacity: float64(1 + random.IntN(300)), RefillPerSec: refills[random.IntN(len(refills))]}
		clock := new(waittest.Clock)
		bucket, err := tokenbucket.New(limit, tokenbucket.WithClock(clock))
		require.NoError(t, err)
		require.NoError(t, bucket.Charge(float64(random.IntN(int(limit.Capacity)))))
		clock.Set(time.Duration(random.IntN(10)) * sec)
		g := newGatewayOf(t, httplimit.Shared(bucket), costing([]float64{0, 0.1, 0.25, 1}[random.IntN(4)]))
		answer := g.get("/")
		d := g.lastEvent().Decision
		reset, _ := tokenbucket.RetryAfter(d.Reset())
		require.Equal(t, fmt.Sprint(reset), answer.Header.Get("X-RateLimit-Reset"), "%+v", d)
		if d.OK && d.Remaining() > 0 {
			_, refilled := limit.Take(tokenbucket.State{}, 0, float64(d.Remaining()))
			seconds, _ := refilled.RetryAfter()
			require.Equal(t, fmt.Sprintf(`"default";r=%d;t=%d`, d.Remaining(), seconds), answer.Header.Get("RateLimit"), "%+v", d)
		}
	}
}

func TestRemainingIsWholeAndNeverNegative(t *testing.T) { // gofiber/limiter#1
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 2, RefillPerSec: 1}})
	for _, want := range []string{"1", "0", "0"} {
		require.Equal(t, want, g.get("/").Header.Get("X-RateLimit-Remaining"))
	}
	bucket := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)))
	require.NoError(t, bucket.Charge(15.5))
	debt := newGatewayOf(t, httplimit.Shared(bucket)).get("/")
	require.Equal(t, "0", debt.Header.Get("X-RateLimit-Remaining"))
	require.Equal(t, `"default";r=0;t=13`, debt.Header.Get("RateLimit"))
	require.Equal(t, "13", debt.Header.Get("Retry-After"))
}

func TestFreeRequestsOfAPausedBucket(t *testing.T) {
	bucket := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)))
	bucket.Pause(7 * sec)
	g := newGatewayOf(t, httplimit.Shared(bucket), prices)
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "27",
		"RateLimit": `"default";r=0;t=9`, "RateLimit-Policy": `"default";q=10;w=20`,
	}, g.get("/free"))
	require.Equal(t, "9", g.get("/read").Header.Get("Retry-After"))
	require.NoError(t, bucket.Refund(10)) // kept for afterwards
	require.Equal(t, `"default";r=0;t=7`, g.get("/free").Header.Get("RateLimit"))
	bucket.Pause(tokenbucket.Never)
	require.Equal(t, "999999999999999", g.get("/free").Header.Get("X-RateLimit-Reset"))
	require.Empty(t, g.get("/read").Header.Get("Retry-After"))
}

func TestFamiliesCanBeTurnedOff(t *testing.T) {
	requireFields(t, map[string]string{"RateLimit": `"default";r=9;t=18`, "RateLimit-Policy": `"default";q=10;w=20`},
		newGateway(t, tenHalf, httplimit.WithoutXRateLimit()).get("/"))
	requireFields(t, map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "2"},
		newGateway(t, tenHalf, httplimit.WithoutRateLimit()).get("/"))
	neither := newGateway(t, tenHalf, httplimit.WithoutRateLimit(), httplimit.WithoutXRateLimit(), costing(10))
	requireFields(t, map[string]string{}, neither.get("/"))
	requireFields(t, map[string]string{"Retry-After": "20", "Cache-Control": "no-store"}, neither.get("/"))
}

func TestUnixReset(t *testing.T) {
	clock := waittest.NewClock(time.Unix(1_700_000_000, 1))
	reset := func(limit tokenbucket.Limit) string {
		return newGateway(t, []tokenbucket.Limit{limit}, httplimit.WithUnixReset(clock)).get("/").Header.Get("X-RateLimit-Reset")
	}
	require.Equal(t, "1700000003", reset(tenHalf[0]), "rounded up")
	clock.Set(sec - 1)
	require.Equal(t, "1700000003", reset(tenHalf[0]))
	require.Equal(t, "101700000001", reset(tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-11}))
	require.Equal(t, "999999999999999", reset(tokenbucket.Limit{Capacity: 1, RefillPerSec: 1e-300}))
	synctest.Test(t, func(t *testing.T) { // by the system clock: 2000-01-01
		require.Equal(t, "946684802", newGateway(t, tenHalf, httplimit.WithUnixReset(nil)).get("/").Header.Get("X-RateLimit-Reset"))
	})
}

// Tests of fields that a handler sets itself.

func TestHandlersOwnFieldsWin(t *testing.T) { // flask-limiter#143
	own := map[string]string{
		"X-RateLimit-Limit": "7", "X-RateLimit-Remaining": "6", "X-RateLimit-Reset": "5",
		"RateLimit": "mine", "RateLimit-Policy": "mine too", "Retry-After": "120", "Cache-Control": "private",
	}
	handler := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range own {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 503, w.Code)
	requireFields(t, own, w.Result())
}

func TestAHandlerThatAddsToAFieldChangesNoOther(t *testing.T) {
	handler := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"} {
			w.Header().Add(name, "more")
		}
	}))
	for range 2 { // nor those of the next answer
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		h := w.Result().Header
		require.Equal(t, []string{"10", "more"}, h.Values("X-RateLimit-Limit"))
		require.Equal(t, []string{`"default";q=10;w=20`, "more"}, h.Values("RateLimit-Policy"))
		require.Regexp(t, `^\[\d+ more\]$`, fmt.Sprint(h.Values("X-RateLimit-Remaining")))
		require.Regexp(t, `^\[\d+ more\]$`, fmt.Sprint(h.Values("X-RateLimit-Reset")))
		require.Regexp(t, `^\["default";r=\d+;t=\d+ more\]$`, fmt.Sprint(h.Values("RateLimit")))
	}
}

// Policies.

func TestSeveralLimits(t *testing.T) {
	limits := []tokenbucket.Limit{{Capacity: 10, RefillPerSec: 10}, {Capacity: 2, RefillPerSec: 0.1}, {Capacity: 300, RefillPerSec: 1}}
	g := newGateway(t, limits, httplimit.WithPolicyNames("burst", "day"))
	g.get("/")
	answer := g.get("/")
	policy := `"burst";q=10;w=1, "day";q=2;w=20, "day-2";q=300;w=300`
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "20",
		"RateLimit": `"day";r=0;t=10`, "RateLimit-Policy": policy,
	}, answer)
	refused := g.get("/")
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "20",
		"RateLimit": `"day";r=0;t=10`, "RateLimit-Policy": policy, "Retry-After": "10", "Cache-Control": "no-store",
	}, refused)
	require.Equal(t, []any{"day"}, body(t, refused)["violated-policies"])
	require.Equal(t, `"default";q=10;w=1, "default-2";q=2;w=20, "default-3";q=300;w=300`,
		newGateway(t, limits).get("/").Header.Get("RateLimit-Policy"))
}

func TestPolicyNamesAreStructuredStrings(t *testing.T) {
	for name, quoted := range map[string]string{
		"a": `"a"`, " ~": `" ~"`, `"`: `"\""`, `\`: `"\\"`, `a "b" \c`: `"a \"b\" \\c"`, "x;q=1, y": `"x;q=1, y"`,
	} {
		g := newGateway(t, tenHalf, httplimit.WithPolicyNames(name), costing(10))
		require.Equal(t, quoted+";q=10;w=20", g.get("/").Header.Get("RateLimit-Policy"))
		refused := g.get("/")
		require.Equal(t, quoted+";r=0;t=20", refused.Header.Get("RateLimit"))
		require.Equal(t, []any{name}, body(t, refused)["violated-policies"], "JSON has its own quoting")
	}
}

func TestLimitsThatChange(t *testing.T) {
	bucket := tokenbucket.MustNew(tenHalf[0], tokenbucket.WithClock(new(waittest.Clock)))
	g := newGatewayOf(t, httplimit.Shared(bucket))
	g.get("/")
	require.NoError(t, bucket.SetLimits(tokenbucket.Limit{Capacity: 20, RefillPerSec: 1}))
	requireFields(t, map[string]string{
		"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "8", "X-RateLimit-Reset": "12",
		"RateLimit": `"default";r=8;t=8`, "RateLimit-Policy": `"default";q=20;w=20`,
	}, g.get("/"))
}

func TestPolicyFollowsALimitThatDoesNotBind(t *testing.T) {
	minute, hour := tokenbucket.Limit{Capacity: 30, RefillPerSec: 0.5}, tokenbucket.Limit{Capacity: 3000, RefillPerSec: 1}
	bucket := tokenbucket.MustNew(minute, tokenbucket.WithLimit(hour), tokenbucket.WithClock(new(waittest.Clock)))
	g := newGatewayOf(t, httplimit.Shared(bucket))
	require.Equal(t, `"default";q=30;w=60, "default-2";q=3000;w=3000`, g.get("/").Header.Get("RateLimit-Policy"))
	hour.Capacity = 2000
	require.NoError(t, bucket.SetLimits(minute, hour))
	answer := g.get("/")
	require.Equal(t, `"default";r=28;t=56`, answer.Header.Get("RateLimit"), "still the first")
	require.Equal(t, `"default";q=30;w=60, "default-2";q=2000;w=2000`, answer.Header.Get("RateLimit-Policy"))
}

// A limiter from outside this module may return its own slice of limits, and overwrite it
// later.
func TestPolicyFollowsLimitsWrittenOver(t *testing.T) {
	limiter := &telling{fixed{OK: true, Tokens: 3, Limit: tenHalf[0]}, []tokenbucket.Limit{tenHalf[0]}}
	g := newGatewayOf(t, limiter)
	require.Equal(t, `"default";q=10;w=20`, g.get("/").Header.Get("RateLimit-Policy"))
	limiter.limits[0] = tokenbucket.Limit{Capacity: 7, RefillPerSec: 1}
	limiter.fixed.Limit = limiter.limits[0]
	require.Equal(t, `"default";q=7;w=7`, g.get("/").Header.Get("RateLimit-Policy"))
}

func TestDecisionByALimitThatHasJustChanged(t *testing.T) {
	client, everyone := tenHalf[0], tokenbucket.Limit{Capacity: 5, RefillPerSec: 1}
	d := tokenbucket.Decision{Wait: 1, Limit: everyone}
	limiter := &telling{fixed(d), []tokenbucket.Limit{client, everyone}}
	g := newGatewayOf(t, limiter, httplimit.WithPolicyNames("client", "everyone"))
	g.get("/")
	limiter.limits = []tokenbucket.Limit{client, {Capacity: 6, RefillPerSec: 1}} // after this decision
	refused := g.get("/")
	require.Equal(t, `"everyone";r=0;t=1`, refused.Header.Get("RateLimit"))
	require.Equal(t, `"client";q=10;w=20, "everyone";q=5;w=5`, refused.Header.Get("RateLimit-Policy"))
	requireBody(t, quotaExceeded(1, d, "everyone"), refused.Body)
}

// A limiter may have no limit for some requests. The fields are valid Lists all the same.
func TestLimitsThatAreNoneAreStructured(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64}
	for _, capacity := range odd {
		for _, refill := range odd {
			limits := []tokenbucket.Limit{tenHalf[0], {Capacity: capacity, RefillPerSec: refill}}
			answer := newGatewayOf(t, reporting{fixed{OK: true, Limit: tenHalf[0]}, limits}).get("/")
			require.Len(t, parseItems(t, answer.Header.Get("RateLimit-Policy")), 2)
			require.Equal(t, `"default";r=0;t=2`, answer.Header.Get("RateLimit"))
		}
	}
}

func TestLimitsThatChangeUnderRequests(t *testing.T) {
	limit, other := tokenbucket.Limit{Capacity: 1e6, RefillPerSec: 1e6}, tokenbucket.Limit{Capacity: 2e6, RefillPerSec: 1e6}
	second := tokenbucket.Limit{Capacity: 3e6, RefillPerSec: 1}
	bucket := tokenbucket.MustNew(limit, tokenbucket.WithLimit(second))
	handler := newMiddleware(t, httplimit.Shared(bucket))(http.NotFoundHandler())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				assert.Regexp(t, `^"default(-2)?";r=\d+;t=\d+$`, w.Header().Get("RateLimit"))
				assert.Regexp(t, `^"default";q=\d+;w=\d+(, "default-2";q=3000000;w=3000000)?$`, w.Header().Get("RateLimit-Policy"))
			}
		})
	}
	for range 200 {
		limit, other = other, limit
		assert.NoError(t, bucket.SetLimits(limit, second))
	}
	group.Wait()
}

// tiers uses another limiter for clients that pay.
type tiers struct{ free, paid httplimit.Limiter }

func (l tiers) Take(ctx context.Context, key string, cost float64) (tokenbucket.Decision, error) {
	if strings.HasPrefix(key, "paid") {
		return l.paid.Take(ctx, key, cost)
	}
	return l.free.Take(ctx, key, cost)
}

func TestLimiterWithALimitForEveryTier(t *testing.T) {
	paid := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 600, RefillPerSec: 10}))
	free := httplimit.Shared(tokenbucket.MustNew(tokenbucket.Limit{Capacity: 6, RefillPerSec: 0.1}))
	key := ""
	g := newGatewayOf(t, tiers{free, paid}, httplimit.WithKey(func(*http.Request) string { return key }))
	for range 2 {
		key = "free"
		require.Equal(t, `"default";q=6;w=60`, g.get("/").Header.Get("RateLimit-Policy"))
		key = "paid"
		require.Equal(t, `"default";q=600;w=60`, g.get("/").Header.Get("RateLimit-Policy"))
	}
}

func TestPolicyNamesNeverStandTwice(t *testing.T) {
	limits := slices.Repeat(tenHalf, 5)
	answer := newGateway(t, limits, httplimit.WithPolicyNames("a-2", "a")).get("/")
	var names []string
	for _, item := range parseItems(t, answer.Header.Get("RateLimit-Policy")) {
		names = append(names, item.text)
	}
	require.Equal(t, []string{"a-2", "a", "a-3", "a-4", "a-5"}, names)
}

// The remaining cost counts all limits together, so a limit other than the decision's may
// have no tokens left.
func TestWhatIsLeftIsThereForTheNextSeconds(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		limit := func() tokenbucket.Limit {
			return tokenbucket.Limit{Capacity: float64(5 + random.IntN(10)), RefillPerSec: math.Exp(random.Float64()*8 - 4)}
		}
		clock := new(waittest.Clock)
		bucket, err := tokenbucket.New(limit(), tokenbucket.WithLimit(limit()), tokenbucket.WithClock(clock))
		require.NoError(t, err)
		g := newGatewayOf(t, httplimit.Shared(bucket), costing([]float64{0, 0.5, 1, 5}[random.IntN(4)]))
		answer := g.get("/")
		for range 1 + random.IntN(20) {
			if next := g.get("/"); next.StatusCode == 200 {
				answer = next
			}
		}
		left := parseItems(t, answer.Header.Get("RateLimit"))[0].parameters
		if left["r"] > 0 {
			_, ok := bucket.TryAcquire(float64(left["r"]))
			require.True(t, ok)
			continue
		}
		clock.Set(time.Duration(left["t"]) * sec)
		_, ok := bucket.TryAcquire(1)
		require.True(t, ok, "with r=0, until there is one token: %v of %+v", answer.Header, bucket.Limits())
	}
}

func TestNothingLeftOfALimitThatDoesNotBind(t *testing.T) {
	fast := tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}
	for short, want := range map[tokenbucket.Limit]string{
		{Capacity: 5, RefillPerSec: 0.01}:   `"default";r=0;t=100`,
		{Capacity: 0.5, RefillPerSec: 0.01}: `"default";r=0;t=50`, // there will never be one token: until it is full
	} {
		cost := short.Capacity
		g := newGateway(t, []tokenbucket.Limit{fast, short, fast}, httplimit.WithCost(func(*http.Request) float64 { return cost }))
		require.Equal(t, 200, g.get("/").StatusCode)
		cost = 0 // so no limit waits, and the decision describes the first
		require.Equal(t, want, g.get("/").Header.Get("RateLimit"))
	}
}

// Structured fields.

// item is an Item of a List of Strings whose parameters are Integers.
type item struct {
	text       string
	keys       []string
	parameters map[string]int64
}

// parseItems parses a field by RFC 9651, section 4.2. Values other than Strings and
// Integers are errors.
func parseItems(t *testing.T, field string) (items []item) {
	t.Helper()
	s := field
	next := func(set string) string { // takes the characters of a set
		taken := s[:len(s)-len(strings.TrimLeft(s, set))]
		s = s[len(taken):]
		return taken
	}
	take := func(char byte) {
		require.NotEmpty(t, s, field)
		require.Equal(t, string(char), s[:1], "in %s", field)
		s = s[1:]
	}
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyz"
	for {
		it := item{parameters: map[string]int64{}}
		take('"')
		for ; s != "" && s[0] != '"'; s = s[1:] {
			if s[0] == '\\' {
				s = s[1:]
				require.Contains(t, `"\`, s[:1], field)
			}
			require.True(t, s[0] >= ' ' && s[0] <= '~', field)
			it.text += s[:1]
		}
		take('"')
		for strings.HasPrefix(s, ";") {
			take(';')
			key := next(letters)
			require.NotEmpty(t, key, field)
			take('=')
			number := next(digits)
			require.Regexp(t, `^(0|[1-9]\d{0,14})$`, number, field)
			n, err := strconv.ParseInt(number, 10, 64)
			require.NoError(t, err)
			require.NotContains(t, it.parameters, key, field)
			it.keys, it.parameters[key] = append(it.keys, key), n
		}
		items = append(items, it)
		if s == "" {
			return items
		}
		next(" \t")
		take(',')
		next(" \t")
	}
}

// randomName returns a name that begins with its number, so that no two are equal.
func randomName(random *rand.Rand, number int) string {
	const special = `"\<>&;=,%{}`
	text := []byte{byte('0' + number)}
	for range random.IntN(8) {
		text = append(text, special[random.IntN(len(special))], byte(' '+random.IntN('~'-' '+1)))
	}
	return string(text)
}

func TestFieldsAreStructured(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	limit := func() tokenbucket.Limit {
		return tokenbucket.Limit{
			Capacity:     min(1<<42, math.Exp(random.Float64()*32-2)),
			RefillPerSec: math.Exp(random.Float64()*1400 - 700), // 1e-304 to 1e304
		}
	}
	for range 1000 {
		limits := []tokenbucket.Limit{limit(), limit(), limit()}[:1+random.IntN(3)]
		names := []string{randomName(random, 0), randomName(random, 1), randomName(random, 2)}[:len(limits)]
		cost := math.Inf(1)
		for _, l := range limits {
			cost = min(cost, l.Capacity)
		}
		cost *= []float64{0, 0.3, 1, 2}[random.IntN(4)]
		g := newGateway(t, limits, costing(cost), httplimit.WithPolicyNames(names...))
		g.get("/")
		answer := g.get("/")
		d := g.lastEvent().Decision

		policies := parseItems(t, answer.Header.Get("RateLimit-Policy"))
		require.Len(t, policies, len(limits))
		binding := map[string]tokenbucket.Limit{}
		for i, p := range policies {
			require.Equal(t, names[i], p.text)
			require.Equal(t, []string{"q", "w"}, p.keys)
			require.Equal(t, int64(limits[i].Capacity), p.parameters["q"])
			binding[p.text] = limits[i]
		}
		left := parseItems(t, answer.Header.Get("RateLimit"))
		require.Len(t, left, 1)
		require.Equal(t, d.Limit, binding[left[0].text])
		require.Equal(t, d.Remaining(), left[0].parameters["r"])
		seconds, ok := d.RetryAfter()
		switch {
		case d.OK:
			require.Equal(t, []string{"r", "t"}, left[0].keys)
			require.Positive(t, left[0].parameters["t"])
		case !ok:
			require.Equal(t, []string{"r"}, left[0].keys)
			require.NotContains(t, answer.Header, "Retry-After")
		default:
			require.Equal(t, []string{"r", "t"}, left[0].keys)
			require.Equal(t, seconds, left[0].parameters["t"])
			require.Equal(t, strconv.FormatInt(seconds, 10), answer.Header.Get("Retry-After"))
		}
		for _, x := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			require.Regexp(t, `^(0|[1-9]\d{0,14})$`, answer.Header.Get(x))
		}
	}
}

func TestAHandlerThatWritesIntoAFieldChangesNoOther(t *testing.T) {
	handler := newMiddleware(t, httplimit.Shared(tokenbucket.MustNew(tenHalf[0])))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, values := range w.Header() {
			values[0] += " or so"
		}
	}))
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, "10 or so", w.Header().Get("X-RateLimit-Limit"))
		require.Equal(t, `"default";q=10;w=20 or so`, w.Header().Get("RateLimit-Policy"))
	}
}
