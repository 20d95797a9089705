package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDayWithBothLimits(t *testing.T) {
	served, banned := liveThroughDay(perMinute, perHour)
	require.Zero(t, banned)
	require.GreaterOrEqual(t, float64(served), 0.9*299*24)
}

func TestDayWithoutOneOfThemEndsInABan(t *testing.T) {
	_, banned := liveThroughDay(perMinute)
	require.NotZero(t, banned)
	_, banned = liveThroughDay(perHour)
	require.NotZero(t, banned)
}

func TestStrictServerBansOnThe30thInAMinute(t *testing.T) {
	var server strictServer
	for i := range 29 {
		require.True(t, server.answers(time.Duration(i)*time.Second))
	}
	require.False(t, server.answers(59*time.Second))
}

func TestOutputTellsOfAllThreeDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		liveThroughDays(&out)
		require.Equal(t, 1, strings.Count(out.String(), "no ban: "), out.String())
		require.Equal(t, 2, strings.Count(out.String(), "banned permanently"), out.String())
	})
}
