package main

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// standard holds the defaults of the flags.
var standard = terms{limit: tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5}, read: 1, export: 5}

func newGateway(t terms, clock tokenbucket.Clock) (http.Handler, error) {
	clients, err := newClients(t.limit, clock)
	if err != nil {
		return nil, err
	}
	return newHandler(t, clients)
}

// client returns a function that sends requests from an address.
func client(handler http.Handler, method, addr string) func(path string) *httptest.ResponseRecorder {
	return func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr = addr
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
}

func TestRetryAfterHolds(t *testing.T) {
	mock := clock.NewMock()
	handler, err := newGateway(standard, mock)
	require.NoError(t, err)
	get := client(handler, "GET", "192.0.2.1:1234")
	require.Equal(t, 200, get("/export").Code)
	read := get("/read")
	require.Equal(t, 200, read.Code)
	require.Equal(t, "10", read.Header().Get("X-RateLimit-Limit"))
	require.Equal(t, "4", read.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, "12", read.Header().Get("X-RateLimit-Reset"))
	require.Empty(t, read.Header().Get("Retry-After"))

	refused := get("/export")
	require.Equal(t, 429, refused.Code)
	require.Equal(t, "2", refused.Header().Get("Retry-After"))
	seconds, err := strconv.Atoi(refused.Header().Get("Retry-After"))
	require.NoError(t, err)
	mock.Add(time.Duration(seconds) * time.Second)
	require.Equal(t, 200, get("/export").Code)
	get = client(handler, "GET", "192.0.2.2:1234")
	require.Equal(t, "5", get("/export").Header().Get("X-RateLimit-Remaining"), "another client")
}

func TestServesAndStopsCleanly(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	printed, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, "127.0.0.1:0", standard, out)
		out.Close()
	}()
	lines := bufio.NewScanner(printed)
	var url string
	for url == "" && lines.Scan() {
		url = regexp.MustCompile(`http://\S+/export`).FindString(lines.Text())
	}
	go func() {
		for lines.Scan() { // discard the rest of its output
		}
	}()
	target, err := neturl.Parse(url)
	require.NoError(t, err)
	early, err := net.Dial("tcp", target.Host) // as browsers do before they have a request
	require.NoError(t, err)
	defer early.Close()
	answer, err := http.Get(url)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	stop()
	require.NoError(t, <-done)
}

func TestPageSpendsNothing(t *testing.T) {
	handler, err := newGateway(standard, clock.NewMock())
	require.NoError(t, err)
	get, head := client(handler, "GET", "192.0.2.1:1234"), client(handler, "HEAD", "192.0.2.1:1234")
	require.Equal(t, 200, get("/export").Code)
	for _, path := range []string{"/", "/page/page.js", "/page/level.js", "/page/style.css", "/page/icon.svg", "/favicon.ico"} {
		for range 10 {
			require.Equal(t, 200, get(path).Code, path)
		}
	}
	look := head("/")
	require.Equal(t, 200, look.Code)
	require.Equal(t, "5", look.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, "10", look.Header().Get("X-RateLimit-Reset"))
	require.Equal(t, `"default";q=10;w=20`, look.Header().Get("RateLimit-Policy"))
}

func TestUnknownPathsCostOne(t *testing.T) {
	handler, err := newGateway(standard, clock.NewMock())
	require.NoError(t, err)
	get := client(handler, "GET", "192.0.2.1:1234")
	require.Equal(t, 404, get("/nowhere").Code)
	require.Equal(t, "9", get("/").Header().Get("X-RateLimit-Remaining"))
}

func TestPageTellsThePricesAndTheClient(t *testing.T) {
	handler, err := newGateway(terms{limit: tokenbucket.Limit{Capacity: 100, RefillPerSec: 3}, read: 0.5, export: 42}, clock.NewMock())
	require.NoError(t, err)
	page := client(handler, "GET", "192.0.2.1:1234")("/")
	for _, text := range []string{`data-path="/read" data-name="Read" data-price="0.5"`, "0.5 tokens", `data-price="42"`, "The bucket of 192.0.2.1<"} {
		require.Contains(t, page.Body.String(), text)
	}
	require.Contains(t, page.Header().Get("Content-Security-Policy"), "default-src 'none'")
}

func TestNumbersAreWrittenOut(t *testing.T) {
	handler, err := newGateway(terms{limit: tokenbucket.Limit{Capacity: 1 << 40, RefillPerSec: 2e6}, read: 1e-5, export: 1e7}, clock.NewMock())
	require.NoError(t, err)
	page := client(handler, "GET", "192.0.2.1:1234")("/").Body.String()
	for _, text := range []string{"2000000 a second", "<small>0.00001 tokens<", "<small>10000000 tokens<"} {
		require.Contains(t, page, text)
	}
	require.NotRegexp(t, `\de[+-]?\d`, strings.ReplaceAll(page, "aa014e13", ""))
}

func TestPageOffersAnotherAddressWhereThereIsOne(t *testing.T) {
	handler, err := newGateway(standard, clock.NewMock())
	require.NoError(t, err)
	for peer, want := range map[string]string{
		"127.0.0.1:1234":          "curl -i --interface 127.0.0.2 http://example.com/export",
		"[::ffff:127.0.0.1]:1234": "curl -i --interface 127.0.0.2 http://example.com/export",
		"192.0.2.1:1234":          "",
		"[::1]:1234":              "",
	} {
		page := client(handler, "GET", peer)("/").Body.String()
		require.Equal(t, want, regexp.MustCompile(`curl -i --interface [^<]*`).FindString(page), peer)
	}
}

func TestPageEscapesWhatItIsTold(t *testing.T) {
	handler, err := newGateway(standard, clock.NewMock())
	require.NoError(t, err)
	r := httptest.NewRequest("GET", "/", nil)
	for _, text := range []*string{&r.RemoteAddr, &r.Host} {
		old := *text
		*text = `"><script>alert(1)</script>`
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.NotContains(t, w.Body.String(), "<script>alert")
		*text = old
	}
}

func TestServesNothingButThePagesFiles(t *testing.T) {
	handler, err := newGateway(standard, clock.NewMock())
	require.NoError(t, err)
	for path, want := range map[string]int{
		"/page/": 404, "/page/none.js": 404, "/page/%2e": 404,
		"/page/..%2fpage.html": 400, "/page/..%2f..%2fmain.go": 400, "/page/%2e%2e": 400,
	} {
		require.Equal(t, want, client(handler, "GET", "192.0.2.1:1234")(path).Code, path)
	}
}

func TestTermsAreChecked(t *testing.T) {
	for _, test := range []struct {
		change func(*terms)
		want   string
	}{
		{func(t *terms) { t.limit.Capacity = 2.5 }, "capacity 2.5: choose a whole number of tokens"},
		{func(t *terms) { t.limit.Capacity = 0 }, "capacity 0: choose one above 0"},
		{func(t *terms) { t.limit.Capacity = math.NaN() }, "capacity NaN: choose"},
		{func(t *terms) { t.limit.Capacity = math.Inf(1) }, "capacity +Inf: choose"},
		{func(t *terms) { t.limit.RefillPerSec = 0 }, "refill 0: choose a finite one above 0 tokens per second"},
		{func(t *terms) { t.limit.RefillPerSec = math.Inf(1) }, "refill +Inf: choose"},
		{func(t *terms) { t.limit.RefillPerSec = 1e-12 }, "refill 1e-12: choose one that fills the bucket of 10 within a year"},
		{func(t *terms) { t.limit.Capacity = 1 << 40 }, "refill 0.5: choose one that fills the bucket of 1099511627776 within a year"},
		{func(t *terms) { t.limit.RefillPerSec = math.NaN() }, "refill NaN: choose"},
		{func(t *terms) { t.read = -1 }, `price of "GET /read": tokenbucket: invalid cost: -1: pass a number of tokens, 0 or more`},
		{func(t *terms) { t.export = 11 }, `price of "GET /export": tokenbucket: cost exceeds the capacity: cost 11, capacity 10: split the request or raise the capacity`},
		{func(t *terms) { t.export = math.NaN() }, `price of "GET /export": tokenbucket: invalid cost: NaN`},
	} {
		bad := standard
		test.change(&bad)
		require.ErrorContains(t, serve(t.Context(), "127.0.0.1:0", bad, io.Discard), test.want)
	}
}

func TestAddressInUse(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	require.Error(t, serve(context.Background(), server.Listener.Addr().String(), standard, io.Discard))
}

// Text has a contrast of at least 4.5 to 1 to its background (W3C, WCAG 2.2, success
// criterion 1.4.3), with light and with dark colors.
func TestTextStandsOut(t *testing.T) {
	style, err := pageFiles.ReadFile("page/style.css")
	require.NoError(t, err)
	schemes := regexp.MustCompile(`(?s):root \{.*?\}`).FindAllString(string(style), -1)
	require.Len(t, schemes, 2)
	for _, scheme := range schemes {
		light := map[string]float64{}
		for _, c := range regexp.MustCompile(`--(\S+): (#\w{6});`).FindAllStringSubmatch(scheme, -1) {
			light[c[1]] = luminance(t, c[2])
		}
		for _, pair := range [][2]string{
			{"text", "ground"}, {"text", "card"}, {"text", "edge"}, {"faint", "ground"}, {"faint", "card"}, {"card", "accent"},
			{"good", "card"}, {"good", "good-ground"}, {"bad", "card"}, {"bad", "bad-ground"},
		} {
			text, ground := light[pair[0]], light[pair[1]]
			require.GreaterOrEqual(t, (max(text, ground)+0.05)/(min(text, ground)+0.05), 4.5, "%v of %s", pair, scheme)
		}
	}
}

// luminance returns the relative luminance of a color, as WCAG 2.2 defines it.
func luminance(t *testing.T, color string) float64 {
	var light float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		value, err := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8)
		require.NoError(t, err)
		if c := float64(value) / 255; c <= 0.04045 {
			light += weight * c / 12.92
		} else {
			light += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return light
}
