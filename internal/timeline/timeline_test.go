package timeline_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/timeline"
)

const (
	never = timeline.Never
	end   = timeline.End
	least = time.Duration(math.MinInt64)
)

func TestLaterEndsAtNever(t *testing.T) {
	for _, row := range []struct{ at, wait, want time.Duration }{
		{5, 3, 8}, {-5, 3, -2}, {5, 0, 5}, {least, never, -1},
		{end, 1, never}, {end, 2, never}, {1, never, never}, {never, never, never},
	} {
		require.Equal(t, row.want, timeline.Later(row.at, row.wait), row)
	}
}

func TestUntilIsNeverNegative(t *testing.T) {
	for _, row := range []struct{ now, at, want time.Duration }{
		{5, 8, 3}, {5, 5, 0}, {8, 5, 0}, {-3, 5, 8}, {never, least, 0},
		{5, never, never}, {never, never, 0}, {least, 5, never}, {-5, end, never}, {0, end, end},
	} {
		require.Equal(t, row.want, timeline.Until(row.now, row.at), row)
	}
}

func TestReadingsEndBeforeNever(t *testing.T) {
	var zero timeline.Timeline // origin: 2,000 years ago
	require.Equal(t, end, zero.Now())
	zero.Clock = timeline.Watched{Saw: func(time.Duration) {}}
	require.Equal(t, end, zero.Now())
}

func TestOnlyTheSystemClockIsSteady(t *testing.T) {
	for _, row := range []struct {
		clock timeline.Clock
		want  bool
	}{{nil, true}, {timeline.Watched{}, true}, {struct{ timeline.Clock }{}, false}} {
		line := timeline.Timeline{Clock: row.clock}
		require.Equal(t, row.want, line.IsSteady())
	}
}

func TestResumeCountsMonotonicTime(t *testing.T) {
	stored := time.Now().Add(-time.Hour).Round(0) // without its monotonic reading
	require.Contains(t, timeline.Resume(nil, stored).Origin.String(), "m=")
	synctest.Test(t, func(t *testing.T) {
		line := timeline.Resume(nil, time.Now().Add(-time.Hour))
		time.Sleep(time.Minute)
		require.Equal(t, time.Hour+time.Minute, line.Now())
	})
}
