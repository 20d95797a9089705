package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	devlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	devruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// All tests share these.
var (
	folder  string          // for the binary
	browser context.Context // where each test opens a page of its own
)

// start builds the gateway and starts the browser, for the first test that runs.
var start = sync.OnceValues(func() (gateway string, err error) {
	if err := chromedp.Do(browser); err != nil {
		return "", err
	}
	return buildGateway(browser, folder)
})

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	var err error
	if folder, err = os.MkdirTemp("", "gateway"); err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	var closeBrowser context.CancelFunc
	browser, closeBrowser = startBrowser(context.Background())
	defer closeBrowser()
	return m.Run()
}

// stage is a gateway, and a browser page that is still empty.
type stage struct {
	t    *testing.T
	ctx  context.Context // of the page
	url  string
	stop func() error // the gateway

	mu       sync.Mutex
	requests []string // such as "GET /read"
	hosts    map[string]bool
	console  []string // errors and warnings
}

// newStage starts the gateway and opens the page. Without a browser the test is skipped,
// or fails if TOKENBUCKET_REQUIRE_CHROMIUM is set.
func newStage(t *testing.T, flags ...string) *stage {
	gateway, err := start()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("TOKENBUCKET_REQUIRE_CHROMIUM") == "" {
		t.Skip("no chromium in PATH: install it with: apt-get install chromium")
	}
	require.NoError(t, err, "is chromium there? apt-get install chromium")
	ctx, cancel := context.WithTimeout(browser, 3*time.Minute)
	t.Cleanup(cancel)
	address, stop, err := startGateway(ctx, gateway, flags...)
	require.NoError(t, err)
	s := &stage{t: t, url: address, stop: sync.OnceValue(stop), hosts: map[string]bool{}}
	t.Cleanup(func() { require.NoError(t, s.stop(), "stops cleanly") })
	page, closePage := chromedp.NewContext(ctx)
	t.Cleanup(closePage)
	s.ctx = page
	require.NoError(t, chromedp.Listen(page, s.listen))
	return s
}

func (s *stage) listen(event any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil {
			s.console = append(s.console, err.Error())
			return
		}
		s.requests = append(s.requests, e.Request.Method+" "+u.Path)
		s.hosts[u.Host] = true
	case *devruntime.EventExceptionThrown:
		s.console = append(s.console, e.ExceptionDetails.Text)
	case *devruntime.EventConsoleAPICalled:
		s.console = append(s.console, string(e.Type))
	case *devlog.EventEntryAdded:
		s.console = append(s.console, e.Entry.Text+" "+strings.TrimPrefix(e.Entry.URL, s.url))
	}
}

func (s *stage) do(steps ...action) {
	s.t.Helper()
	require.NoError(s.t, chromedp.Do(s.ctx, steps...))
}

func evaluate[T any](t *testing.T, page context.Context, expression string) T {
	t.Helper()
	value, err := chromedp.Run(page, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return value
}

// get evaluates an expression in the page.
func get[T any](s *stage, expression string) T {
	s.t.Helper()
	return evaluate[T](s.t, s.ctx, expression)
}

// record makes the page keep all further texts of an element in an array.
func (s *stage) record(selector string) {
	get[bool](s, fmt.Sprintf(`
		(window.texts ??= {})[%[1]q] = [];
		new MutationObserver((changes) => changes.forEach((c) => c.addedNodes.forEach((n) => texts[%[1]q].push(n.data))))
			.observe(document.querySelector(%[1]q), { childList: true });
		true`, selector))
}

func (s *stage) recorded(selector string) []string {
	return get[[]string](s, fmt.Sprintf("texts[%q]", selector))
}

// ask sends a request to the gateway from a local address, without the browser.
func (s *stage) ask(from, method, path string) *http.Response {
	s.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(s.ctx, method, s.url+path, nil)
	require.NoError(s.t, err)
	answer, err := transport.RoundTrip(request)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Body.Close())
	return answer
}

func TestRefusedExportIsAdmittedWhenItsCountdownEnds(t *testing.T) {
	for _, window := range []struct {
		width  int64
		scheme string
		ground string
	}{
		{880, "light", "rgb(243, 246, 250)"},
		{360, "dark", "rgb(15, 21, 29)"},
	} {
		t.Run(fmt.Sprint(window.width, window.scheme), func(t *testing.T) {
			s := newStage(t, "-refill", "1.25")
			s.do(showAs(window.width, 640, window.scheme), chromedp.Navigate(s.url), awaitAnswers(1))
			require.Equal(t, window.ground, get[string](s, "getComputedStyle(document.body).backgroundColor"))
			s.requireFits(window.width)

			s.requireSpendsNothing()
			s.exportUntilRefused()
			s.requireFits(window.width)
			if runtime.GOOS == "linux" { // where every 127.x.y.z is there
				other := s.ask("127.0.0.2", "GET", "export")
				require.Equal(t, 200, other.StatusCode)
				require.Equal(t, "5", other.Header.Get("X-RateLimit-Remaining"), "a bucket of its own")
			}
			s.retryWhenDue()
			s.requireFits(window.width)

			s.mu.Lock()
			defer s.mu.Unlock()
			require.Len(t, s.hosts, 1, "asked nobody else")
			require.True(t, s.hosts[strings.Trim(strings.TrimPrefix(s.url, "http:"), "/")])
			require.Equal(t, slices.Repeat([]string{"GET /export"}, 4), slices.DeleteFunc(s.requests, isFree), "what was pressed")
			require.Equal(t, []string{"Failed to load resource: the server responded with a status of 429 (Too Many Requests) export"},
				s.console, "nothing but what chromium itself says of the refusal")
		})
	}
}

// isFree reports whether the page may send a request by itself.
func isFree(request string) bool {
	return slices.Contains([]string{"GET /", "HEAD /", "GET /clients"}, request) || strings.HasPrefix(request, "GET /page/")
}

// requireFits checks that the page is not wider than its window.
func (s *stage) requireFits(width int64) {
	s.t.Helper()
	require.Equal(s.t, width, get[int64](s, "innerWidth"))
	require.LessOrEqual(s.t, get[int64](s, "document.documentElement.scrollWidth"), width)
}

func (s *stage) requireSpendsNothing() {
	s.t.Helper()
	s.do(await(`document.getElementById("tokens").textContent === "10.0"`), chromedp.Sleep(time.Second))
	look := s.ask("127.0.0.1", "HEAD", "")
	require.Equal(s.t, "10", look.Header.Get("X-RateLimit-Remaining"))
	require.Equal(s.t, "0", look.Header.Get("X-RateLimit-Reset"))
	require.Equal(s.t, "full", get[string](s, `document.getElementById("full").textContent`))
}

const exportDue = `[data-path="/export"] .due`

// exportUntilRefused presses the button for exports three times, by keyboard.
func (s *stage) exportUntilRefused() {
	s.t.Helper()
	s.record("#news")
	s.record(exportDue)
	s.do(chromedp.Focus(chromedp.CSS(`[data-path="/export"] button`)), chromedp.KeyEvent("\r\r\r"), awaitAnswers(4))
	require.Equal(s.t, "429 Too Many Requests", get[string](s, `document.getElementById("status").textContent`))
	require.Contains(s.t, get[string](s, `document.getElementById("fields").textContent`), "Retry-After")
	require.Equal(s.t, []string{"429", "200", "200", "200"},
		get[[]string](s, `[...document.querySelectorAll("#log .badge")].map((b) => b.textContent)`))
	low := get[float64](s, `Number(document.getElementById("tokens").textContent)`)
	require.Less(s.t, low, 5.0, "the level is below the price")
}

// retryWhenDue waits for the end of the countdown, and clicks.
func (s *stage) retryWhenDue() {
	s.t.Helper()
	s.do(await(`document.querySelector('[data-path="/export"]').dataset.state === "due"`))
	retryAfter := get[string](s, `[...document.querySelectorAll("#fields div")]
		.find((field) => field.querySelector(".name").textContent === "Retry-After").querySelector(".value").textContent`)
	countdown := s.recorded(exportDue)
	counted := countdown[slices.Index(countdown, "admitted in "+retryAfter+"\u00a0s"):] // before the refusal, the level said when
	require.IsDecreasing(s.t, counted[:len(counted)-1])
	require.Equal(s.t, "admitted now: retry", countdown[len(countdown)-1])

	s.do(press("/export"), awaitAnswers(5))
	require.Equal(s.t, "200 OK", get[string](s, `document.getElementById("status").textContent`))
	require.Regexp(s.t, `^admitted in \d`, get[string](s, `document.querySelector('`+exportDue+`').textContent`), "the level says when")
	news := s.recorded("#news")
	for i, want := range []string{
		`^Export: 200 OK\. 5 of 10 tokens left, full in 4 seconds\.$`,
		`^Export: 200 OK\. \d of 10 tokens left, full in \d seconds\.$`,
		`^Export: 429 Too Many Requests\. It would be admitted in ` + retryAfter + ` seconds?\.$`,
		`^Export would be admitted now\.$`,
		`^Export: 200 OK\. \d of 10 tokens left, full in \d seconds\.$`,
	} {
		require.Regexp(s.t, want, news[i])
	}
	require.Len(s.t, news, 5, "each text was set once, not at every frame")
}

func TestLooksFineWithReducedMotion(t *testing.T) {
	s := newStage(t)
	s.do(preferReducedMotion(), chromedp.Navigate(s.url), awaitAnswers(1), press("/export"), awaitAnswers(2))
	require.Equal(t, "none", get[string](s, `getComputedStyle(document.getElementById("drop")).display`))
	const seconds = `performance.now() / 1000`
	start := get[float64](s, seconds)
	s.record("#tokens")
	s.do(chromedp.Sleep(2 * time.Second))
	changes := float64(len(s.recorded("#tokens"))) // five a second without
	require.LessOrEqual(t, changes, 1+3*(get[float64](s, seconds)-start), "by the page's clock")
}

// Each bucket at the bounds of the flags is shown in a narrow window and with large
// letters.
func TestEveryBucketCanBeRead(t *testing.T) {
	for _, test := range []struct {
		flags  string
		export int      // number of clicks
		full   string   // matches what the page says about when the bucket is full
		names  []string // of the lines in the chart, from the top; lines that are too close share one
	}{
		{"", 1, `full in \d+\ss`, []string{"10 full", "5 export", "1 read"}},
		{"-read 5", 1, `full in \d+\ss`, []string{"10 full", "5 read, export", "0"}},
		{"-capacity 1 -export 1 -read 0.5 -refill 0.0001", 2, `full in 2\sh 46\smin`, []string{"1 full, export", "0.5 read", "0"}},
		{"-capacity 4398046511104 -export 4398046511104 -refill 1000000", 2, `full in 50\sd 21\sh`, []string{"4.4T full, export", "1 read"}},
		{"-refill 1000 -export 10 -read 0", 1, `full`, []string{"10 full, export", "0 read"}},
	} {
		t.Run(test.flags, func(t *testing.T) {
			s := newStage(t, strings.Fields(test.flags)...)
			s.do(showAs(320, 640, "light"), chromedp.Navigate(s.url), awaitAnswers(1))
			for i := range test.export {
				s.do(press("/export"), awaitAnswers(2+i))
			}
			s.do(await(fmt.Sprintf(`/^%s$/.test(document.getElementById("full").textContent)`, test.full)))
			require.Equal(t, test.names, strings.Split(s.names(), "\n"))
			s.requireFits(320)
			get[bool](s, `document.documentElement.style.fontSize = "200%", true`)
			s.do(await(`[...document.querySelectorAll("#chart text")].every((text) => {
				const [inner, outer] = [text, document.getElementById("chart")].map((e) => e.getBoundingClientRect());
				return text.textContent === "" || (inner.top >= outer.top - 2 && inner.bottom <= outer.bottom + 2);
			})`)) // after the next drawing, no text of the chart is cut off
			s.requireFits(320)
		})
	}
}

// names returns the names of the lines in the chart, one per line of text.
func (s *stage) names() string {
	s.t.Helper()
	return get[string](s, `[...document.querySelectorAll(".level-text")].map((text) => text.textContent).filter((text) => text).join("\n")`)
}

func TestHeldKeyAsksOnce(t *testing.T) {
	s := newStage(t)
	s.do(chromedp.Navigate(s.url), awaitAnswers(1),
		chromedp.Focus(chromedp.CSS(`[data-path="/export"] button`)), repeatEnter(false), repeatEnter(true), repeatEnter(true),
		press("/read"), await(`document.getElementById("request").textContent.startsWith("GET /read")`))
	require.Equal(t, "4", s.ask("127.0.0.1", "HEAD", "").Header.Get("X-RateLimit-Remaining"))
}

// repeatEnter sends the event of the Enter key when it goes down, or the one that repeats
// while it is down.
func repeatEnter(isDown bool) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13, Text: "\r", AutoRepeat: &isDown,
		})
		return err
	})
}

// Other clients take tokens from the same bucket. The page shows the new level, but no
// marks of requests.
func TestFollowsTheBucketWhileOthersUseIt(t *testing.T) {
	s := newStage(t, "-refill", "0.001")
	s.do(chromedp.Navigate(s.url), await(`document.getElementById("tokens").textContent === "10.0"`))
	s.ask("127.0.0.1", "GET", "export") // unseen
	s.do(await(`document.getElementById("tokens").textContent === "5.0"`))
	require.Equal(t, "", get[string](s, `document.getElementById("admitted").getAttribute("d")`))
	require.Equal(t, 1, get[int](s, `document.querySelectorAll("#log li").length`), "the page's first look alone")
	s.do(await(`document.querySelector("#clients .left")?.textContent === "5.0"`))
	require.Equal(t, "127.0.0.*", get[string](s, `document.querySelector("#clients .name").textContent`))
}

func TestMarksOfQuickClicksStandApart(t *testing.T) {
	s := newStage(t, "-capacity", "100", "-export", "100")
	s.do(chromedp.Navigate(s.url), awaitAnswers(1))
	for i := range 4 {
		s.do(press("/read"), awaitAnswers(2+i))
	}
	require.True(t, get[bool](s, `(() => {
		const marks = document.getElementById("admitted").getAttribute("d").split("M").filter((m) => m)
			.map((m) => m.match(/[\d.-]+/g).map(Number));
		return marks.length === 4 && marks.every(([x, y], i) => marks.every(([u, v], j) => i === j || Math.hypot(x - u, y - v) > 10));
	})()`))
}

// The list of answers scrolls: the page does not grow with each answer.
func TestHistoryKeepsThePageShort(t *testing.T) {
	s := newStage(t)
	s.do(showAs(390, 640, "light"), chromedp.Navigate(s.url), awaitAnswers(1))
	for i := range 10 {
		s.do(press("/read"), awaitAnswers(2+i))
	}
	height := func() int { return get[int](s, `document.getElementById("log").clientHeight`) }
	before := height()
	for i := range 5 {
		s.do(press("/read"), awaitAnswers(12+i))
	}
	require.Equal(t, before, height())
}

func TestReportsThatTheGatewayIsGone(t *testing.T) {
	s := newStage(t)
	s.do(chromedp.Navigate(s.url), awaitAnswers(1))
	require.True(t, get[bool](s, `document.getElementById("problem").hidden`))
	require.NoError(t, s.stop())
	s.do(press("/read"), await(`!document.getElementById("problem").hidden`))
	require.Contains(t, get[string](s, `document.getElementById("problem").textContent`), "Check that the gateway is running.")
}

// The policy of the page keeps a script from sending requests to other servers.
func TestPolicyKeepsThePageFromAskingOthers(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	askOther := fmt.Sprintf(`fetch(%q, { mode: "no-cors" }).then(() => "asked", () => "blocked")`, other.URL)
	loadOther := fmt.Sprintf(`new Promise((done) => {
		const image = new Image();
		image.onload = image.onerror = () => done(true);
		image.src = %q;
	})`, other.URL+"/image")

	s := newStage(t)
	s.do(chromedp.Navigate(s.url), awaitAnswers(1))
	require.Equal(t, "blocked", get[string](s, askOther))
	get[bool](s, loadOther)
	require.Zero(t, asked.Load())

	s.do(chromedp.Navigate(s.url + "page/icon.svg")) // has no policy
	require.Equal(t, "asked", get[string](s, askOther))
	require.NotZero(t, asked.Load())
}
