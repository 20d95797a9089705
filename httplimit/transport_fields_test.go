package httplimit_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

const none, unread = 0, -1

// rateLimitFields are answers, with the effect of their fields on a transport.
var rateLimitFields = []struct {
	name   string
	status int
	header []string
	pause  time.Duration
	tokens float64 // left of 10 after a request that costs 1; 9 if the fields are not read
}{
	{"nothing left", 200, []string{"RateLimit", `"default";r=0;t=18`}, 18 * time.Second, 0},
	{"some left", 200, []string{"RateLimit", `"default";r=4;t=18`}, none, 4},
	{"more left than here", 200, []string{"RateLimit", `"default";r=50;t=30`}, none, 9},
	{"no window", 200, []string{"RateLimit", `"default";r=4`}, none, 4},
	{"nothing left, no window", 200, []string{"RateLimit", `"default";r=0`}, none, 0},
	{"nothing left for 0 s", 200, []string{"RateLimit", `"default";r=0;t=0`}, none, 0},
	{"too long a window", 200, []string{"RateLimit", `"default";r=0;t=86400`}, 300 * time.Second, 0},
	{"the longest window there is", 200, []string{"RateLimit", `"default";r=0;t=999999999999999`}, 300 * time.Second, 0},
	{"several policies", 200, []string{"RateLimit", `"hour";r=900;t=3000, "minute";r=0;t=20,"day";r=5;t=9`}, 20 * time.Second, 0},
	{"several policies, nothing left of two", 200, []string{"RateLimit", `"a";r=0;t=7, "b";r=0;t=20, "c";r=0;t=8`}, 20 * time.Second, 0},
	{"several lines", 200, []string{"RateLimit", `"a";r=5;t=7`, "RateLimit", `"b";r=3;t=20`}, none, 3},
	{"other parameters", 200, []string{"RateLimit", `"a;r=9, \"b\\";x;pk=:cHsdsRa894==:;r=0;acme-x="r=7;t=7, \"";t=18;y=?0;z=tok/en:*;n=-1.5;d=@-7;s=%"f%c3%bc"`}, 18 * time.Second, 0},
	{"the last of two parameters", 200, []string{"RateLimit", `"a";r=0;r=6;t=18`}, none, 6},
	{"white space", 200, []string{"RateLimit", "  \"a\"; r=6;  t=18 \t,\t \"b\";r=5  "}, none, 5},
	{"on an error", 404, []string{"RateLimit", `"default";r=0;t=18`}, 18 * time.Second, 0},
	{"on a bare 503", 503, []string{"RateLimit", `"default";r=0;t=18`}, 18 * time.Second, 0},

	{"X, in seconds", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 18 * time.Second, 0},
	{"X, the most seconds", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "100000000"}, 300 * time.Second, 0},
	{"X, the least Unix time", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "100000001"}, none, 0}, // in 1973
	{"X, a Unix time in a bubble", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.Itoa(bubbleStart + 2)}, 2 * time.Second, 0},
	{"X, some left", 200, []string{"X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "18"}, none, 4},
	{"X, no reset", 200, []string{"X-RateLimit-Remaining", "0"}, none, 0},
	{"X, a malformed reset", 200, []string{"X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "soon"}, none, 4},
	{"X, a negative reset", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "-18"}, none, 0},
	{"X, only a reset", 200, []string{"X-RateLimit-Reset", "18"}, none, unread},
	{"X, malformed", 200, []string{"X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "18"}, none, unread},
	{"X, a fraction", 200, []string{"X-RateLimit-Remaining", "0.5", "X-RateLimit-Reset", "18"}, none, unread},
	{"X, a list", 200, []string{"X-RateLimit-Remaining", "0, 5", "X-RateLimit-Reset", "18"}, none, unread},
	{"X, beyond 64 bits", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strings.Repeat("9", 30)}, none, 0},
	{"X, a reset of 16 digits", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000000000"}, none, 0},
	{"both", 200, []string{"RateLimit", `"a";r=4;t=7`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, none, 4},
	{"both, one malformed", 200, []string{"RateLimit", `"a";r=`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 18 * time.Second, 0},

	{"draft 7", 200, []string{"RateLimit", `limit=10, remaining=0, reset=18`}, 18 * time.Second, 0},
	{"draft 7, some left", 200, []string{"RateLimit", `limit=10, remaining=4, reset=18`}, none, 4},
	{"draft 7, no reset", 200, []string{"RateLimit", `limit=10, remaining=0`}, none, 0},
	{"draft 7, any order and more members", 200, []string{"RateLimit", ` reset=18;x="a",	a=(1 "b";c);d , remaining=0;q=1,b;c,limit=10, e=:YQ==: `}, 18 * time.Second, 0},
	{"draft 7, several lines", 200, []string{"RateLimit", `limit=10`, "RateLimit", `remaining=0`, "RateLimit", `reset=18`}, 18 * time.Second, 0},
	{"draft 7, the last of two", 200, []string{"RateLimit", `remaining=0, remaining=6, reset=18`}, none, 6},
	{"draft 7, no remaining", 200, []string{"RateLimit", `limit=10, reset=18`}, none, unread},
	{"draft 7, a decimal", 200, []string{"RateLimit", `limit=10, remaining=0.5, reset=18`}, none, unread},
	{"draft 7, a string", 200, []string{"RateLimit", `limit=10, remaining="0", reset=18`}, none, unread},
	{"draft 7, an inner list", 200, []string{"RateLimit", `limit=10, remaining=(0), reset=18`}, none, unread},
	{"draft 7, a comma at the end", 200, []string{"RateLimit", `limit=10, remaining=0, reset=18,`}, none, unread},
	{"draft 7, an open inner list", 200, []string{"RateLimit", `limit=10, remaining=0, reset=18, a=(1 2`}, none, unread},
	{"draft 7, an inner list without spaces", 200, []string{"RateLimit", `limit=10, remaining=0, reset=18, a=("1""2")`}, none, unread},
	{"draft 6", 200, []string{"RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "18", "RateLimit-Policy", "10;w=60"}, 18 * time.Second, 0},
	{"draft 6, some left", 200, []string{"RateLimit-Remaining", "4", "RateLimit-Reset", "18"}, none, 4},
	{"draft 6, with parameters", 200, []string{"RateLimit-Remaining", "4;w=21600"}, none, 4},
	{"draft 6, malformed", 200, []string{"RateLimit-Remaining", "four", "RateLimit-Reset", "18"}, none, unread},
	{"draft 6 before X", 200, []string{"RateLimit-Remaining", "4", "RateLimit-Reset", "18", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, none, 4},
	{"draft 7 before 6", 200, []string{"RateLimit", "remaining=4", "RateLimit-Remaining", "0", "RateLimit-Reset", "18"}, none, 4},
	{"draft 6 for a malformed draft 7", 200, []string{"RateLimit", "remaining=", "RateLimit-Remaining", "0", "RateLimit-Reset", "18"}, 18 * time.Second, 0},

	{"Retry-After wins on 429", 429, []string{"Retry-After", "7", "RateLimit", `"a";r=0;t=18`}, 7 * time.Second, 0},
	{"Retry-After wins on 503", 503, []string{"Retry-After", "20", "RateLimit", `"a";r=0;t=18`}, 20 * time.Second, 0},
	{"Retry-After wins on 403", 403, []string{"Retry-After", "7", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 7 * time.Second, 0},
	{"a malformed Retry-After does not", 429, []string{"Retry-After", "x", "RateLimit", `"a";r=0;t=18`}, 18 * time.Second, 0},
	{"429 with a reset", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "18"}, 18 * time.Second, 0},
	{"429 with too long a reset", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"}, 300 * time.Second, 0},
	{"429 with something left", 429, []string{"RateLimit", `"a";r=4;t=18`}, 10 * time.Second, 0},
	{"429 with a malformed remainder", 429, []string{"X-RateLimit-Remaining", "none", "X-RateLimit-Reset", "18"}, 10 * time.Second, 0},
	{"429 with only a reset", 429, []string{"X-RateLimit-Reset", "18"}, 10 * time.Second, 0},
	{"429 with no r", 429, []string{"RateLimit", `"a";t=18`}, 10 * time.Second, 0},

	{"out of a cache", 200, []string{"RateLimit", `"a";r=0;t=18`, "Age", "3"}, none, unread},
	{"past a cache", 200, []string{"RateLimit", `"a";r=0;t=18`, "Age", "0"}, 18 * time.Second, 0},

	{"empty", 200, []string{"RateLimit", ``}, none, unread},
	{"no r", 200, []string{"RateLimit", `"a";t=18`}, none, unread},
	{"no r in one of two", 200, []string{"RateLimit", `"a";r=0;t=18, "b";t=3`}, none, unread},
	{"r without a value", 200, []string{"RateLimit", `"a";r;t=18`}, none, unread},
	{"a negative r", 200, []string{"RateLimit", `"a";r=-1;t=18`}, none, unread},
	{"a decimal r", 200, []string{"RateLimit", `"a";r=0.0;t=18`}, none, unread},
	{"a decimal t", 200, []string{"RateLimit", `"a";r=0;t=1.5`}, none, unread},
	{"a t without a value", 200, []string{"RateLimit", `"a";r=0;t`}, none, unread},
	{"16 digits", 200, []string{"RateLimit", `"a";r=0;t=1000000000000000`}, none, unread},
	{"a token", 200, []string{"RateLimit", `default;r=0;t=18`}, none, unread},
	{"an inner list", 200, []string{"RateLimit", `("a");r=0;t=18`}, none, unread},
	{"a comma at the end", 200, []string{"RateLimit", `"a";r=0;t=18,`}, none, unread},
	{"padding at the beginning", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:=YQ=:`}, none, unread},
	{"a base64 digit alone", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:Y:`}, none, unread},
	{"padding in the middle", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:YQ==YQ==:`}, none, unread},
	{"padding between digits", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:Y=Q=:`}, none, unread},
	{"nothing but padding", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:=:`}, none, unread},
	{"three pads", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:Y===:`}, none, unread},
	{"half of the padding", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:YQ=:`}, none, unread},
	{"a pad too many", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:YWI==:`}, none, unread},
	{"five base64 digits", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:YWJjY:`}, none, unread},
	{"the alphabet of URLs", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:_-Ah:`}, none, unread},
	{"no padding", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:YQ:;y=:YWI:;z=::`}, 18 * time.Second, 0},
	{"pad bits that are not zero", 200, []string{"RateLimit", `"a";r=0;t=18;pk=:YR==:`}, 18 * time.Second, 0},
	{"a continuation byte that is none", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%c3%28"`}, none, unread},
	{"a continuation byte first", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%a0%a1"`}, none, unread},
	{"a cut letter", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%e2%82"`}, none, unread},
	{"an overlong letter", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%c0%af"`}, none, unread},
	{"half of a surrogate pair", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%ed%a0%80"`}, none, unread},
	{"beyond Unicode", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%f4%90%80%80"`}, none, unread},
	{"four bytes, wrong", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%f0%28%8c%28"`}, none, unread},
	{"not UTF-8 in the second item", 200, []string{"RateLimit", `"a";r=0;t=18, "b";r=0;t=3;x="%c3";d=%"%ff"`}, none, unread},
	{"not UTF-8 in a dictionary", 200, []string{"RateLimit", `remaining=0, reset=18, x=(%"%ff")`}, none, unread},
	{"upper-case hexadecimal digits", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"%C3%BC"`}, none, unread},
	{"a percent sign alone", 200, []string{"RateLimit", `"a";r=0;t=18;d=%"100%"`}, none, unread},
	{"UTF-8", 200, []string{"RateLimit", `"a%c3";r=0;t=18;d=%"%e2%82%ac+ %f0%9f%98%80";e=%"%ef%bb%bf"`}, 18 * time.Second, 0},
	{"an open string", 200, []string{"RateLimit", `"a;r=0;t=18`}, none, unread},
	{"a bad escape", 200, []string{"RateLimit", `"a\n";r=0;t=18`}, none, unread},
	{"an upper-case key", 200, []string{"RateLimit", `"a";R=0;t=18`}, none, unread},
	{"a space before a parameter", 200, []string{"RateLimit", `"a" ;r=0;t=18`}, none, unread},
	{"a letter outside ASCII", 200, []string{"RateLimit", `"ä";r=0;t=18`}, none, unread},
}

func TestTransportReadsRateLimitFields(t *testing.T) {
	for _, row := range rateLimitFields {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithRateLimitFields())
				s.will(row.status, row.header...)
				s.get(client, exampleURL)
				tokens := row.tokens
				if tokens == unread {
					tokens = 9
				}
				require.Equal(t, tokens, bucket.Tokens())
				wait, _ := bucket.TryAcquire(10)
				require.Equal(t, row.pause+time.Duration(10-tokens)*time.Second, wait)
			})
		})
	}
}

func TestTransportReadsUnixTimesByTheClock(t *testing.T) {
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		status int
		reset  int64
		pause  time.Duration
	}{
		{200, now.Unix(), 0},
		{200, now.Unix() - 100, 0},
		{200, now.Unix() + 1, time.Second},
		{200, now.Unix() + 60, time.Minute},
		{200, now.Unix() + 3600, 5 * time.Minute},
		{200, 999_999_999_999_999, 5 * time.Minute},
		{200, 100_000_001, 0},               // in 1973
		{200, 100_000_000, 5 * time.Minute}, // three years
		{429, now.Unix() + 60, time.Minute},
		{429, now.Unix() - 100, 10 * time.Second}, // a reset in the past counts as none
	} {
		onStage(t, func(t *testing.T, s *stage) {
			time.Sleep(time.Until(now))
			client, bucket := s.politely(tokenbucket.Limit{Capacity: 10, RefillPerSec: 1}, httplimit.WithRateLimitFields())
			s.will(row.status, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(row.reset, 10))
			s.get(client, exampleURL)
			wait, _ := bucket.TryAcquire(10)
			require.Equal(t, row.pause+10*time.Second, wait, "%+v", row)
		})
	}
}

// expressServer limits as express-rate-limit does: a number of requests in each window,
// which the first request begins. Its fields are those of old drafts.
type expressServer struct {
	draft, left, refused int
	ends                 time.Time
}

const expressLimit, expressWindow = 5, 3 * time.Second

func (e *expressServer) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond) // on the way
	now := time.Now()
	if !now.Before(e.ends) {
		e.left, e.ends = expressLimit, now.Add(expressWindow)
	}
	e.left--
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}
	e.setFields(resp.Header, max(0, e.left), int((e.ends.Sub(now)+time.Second-1)/time.Second))
	if e.left < 0 {
		e.refused++
		resp.StatusCode = http.StatusTooManyRequests
	}
	return resp, nil
}

func (e *expressServer) setFields(h http.Header, remaining, reset int) {
	if e.draft == 7 {
		h.Set("RateLimit-Policy", "5;w=3")
		h.Set("RateLimit", fmt.Sprintf("limit=5, remaining=%d, reset=%d", remaining, reset))
		return
	}
	h.Set("RateLimit-Policy", "5;w=3")
	h.Set("RateLimit-Limit", "5")
	h.Set("RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("RateLimit-Reset", strconv.Itoa(reset))
}

func TestTransportReadsTheFieldsOfExpressRateLimit(t *testing.T) {
	for _, draft := range []int{6, 7} {
		onStage(t, func(t *testing.T, s *stage) {
			server := &expressServer{draft: draft}
			client, _ := s.politely(tokenbucket.Limit{Capacity: 100, RefillPerSec: 100}, httplimit.WithRateLimitFields(), httplimit.WithBase(server))
			for range 12 {
				status, _ := s.get(client, exampleURL)
				require.Equal(t, http.StatusOK, status, "draft %d", draft)
			}
			require.Zero(t, server.refused)
			require.Less(t, s.now(), 3*expressWindow)
			require.Greater(t, s.now(), 2*expressWindow)
		})
	}
}

// ledger acts as a bucket and notes what a Transport does to it.
type ledger struct{ paused, charged []float64 }

func (l *ledger) Wait(context.Context, string, float64) error { return nil }
func (l *ledger) Pause(_ string, d time.Duration)             { l.paused = append(l.paused, d.Seconds()) }
func (l *ledger) Tokens(string) float64                       { return 1000 }
func (l *ledger) Charge(_ string, cost float64) error {
	l.charged = append(l.charged, cost)
	return nil
}

// read returns what a Transport does after a 200 with a header.
func (l *ledger) read(t *testing.T, header http.Header) {
	transport, err := httplimit.NewTransport(l, httplimit.WithRateLimitFields(), httplimit.WithLongestPause(tokenbucket.Never),
		httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: header, Body: http.NoBody}, nil
		})))
	require.NoError(t, err)
	req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(req)
	require.NoError(t, err)
}

// The oracle is a second parser of structured fields, which reads character by character as
// RFC 9651, section 4.2, does.
func FuzzTransportRateLimit(f *testing.F) {
	for _, seed := range []string{
		``, `"default";r=50;t=30`, `"a";r=0;t=18, "b";r=5`, `"a\"\\";x;pk=:cHs=:;r=0;s="r=7;t=7, \"";t=18;y=?0;z=tok/en:*;n=-1.5`,
		`"a";d=@-7;s=%"f%c3%bc";r=1`, `"a";r=999999999999999;t=999999999999999`, `"a";r=1000000000000000`, `"a";r=1;`, `"a" ;r=1`, `"a";r=1,`,
		`a;r=1`, `("a");r=1`, `"a";r=1;t=-1`, `"a";r=1;t=1.0`, `"a";r=1;t`, `"a";r=1;r=2`, "\"a\"; r=1 \t,\t \"b\";r=0", `"ä";r=1`, `"a`, `"a\`,
		`"a";r=1;pk=:=YQ=:`, `"a";r=1;pk=:Y:`, `"a";r=1;pk=:YQ:`, `"a";r=1;d=%"%c3%28"`, `limit=10, remaining=0, reset=18`, `remaining=1;a=b,c=(1 "b";d );e, f`,
		`"a";r=1;n=123456789012.123;m=1234567890123.1`, `"a";r=1;n=1.1234`, `"a";r=1;n=1.`, `"a";r=1;*=*`, `"a";r=1;R=2`, `"a";r=00`, `"a";r=-0`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		var l ledger
		l.read(t, http.Header{"Ratelimit": {field}})
		field = strings.Trim(field, " ")
		remaining, reset, ok := oracleRateLimit(field)
		if field != "" && field[0] != '"' {
			remaining, reset, ok = oracleDictionary(field)
		}
		if !ok {
			require.Empty(t, l.charged)
			require.Empty(t, l.paused)
			return
		}
		if remaining >= 1000 {
			require.Empty(t, l.charged)
		} else {
			require.Equal(t, []float64{1000 - remaining}, l.charged)
		}
		if remaining > 0 || reset == 0 {
			require.Empty(t, l.paused)
		} else {
			require.Equal(t, []float64{min(reset, time.Duration(math.MaxInt64).Seconds())}, l.paused)
		}
	})
}

// oracleRateLimit reads a List of Strings.
func oracleRateLimit(s string) (remaining, reset float64, ok bool) {
	defer func() {
		if recover() != nil { // an index out of range: the field ended too early
			ok = false
		}
	}()
	remaining = math.Inf(1)
	for s != "" {
		oracleRequire(s[0] == '"')
		values := map[string]string{"t": "0"}
		s = oracleSeparator(oracleParameters(oracleItem(s), values))
		r, hasR := oracleInteger(values["r"])
		t, hasT := oracleInteger(values["t"])
		oracleRequire(hasR && hasT)
		if r < remaining || r == remaining && t > reset {
			remaining, reset = r, t
		}
	}
	return remaining, reset, !math.IsInf(remaining, 1)
}

// oracleDictionary reads a Dictionary of any values.
func oracleDictionary(s string) (remaining, reset float64, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	values := map[string]string{"reset": "0"}
	for s != "" {
		key, rest := oracleKey(s)
		s = rest
		values[key] = "?1"
		if s != "" && s[0] == '=' {
			rest := oracleInner(s[1:])
			values[key] = s[1 : len(s)-len(rest)]
			s = rest
		}
		s = oracleSeparator(oracleParameters(s, map[string]string{}))
	}
	remaining, ok = oracleInteger(values["remaining"])
	reset, hasReset := oracleInteger(values["reset"])
	return remaining, reset, ok && hasReset
}

func oracleRequire(ok bool) {
	if !ok {
		panic("malformed")
	}
}

func oracleKey(s string) (key, rest string) {
	end := oracleSpan(s, "abcdefghijklmnopqrstuvwxyz0123456789_-.*")
	oracleRequire(end > 0 && !strings.Contains("0123456789_-.", s[:1]))
	return s[:end], s[end:]
}

func oracleParameters(s string, values map[string]string) (rest string) {
	for s != "" && s[0] == ';' {
		key, rest := oracleKey(strings.TrimLeft(s[1:], " "))
		s = rest
		values[key] = "?1"
		if s != "" && s[0] == '=' {
			rest := oracleItem(s[1:])
			values[key] = s[1 : len(s)-len(rest)]
			s = rest
		}
	}
	return s
}

// oracleSeparator returns the next member of a list, "" at its end.
func oracleSeparator(s string) (rest string) {
	s = strings.TrimLeft(s, " \t")
	if s == "" {
		return s
	}
	oracleRequire(s[0] == ',')
	s = strings.TrimLeft(s[1:], " \t")
	oracleRequire(s != "")
	return s
}

// oracleInner returns the text after an item or an inner list.
func oracleInner(s string) string {
	if s[0] != '(' {
		return oracleItem(s)
	}
	s = strings.TrimLeft(s[1:], " ")
	for s[0] != ')' {
		s = oracleParameters(oracleItem(s), map[string]string{})
		oracleRequire(s[0] == ' ' || s[0] == ')')
		s = strings.TrimLeft(s, " ")
	}
	return s[1:]
}

func oracleInteger(s string) (float64, bool) {
	if s == "" || len(s) > 15 || oracleSpan(s, "0123456789") < len(s) {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

func oracleSpan(s, set string) int { return len(s) - len(strings.TrimLeft(s, set)) }

// oracleItem returns the text after a bare item. It panics if there is none.
func oracleItem(s string) string {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	require := oracleRequire
	integer := func(s string) (string, int) {
		s = strings.TrimPrefix(s, "-")
		n := oracleSpan(s, digits)
		require(n > 0 && n <= 15)
		return s[n:], n
	}
	switch c := s[0]; {
	case c == '"':
		for s = s[1:]; s[0] != '"'; s = s[1:] {
			require(s[0] >= ' ' && s[0] <= '~')
			if s[0] == '\\' {
				s = s[1:]
				require(s[0] == '"' || s[0] == '\\')
			}
		}
		return s[1:]
	case c == '-' || strings.IndexByte(digits, c) >= 0:
		rest, whole := integer(s)
		if rest == "" || rest[0] != '.' {
			return rest
		}
		fraction := oracleSpan(rest[1:], digits)
		require(whole <= 12 && fraction >= 1 && fraction <= 3)
		return rest[1+fraction:]
	case c == '@':
		rest, _ := integer(s[1:])
		require(rest == "" || rest[0] != '.')
		return rest
	case c == ':':
		n := oracleSpan(s[1:], digits+letters+"+/=")
		require(s[1+n] == ':')
		require(oracleBinary(s[1 : 1+n]))
		return s[2+n:]
	case c == '?':
		require(s[1] == '0' || s[1] == '1')
		return s[2:]
	case c == '%':
		require(s[1] == '"')
		var decoded []byte
		for s = s[2:]; s[0] != '"'; s = s[1:] {
			require(s[0] >= ' ' && s[0] <= '~')
			c := uint64(s[0])
			if s[0] == '%' {
				require(oracleSpan(s[1:3], digits+"abcdef") == 2)
				c, _ = strconv.ParseUint(s[1:3], 16, 8)
				s = s[2:]
			}
			decoded = append(decoded, byte(c))
		}
		require(utf8.Valid(decoded))
		return s[1:]
	default:
		require(c == '*' || strings.IndexByte(letters, c) >= 0)
		return s[oracleSpan(s, digits+letters+":/!#$%&'*+-.^_`|~"):]
	}
}

// oracleBinary accepts base64 with all of its padding or with none.
func oracleBinary(s string) bool {
	_, padded := base64.StdEncoding.DecodeString(s)
	_, raw := base64.RawStdEncoding.DecodeString(s)
	return padded == nil || raw == nil
}

func FuzzTransportXRateLimit(f *testing.F) {
	for _, seed := range [][2]string{{"0", "18"}, {"4", "4102444800"}, {"0", "999999999999999"}, {"-1", "1"}, {"1.5", "x"}, {" 7 ", " 8 "}, {"", ""}, {"9999999999999999", "1"}, {"+1", "0x1"}, {"1_0", "1e3"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, remaining, reset string) {
		var l ledger
		l.read(t, http.Header{"X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}})
		left, known := oracleInteger(strings.TrimSpace(remaining))
		if !known || left >= 1000 {
			require.Empty(t, l.charged)
			require.Empty(t, l.paused)
			return
		}
		require.Equal(t, []float64{1000 - left}, l.charged)
		at, ok := oracleInteger(strings.TrimSpace(reset))
		if left > 0 || !ok || at == 0 {
			require.Empty(t, l.paused)
			return
		}
		if at <= 1e8 {
			require.Equal(t, []float64{at}, l.paused)
			return
		}
		for _, d := range l.paused { // none if the Unix time is past
			require.Positive(t, d)
		}
	})
}
