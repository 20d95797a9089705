package integrations_test

import (
	"testing"

	"github.com/go-kratos/aegis/ratelimit"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/examples/integrations"
)

func TestAegis(t *testing.T) {
	var limiter ratelimit.Limiter = integrations.Aegis{Bucket: tokenbucket.MustNew(tokenbucket.PerHour(1))}
	done, err := limiter.Allow()
	require.NoError(t, err)
	done(ratelimit.DoneInfo{})
	_, err = limiter.Allow()
	require.ErrorIs(t, err, ratelimit.ErrLimitExceed)
}
