package metrics_test

import (
	"bufio"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/metrics"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// startGateway builds and starts the gateway, and returns the URLs of its exports and of
// its metrics.
func startGateway(t *testing.T, args ...string) (export, metrics string) {
	program := filepath.Join(t.TempDir(), "gateway")
	build := exec.Command("go", "build", "-o", program, "./examples/gateway")
	build.Dir = filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(build.Dir, "examples", "gateway")); err != nil {
		t.Skip("the gateway is not in this tree: ", err)
	}
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	run := exec.CommandContext(t.Context(), program, append(args, "-addr", "127.0.0.1:0", "-metrics", "127.0.0.1:0")...)
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait() // it was killed
	})
	for lines := bufio.NewScanner(out); (export == "" || metrics == "") && lines.Scan(); {
		url := regexp.MustCompile(`http://\S+/(export|metrics)`).FindStringSubmatch(lines.Text())
		switch {
		case url == nil:
		case url[1] == "export":
			export = url[0]
		default:
			metrics = url[0]
		}
	}
	return export, metrics
}

func fetch(t *testing.T, url string) *http.Response {
	answer, err := http.Get(url)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// shape returns a family without the values of histograms, which depend on the time, and
// without the infinite bucket, which only the text format has.
func shape(family *dto.MetricFamily) *dto.MetricFamily {
	for _, m := range family.Metric {
		if h := m.Histogram; h != nil {
			h.SampleSum, h.CreatedTimestamp = nil, nil
			h.Bucket = slices.DeleteFunc(h.Bucket, func(b *dto.Bucket) bool { return math.IsInf(b.GetUpperBound(), 1) })
			for _, b := range h.Bucket {
				b.CumulativeCount = nil
			}
		}
		if m.Counter != nil {
			m.Counter.CreatedTimestamp = nil
		}
	}
	return family
}

// The gateway writes its metrics without a library. Prometheus' own parser reads them, and
// they are those that the collector has for the same requests.
func TestGatewayHasTheMetricsOfTheCollector(t *testing.T) {
	export, url := startGateway(t, "-refill", "0.0001")
	for _, want := range []int{200, 200, 429} {
		require.Equal(t, want, fetch(t, export).StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(fetch(t, url).Body)
	require.NoError(t, err)

	c := newPrometheus(t)
	observe := metrics.Server(c, "gateway")
	for _, refused := range []bool{false, false, true} {
		observe(httplimit.Event{Policy: "default", Cost: 5, Refused: refused, Decision: tokenbucket.Decision{Wait: time.Minute}})
	}
	require.NoError(t, c.watch("gateway", func() int { return 1 }, nil))
	families, err := c.Gather()
	require.NoError(t, err)
	require.Len(t, got, len(families))
	for _, want := range families {
		require.Contains(t, got, want.GetName())
		require.Equal(t, shape(want).String(), shape(got[want.GetName()]).String())
	}
	problems, err := promlint.New(fetch(t, url).Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
