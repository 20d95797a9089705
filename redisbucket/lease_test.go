package redisbucket_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

func (b *bubble) leasing(tokens float64, limits ...tokenbucket.Limit) *redisbucket.Buckets {
	b.t.Helper()
	return b.machine(limits, redisbucket.WithLease(tokens, maxAge))
}

func TestLeaseTakesOneRoundTrip(t *testing.T) {
	inBubble(t, func(b *bubble) {
		m, plain := b.leasing(5, limit(100, 1)), b.machine([]tokenbucket.Limit{limit(100, 1)})
		for range 5 {
			b.drain(m, 1)
		}
		require.Equal(t, 95.0, b.level(plain))
		b.drain(m, 1)
		require.Equal(t, 90.0, b.level(plain))
		b.to(maxAge)
		require.Equal(t, 94.1, b.level(plain))
	})
}
