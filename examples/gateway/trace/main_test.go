package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeptPictureIsTheOneDrawn(t *testing.T) {
	var drawn bytes.Buffer
	require.NoError(t, draw(&drawn))
	kept, err := os.ReadFile("../trace.svg")
	require.NoError(t, err)
	require.Equal(t, drawn.String(), string(kept), "draw it again: go run ./examples/gateway/trace >examples/gateway/trace.svg")
}

func TestAnswers(t *testing.T) {
	var titles []string
	for _, m := range marks(decide()) {
		titles = append(titles, m.Title)
	}
	require.Equal(t, []string{
		"at 0 s: admitted, 2 left",
		"at 0 s: admitted, 1 left",
		"at 0 s: admitted, 0 left",
		"at 0 s: 429, wait 2 s, 0 left",
		"at 1 s: 429, wait 1 s, 0.5 left",
		"at 2 s: admitted, 0 left",
		"at 3 s: 429, wait 1 s, 0.5 left",
		"at 4 s: admitted, 0 left",
	}, titles)
}

func TestLineGoesThroughTheLevels(t *testing.T) {
	line := "M"
	for _, corner := range []struct {
		at            time.Duration
		before, after float64
	}{
		{0, 3, 2}, {0, 2, 1}, {0, 1, 0}, {0, 0, 0}, {1, 0.5, 0.5}, {2, 1, 0}, {3, 0.5, 0.5}, {4, 1, 0},
	} {
		at := x(corner.at * time.Second)
		line += fmt.Sprintf(" %g,%g %g,%g", at, y(corner.before), at, y(corner.after))
	}
	require.Equal(t, line+fmt.Sprintf(" %g,%g", x(5*time.Second), y(0.5)), corners(decide()))
}

func TestPictureShowsEveryAnswer(t *testing.T) {
	var drawn bytes.Buffer
	require.NoError(t, draw(&drawn))
	var titles []string
	for _, m := range marks(decide()) {
		titles = append(titles, m.Title)
		require.Contains(t, drawn.String(), "<title>"+m.Title+"</title>")
	}
	require.Contains(t, drawn.String(), "<desc id=\"answers\">"+strings.Join(titles, "; ")+"</desc>", "for who can't see it")
	tokens := xml.NewDecoder(strings.NewReader(drawn.String()))
	var err error
	for err == nil {
		_, err = tokens.Token()
	}
	require.ErrorIs(t, err, io.EOF, "well-formed")
}
