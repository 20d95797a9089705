package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachRequestIsALine(t *testing.T) {
	var out bytes.Buffer
	handler, err := newHandler(&out)
	require.NoError(t, err)
	for range 3 { // costs 15 tokens of 10: the third would be refused
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/export", nil))
		require.Equal(t, http.StatusOK, answer.Code)
	}
	lines := json.NewDecoder(&out)
	for range 3 {
		var line struct {
			TS   time.Time
			Key  string
			Cost float64
		}
		require.NoError(t, lines.Decode(&line))
		require.Equal(t, "192.0.2.1", line.Key)
		require.Equal(t, 5.0, line.Cost)
		require.False(t, line.TS.IsZero())
	}
	require.False(t, lines.More())
}
