package tokenbucket_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/waittest"
)

func TestRetryAfterRoundsUp(t *testing.T) {
	for wait, want := range map[time.Duration]int64{
		math.MinInt64: 0, -sec: 0, 0: 0, 1: 1, ms: 1, sec - 1: 1, sec: 1, sec + 1: 2, 5500 * ms: 6, Never - 1: 9223372037,
	} {
		got, ok := tokenbucket.RetryAfter(wait)
		require.True(t, ok)
		require.Equal(t, want, got, wait)
	}
	_, ok := tokenbucket.RetryAfter(Never)
	require.False(t, ok)
}

// boundary#4094, redis-cell#56; and bucket4j#220 at the end
func TestDecisionRetryAfterIsNeverTooEarly(t *testing.T) {
	mock := new(waittest.Clock)
	bucket := newBucket(t, mock, Limit{1, 1. / 3})
	for _, r := range []struct {
		at      time.Duration
		cost    float64
		seconds int64
		ok      bool
	}{
		{0, 1, 0, true}, {sec, 1, 2, true}, {2500 * ms, 1, 1, true}, {3 * sec, 1, 0, true}, {3 * sec, 1, 3, true}, {3 * sec, 4, 0, false},
	} {
		mock.Set(r.at)
		seconds, ok := bucket.Take(r.cost).RetryAfter()
		require.Equal(t, r.seconds, seconds, "%+v", r)
		require.Equal(t, r.ok, ok, "%+v", r)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, time.November, 6, 8, 49, 37, 5e8, time.FixedZone("", 3600)) // 07:49:37.5 UTC
	for value, want := range map[string]time.Duration{
		"0": 0, "120": 2 * time.Minute, " 7\t": 7 * sec, "007": 7 * sec,
		"9223372036":                       9223372036 * sec,
		"9223372037":                       Never, // go-retryablehttp#297
		"18446744073709551617":             Never,
		strings.Repeat("9", 400):           Never,
		strings.Repeat("0", 400) + "1":     sec,
		"Fri, 06 Nov 2026 07:49:38 GMT":    500 * ms,
		" Fri, 06 Nov 2026 07:50:37 GMT\t": 59500 * ms,
		"Friday, 06-Nov-26 07:49:38 GMT":   500 * ms,
		"Fri Nov  6 07:49:38 2026":         500 * ms,
		"Fri Nov 06 07:49:38 2026":         500 * ms,
		"Fri, 06 Nov 2026 07:49:37 GMT":    0,
		"Sun, 06 Nov 1994 08:49:37 GMT":    0,
		"Sunday, 06-Nov-94 08:49:37 GMT":   0, // 2094 would be 68 years ahead
		"Sun Nov  6 08:49:37 1994":         0,
		"Fri, 06 Nov 2099 07:49:38 GMT":    26663*24*time.Hour + 500*ms, // four digits are never folded
		"Fri Nov  6 07:49:38 1970":         0,
		"Mon, 31 Dec 9999 23:59:59 GMT":    Never,
		"Fri, 06 Nov 2026 23:59:60 GMT":    16*time.Hour + 10*time.Minute + 22500*ms, // a leap second
		"Fri Nov  6 23:59:60 2026":         16*time.Hour + 10*time.Minute + 22500*ms,
		"Mon, 06 Nov 2026 07:49:38 GMT":    500 * ms, // it is a Friday, and the date is plain all the same
	} {
		got, err := tokenbucket.ParseRetryAfter(value, now)
		require.NoError(t, err, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{
		"", " ", "-1", "+5", "1.5", "99x", "1 2", "1e3", "0x10", "1_000", "١٢", "5s", "soon", "NaN", "-0", "5,", "5;",
		"Fri, 06 Nov 2026", "Fri, 06 Nov 2026 07:49:38", "Fri, 06 Nov 2026 07:49:38 CET", "Fri, 06 Nov 2026 07:49:38 UTC",
		"Fri, 06 Nov 2026 07:49:38 +0000", "Fri, 06 Nov 2026 07:49:38.5 GMT", "Friday, 06-Nov-26 07:49:38.5 GMT", "Fri Nov  6 07:49:38.5 2026",
		"Fri, 06 Nov 2026 7:49:38 GMT", "Fri, 6 Nov 2026 07:49:38 GMT", "Fri, 31 Feb 2026 07:49:38 GMT", "Fri, 06 Nov 2026 24:00:00 GMT",
		"Fri, 06 Nov 2026 07:49:60 GMT", "2026-11-06T07:49:38Z", "Fri, 06 Nov 2026 07:49:38 GMT x", "Friday, 06-Nov-2026 07:49:38 GMT", "Fri Nov 6 07:49:38 2026",
	} {
		_, err := tokenbucket.ParseRetryAfter(value, now)
		require.Error(t, err, value)
	}
}

func TestParseRetryAfterTwoDigitYears(t *testing.T) {
	for _, c := range []struct {
		now, value string
		past       bool
	}{
		{"2026-01-01", "Wednesday, 01-Jan-76 00:00:00 GMT", false}, // 50 years ahead, not more
		{"2026-01-01", "Friday, 02-Jan-76 00:00:00 GMT", true},     // 1976: 2076 would be more
		{"2018-01-01", "Sunday, 01-Jan-68 00:00:00 GMT", false},    // 2068
		{"2017-12-31", "Monday, 01-Jan-68 00:00:00 GMT", true},     // 1968
		{"2099-12-31", "Friday, 01-Jan-00 00:00:00 GMT", false},    // tomorrow, in 2100
		{"2026-01-01", "Thursday, 01-Jan-26 00:00:01 GMT", false},
		{"2026-01-01", "Friday, 31-Dec-99 23:59:59 GMT", true},
	} {
		now, err := time.Parse(time.DateOnly, c.now)
		require.NoError(t, err)
		wait, err := tokenbucket.ParseRetryAfter(c.value, now)
		require.NoError(t, err)
		require.Equal(t, c.past, wait == 0, c.value)
	}
}

// ParseRetryAfter returns the wait that was written, in each form, rounded up to the
// second.
func TestRetryAfterThereAndBack(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	start := time.Date(2026, time.February, 28, 23, 59, 59, 0, time.UTC)
	for range 5000 {
		now := start.Add(time.Duration(random.Int64N(int64(60 * year))))
		wait := time.Duration(random.Int64N(int64(49*year)) >> random.IntN(62))
		seconds, ok := tokenbucket.RetryAfter(wait)
		require.True(t, ok)
		back, err := tokenbucket.ParseRetryAfter(fmt.Sprint(seconds), now)
		require.NoError(t, err)
		require.True(t, back >= wait && back-wait < sec, "%v came back as %v", wait, back)

		date := now.Add(wait).Truncate(sec)
		for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
			back, err := tokenbucket.ParseRetryAfter(date.Format(layout), now)
			require.NoError(t, err)
			require.Equal(t, max(0, date.Sub(now)), back, "%v from %v", date.Format(layout), now)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, value := range []string{
		"", "0", "120", " 7\t", "9223372036", "9223372037", "-1", "1.5",
		"Fri, 06 Nov 2026 07:49:38 GMT", "Friday, 06-Nov-26 07:49:38 GMT", "Fri Nov  6 07:49:38 2026",
	} {
		f.Add(value, int64(1793951377))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		wait, err := tokenbucket.ParseRetryAfter(value, time.Unix(unix%1e11, 0))
		require.GreaterOrEqual(t, wait, time.Duration(0))
		digits := strings.TrimSpace(value)
		if digits == "" || strings.Trim(digits, "0123456789") != "" {
			require.True(t, err == nil || wait == 0)
			return
		}
		require.NoError(t, err)
		want, _ := new(big.Int).SetString(digits, 10)
		if want.Mul(want, big.NewInt(1e9)); !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		require.Equal(t, want.Int64(), int64(wait))
	})
}
