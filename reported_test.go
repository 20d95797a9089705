package tokenbucket_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

// table rows are {instant, cost, want}; want is the wait, 0 for admitted.
type row struct {
	at   time.Duration
	cost float64
	want time.Duration
}

func run(t *testing.T, limit Limit, rows ...row) {
	t.Helper()
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, limit)
	for i, r := range rows {
		mock.Set(r.at)
		wait, ok := bucket.TryAcquire(r.cost)
		require.Equal(t, r.want, wait, "row %d: %+v", i, r)
		require.Equal(t, r.want == 0, ok, "row %d: %+v", i, r)
	}
}

// poll requests 1 token again and again, and returns how often it was admitted.
func poll(t *testing.T, limit Limit, drain float64, every, until time.Duration) (admitted int) {
	t.Helper()
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, limit)
	bucket.TryAcquire(drain)
	for at := time.Duration(0); at <= until; at += every {
		mock.Set(at)
		if _, ok := bucket.TryAcquire(1); ok {
			admitted++
		}
	}
	return admitted
}

func TestMistakeNoCap(t *testing.T) {
	run(t, Limit{3, 1}, row{time.Hour, 3, 0}, row{time.Hour, 1, sec})
}

func TestMistakeIntegerTokens(t *testing.T) {
	run(t, Limit{1, 0.5}, row{0, 1, 0}, row{sec, 1, sec}, row{1900 * ms, 1, 100 * ms}, row{2 * sec, 1, 0})
}

func TestMistakeRefusalMovesLast(t *testing.T) {
	run(t, Limit{1, 1}, row{0, 1, 0}, row{300 * ms, 1, 700 * ms}, row{600 * ms, 1, 400 * ms}, row{sec - 1, 1, 1}, row{sec, 1, 0})
}

func TestMistakeRefillingWithoutMovingLastOnARefusal(t *testing.T) {
	run(t, Limit{1, 1}, row{0, 1, 0}, row{600 * ms, 1, 400 * ms}, row{600 * ms, 1, 400 * ms}, row{700 * ms, 1, 300 * ms})
}

func TestMistakeStartsEmpty(t *testing.T) { run(t, Limit{3, 1}, row{0, 3, 0}) }

func TestMistakeRefilledSinceTimeZero(t *testing.T) {
	mock := waittest.NewClock(time.Unix(1e9, 0))
	bucket, err := tokenbucket.New(Limit{3, 1}, tokenbucket.WithClock(mock), tokenbucket.WithTokens(0))
	require.NoError(t, err)
	require.Zero(t, bucket.Tokens())
	mock.Set(sec)
	require.Equal(t, 1.0, bucket.Tokens())
}

func TestMistakeOneCostForEverything(t *testing.T) {
	run(t, Limit{10, 1}, row{0, 5, 0}, row{0, 1, 0}, row{0, 5, sec}, row{0, 4, 0})
}

func TestMistakeQuotingTheWaitForOne(t *testing.T) {
	run(t, Limit{10, 0.5}, row{0, 10, 0}, row{0, 1, 2 * sec}, row{0, 5, 10 * sec})
}

// TestReportedCases repeats public bug reports of other limiters. Those with waiters are
// in package waittest.
func TestReportedCases(t *testing.T) {
	hundred := func(first row, last row, again row) []row {
		return append(append([]row{first}, slices.Repeat([]row{again}, 100)...), last)
	}
	for name, c := range map[string]struct {
		limit Limit
		rows  []row
	}{
		"RateLimiters#3": {Limit{1, 1}, []row{
			{0, 1, 0}, {100 * ms, 1, 900 * ms}, {200 * ms, 1, 800 * ms}, {300 * ms, 1, 700 * ms}, {400 * ms, 1, 600 * ms}, {500 * ms, 1, 500 * ms},
			{600 * ms, 1, 400 * ms}, {700 * ms, 1, 300 * ms}, {800 * ms, 1, 200 * ms}, {900 * ms, 1, 100 * ms}, {sec, 1, 0},
		}},
		"golang/go#34861": {Limit{1, 10. / 13}, []row{{0, 1, 0}, {0, 1, 1300 * ms}, {1300*ms - 1, 1, 1}, {1300 * ms, 1, 0}}},
		"betty#1266":      {Limit{1, 3}, []row{{0, 1, 0}, {0, 1, 333333334}, {333333333, 1, 1}, {333333334, 1, 0}}},
		"golang/go#71154": {Limit{1, 1e-11}, []row{{0, 1, 0}, {0, 1, Never}, {290 * year, 1, Never}}},
		"limits#362":      {Limit{1, 1}, []row{{0, 1, 0}, {0, -5, Never}, {0, math.NaN(), Never}, {0, 1, sec}, {0, 0, 0}}},
		"bucket4j#220":    {Limit{3, 1.5}, []row{{0, 4, Never}, {0, 3, 0}, {0, 1, 666666667}}},
		"golang/go#56287": {Limit{10, 1}, []row{{10 * sec, 10, 0}, {9 * sec, 1, 2 * sec}, {10 * sec, 1, sec}, {11 * sec, 1, 0}}},
		"golang/go#52584": {Limit{2, 1}, hundred(row{0, 2, 0}, row{0, 1, sec}, row{0, 2, 2 * sec})},
		"aiolimiter#217":  {Limit{3, 1}, []row{{0, 2, 0}, {0, 2, sec}}},
		"ratelimit#122":   {Limit{3, 1}, []row{{0, 3, 0}, {4 * sec, 1, 0}, {4 * sec, 1, 0}, {4 * sec, 1, 0}, {4 * sec, 1, sec}}},
		"bucket4j#51": {Limit{1000, 1000}, []row{
			{0, 1000, 0}, {12 * time.Hour, 1000, 0}, {12 * time.Hour, 1, ms}, {290 * year, 1000, 0}, {290 * year, 1, ms},
		}},
		"boundary#4094":      {Limit{1, 1. / 3}, []row{{0, 1, 0}, {sec, 1, 2 * sec}, {2500 * ms, 1, 500 * ms}, {3 * sec, 1, 0}}},
		"burst out of order": {Limit{3, 1}, []row{{10 * sec, 1, 0}, {10*sec - 5, 1, 0}, {10*sec - 9, 1, 0}, {10*sec - 9, 1, sec + 9}}},
	} {
		t.Run(name, func(t *testing.T) { run(t, c.limit, c.rows...) })
	}
}

func TestReportedPolling(t *testing.T) {
	assert.Equal(t, 101, poll(t, Limit{1, 10}, 0, 10*ms, 10*sec), "golang/go#46579")
	assert.Equal(t, 200, poll(t, Limit{1200, 20}, 1200, 40*ms, 10*sec), "symfony#42627")
	assert.Equal(t, 110, poll(t, Limit{10, 100}, 0, ms/2, sec), "golang/go#39970")
	assert.Equal(t, 9, poll(t, Limit{3, 3}, 0, 100*ms, 2*sec), "gubernator#118")
}

func TestReportedLimitsChange(t *testing.T) { // contracts-sui#350
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{100, 1})
	bucket.TryAcquire(100)
	mock.Set(10 * sec)
	require.NoError(t, bucket.SetLimits(Limit{100, 100}))
	require.Equal(t, 10.0, bucket.Tokens())
	require.NoError(t, bucket.SetLimits(Limit{5, 100}))
	require.Equal(t, 5.0, bucket.Tokens())
	require.Equal(t, []Limit{{5, 100}}, bucket.Limits())
	require.NoError(t, bucket.SetLimits(Limit{50, 1}))
	require.Equal(t, 5.0, bucket.Tokens(), "a larger capacity mints nothing")
	bucket.Limits()[0] = Limit{1000, 1000}
	require.Equal(t, []Limit{{50, 1}}, bucket.Limits(), "what Limits returns is a copy")
}

// eagerClock is a mock whose After first runs the timers that are due, which call back
// into the bucket.
type eagerClock struct {
	waittest.Clock
	before func()
}

func (c *eagerClock) After(d time.Duration) <-chan time.Time {
	c.before()
	return c.Clock.After(d)
}

func TestMistakeHoldingTheLockWhileSleeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := new(eagerClock)
		bucket := newBucket(t, mock, Limit{1, 1})
		mock.before = func() { bucket.TryAcquire(1) }
		bucket.TryAcquire(1)
		done := make(chan error)
		go func() { done <- bucket.Wait(context.Background(), 1) }()
		synctest.Wait()
		require.Equal(t, 1, bucket.Waiting())
		_, ok := bucket.TryAcquire(1)
		require.False(t, ok)
		mock.Set(sec)
		require.NoError(t, <-done)
	})
}
