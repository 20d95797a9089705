package tokenbucket_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

func TestCosts(t *testing.T) {
	costs := tokenbucket.Costs{"export": 5, "ping": 0}
	require.Equal(t, []float64{5, 0, 1}, []float64{costs.Of("export"), costs.Of("ping"), costs.Of("other")})
	require.Equal(t, 1.0, tokenbucket.Costs(nil).Of("any"))
	require.NoError(t, costs.Validate(5))
	require.NoError(t, tokenbucket.Costs(nil).Validate(1))

	err := tokenbucket.Costs{"b": 11, "a": -1, "c": math.NaN(), "d": 2, "e": math.Inf(1)}.Validate(10)
	require.ErrorIs(t, err, tokenbucket.ErrInvalidCost)
	require.ErrorIs(t, err, tokenbucket.ErrCostExceedsCapacity)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 4)
	for i, name := range []string{`"a"`, `"b"`, `"c"`, `"e"`} {
		require.Contains(t, lines[i], name)
	}
	require.Error(t, costs.Validate(math.NaN()))
}
