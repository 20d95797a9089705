package metrics_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/metrics"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// newLog returns a log of at most 2 lines at once and 1 per second, without times.
func newLog(out *bytes.Buffer) *metrics.RefusalLog {
	handler := slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return metrics.NewRefusalLog(slog.New(handler), tokenbucket.MustNew(tokenbucket.Limit{Capacity: 2, RefillPerSec: 1}))
}

func TestLogIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, c := newLog(&out), newPrometheus(t)
		limit, err := httplimit.New(newLimiter(t), httplimit.WithCost(func(*http.Request) float64 { return 10 }),
			httplimit.WithObserver(metrics.Each(log.HTTP, metrics.Server(c, "api"))))
		require.NoError(t, err)
		handler := limit(http.NotFoundHandler())
		for range 7 { // one is admitted
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
		}
		time.Sleep(time.Second)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/b", nil))
		const line = `level=INFO msg="rate limit" method=GET path=`
		const rest = ` outcome=refused limit=default key=192.0.2.1 cost=10`
		require.Equal(t, line+"/a"+rest+" omitted=0 wait=2h46m40s\n"+
			line+"/a"+rest+" omitted=0 wait=2h46m40s\n"+
			line+"/b"+rest+" omitted=4 wait=2h46m40s\n", out.String())
		require.Contains(t, samples(t, c, "decisions"), `decisions_total{limit="default",limiter="api",outcome="refused"} 7`)
	})
}

func TestLogOfFailures(t *testing.T) {
	var out bytes.Buffer
	log := newLog(&out)
	limit, err := httplimit.New(down{}, httplimit.WithObserver(log.HTTP))
	require.NoError(t, err)
	limit(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	log.GRPC(grpclimit.Event{Method: "/a.B/C", Event: httplimit.Event{Key: "ann", Cost: 1, Refused: true, ReportOnly: true, Policy: "hourly"}})
	log.GRPC(grpclimit.Event{Method: "/a.B/C", Event: httplimit.Event{Key: "ann"}}) // admitted
	require.Equal(t, `level=WARN msg="rate limit" method=GET path=/a outcome=error limit="" key=192.0.2.1 cost=1 omitted=0 error="no answer"`+"\n"+
		`level=INFO msg="rate limit" method=/a.B/C outcome=would_refuse limit=hourly key=ann cost=1 omitted=0 wait=0s`+"\n", out.String())
}
