package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(t.Context(), &out))
		require.Equal(t, `List     answered after 0.0 s
List     answered after 0.0 s
Checkout refused: retry in 1.0 s
Checkout answered after 1.0 s
List     refused: retry in 0.5 s
List     answered after 1.5 s
Checkout refused: retry in 1.5 s
Checkout answered after 3.0 s
100 health checks were free
`, out.String())
	})
}
