package metrics

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/grpclimit"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// RefusalLog logs a sample of the decisions that are not plain admissions: refusals,
// admissions by the fallback, and errors. A flood of refusals must not become a flood of
// lines. The lines hold keys: treat them as personal data. It may be used by any number of
// goroutines. Make it with [NewRefusalLog].
type RefusalLog struct {
	logger  *slog.Logger
	sample  *tokenbucket.Bucket
	omitted atomic.Int64 // since the last line
}

// NewRefusalLog returns a log that takes a token from the bucket sample for each line. If
// there is no token, the line is left out. So the limit {Capacity: 10, RefillPerSec: 1}
// allows 10 lines at once and 1 per second over time. Each line reports how many were
// left out since the line before.
func NewRefusalLog(logger *slog.Logger, sample *tokenbucket.Bucket) *RefusalLog {
	return &RefusalLog{logger: logger, sample: sample}
}

// HTTP is an observer for httplimit.WithObserver.
func (l *RefusalLog) HTTP(e httplimit.Event) {
	l.log(e.Request.Context(), &e, slog.String("method", e.Request.Method), slog.String("path", e.Request.URL.Path))
}

// GRPC is an observer for grpclimit.WithObserver.
func (l *RefusalLog) GRPC(e grpclimit.Event) {
	l.log(context.Background(), &e.Event, slog.String("method", e.Method))
}

func (l *RefusalLog) log(ctx context.Context, e *httplimit.Event, request ...slog.Attr) {
	outcome, level := outcomeOf(e), slog.LevelInfo
	if outcome == Error || outcome == Fallback {
		level = slog.LevelWarn
	}
	if outcome == Admitted || !l.logger.Enabled(ctx, level) {
		return
	}
	if _, ok := l.sample.TryAcquire(1); !ok {
		l.omitted.Add(1)
		return
	}
	attrs := append(request, slog.String("outcome", string(outcome)), slog.String("limit", e.Policy),
		slog.String("key", e.Key), slog.Float64("cost", e.Cost), slog.Int64("omitted", l.omitted.Swap(0)))
	if outcome == Refused || outcome == WouldRefuse {
		attrs = append(attrs, slog.Duration("wait", e.Decision.Wait))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	l.logger.LogAttrs(ctx, level, "rate limit", attrs...)
}
