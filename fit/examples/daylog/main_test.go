package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLogIsTheSameAtEachCall(t *testing.T) {
	var first, second strings.Builder
	write(&first, 20)
	write(&second, 20)
	require.Equal(t, first.String(), second.String())
	require.Equal(t, 24*60, strings.Count(first.String(), "203.0.113.9 "))
	require.Equal(t, 3600, strings.Count(first.String(), "198.51.100.7 "))
}
