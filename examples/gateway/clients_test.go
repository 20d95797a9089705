package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
)

func TestMostLimitedClientsAreListed(t *testing.T) {
	mock := clock.NewMock()
	clients, err := newClients(standard.limit, mock)
	require.NoError(t, err)
	for i := range 30 {
		require.True(t, clients.Take(fmt.Sprint("192.0.", i, ".7"), float64(i%10)).OK)
	}
	require.True(t, clients.Take("2001:db8:1:2::/64", 10).OK)
	list := &limitedClients{clients: clients, now: mock.Now}
	rows := list.latest()
	require.Len(t, rows, most)
	require.Equal(t, limitedClient{"2001:db8:*", 0, 20}, rows[0])
	require.Equal(t, limitedClient{"192.0.19.*", 1, 18}, rows[1])

	clients.Forget("2001:db8:1:2::/64")
	require.Equal(t, rows, list.latest(), "made at most once a second")
	mock.Add(time.Second)
	require.Equal(t, "192.0.19.*", list.latest()[0].Client)
	mock.Add(time.Minute)
	require.Empty(t, list.latest())
}

func TestClientsAreListedOnlyWhereTheyMayBe(t *testing.T) {
	for _, shown := range []bool{false, true} {
		asked := standard
		asked.showClients = shown
		handler, err := newGateway(asked, clock.NewMock())
		require.NoError(t, err)
		get := client(handler, "GET", "192.0.2.1:1234")
		require.Equal(t, 200, get("/read").Code)
		answer := get("/clients")
		if !shown {
			require.Equal(t, 404, answer.Code)
			require.NotContains(t, get("/").Body.String(), "most limited clients")
			continue
		}
		var rows []limitedClient
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &rows))
		require.Equal(t, []limitedClient{{"192.0.2.*", 9, 2}}, rows)
		require.Equal(t, "9", get("/").Header().Get("X-RateLimit-Remaining"), "asking is free")
		require.Contains(t, get("/").Body.String(), "most limited clients")
	}
}

func TestShorten(t *testing.T) {
	for key, want := range map[string]string{"192.0.2.1": "192.0.2.*", "2001:db8:1:2::/64": "2001:db8:*", "::/64": ":*", "pipe": "*", "": "*"} {
		require.Equal(t, want, shorten(key))
	}
}
