package rueidis_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/redisbucket"
	"github.com/aa014e13/tokenbucket/redisbucket/examples/rueidis"
	"github.com/aa014e13/tokenbucket/redisbucket/internal/clientsuite"
)

func open(t testing.TB, addr string) redisbucket.Client {
	client, err := rueidis.Open(addr)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestClient(t *testing.T) { clientsuite.Run(t, open) }

func TestReadme(t *testing.T) {
	buckets, err := redisbucket.NewWithClient(open(t, redistest.Start(t).Addr), tokenbucket.Limit{Capacity: 10, RefillPerSec: 0.5})
	require.NoError(t, err)
	d, err := buckets.Take(context.Background(), "alice", 4)
	require.NoError(t, err)
	require.Equal(t, "true 6", fmt.Sprint(d.OK, " ", d.Remaining()))
}
