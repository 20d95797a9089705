package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
)

// The test binary also runs as the gateway, so that tests can kill it.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_GATEWAY") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func newStateFile(t *testing.T, name string, clock tokenbucket.Clock) stateFile {
	clients, err := newClients(standard.limit, clock)
	require.NoError(t, err)
	return stateFile{name, clients}
}

func TestStateOutlivesARestart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	mock := clock.NewMock()
	before := newStateFile(t, name, mock)
	require.NoError(t, before.load(), "there is none yet")
	require.True(t, before.clients.Take("192.0.2.1", 9).OK)
	before.clients.Pause("192.0.2.2", time.Minute)
	require.NoError(t, before.save())
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it holds addresses")

	mock.Add(4 * time.Second)
	after := newStateFile(t, name, mock)
	require.NoError(t, after.load())
	require.Equal(t, 3.0, after.clients.Tokens("192.0.2.1"))
	d := after.clients.Take("192.0.2.1", 5)
	require.Equal(t, 4*time.Second, d.Wait)
	require.Equal(t, 58*time.Second, after.clients.Take("192.0.2.2", 1).Wait, "56 s of the pause, and a token")
	require.Equal(t, 10.0, after.clients.Tokens("192.0.2.3"))
	files, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, files, 1, "no temporary file is left")
}

func TestDamagedOrForeignFileIsLeftAlone(t *testing.T) {
	for what, text := range map[string]string{
		"damaged":            `{"Format":"tokenbucket gateway, version 1","Limi`,
		"empty":              ``,
		"foreign":            `{"name":"x"}`,
		"of another version": `{"Format":"tokenbucket gateway, version 2"}`,
		"without limits":     `{"Format":"tokenbucket gateway, version 1"}`,
		"with a bad state":   `{"Format":"tokenbucket gateway, version 1","Limits":[{"Capacity":10,"RefillPerSec":1}],"Origin":"2026-11-30T00:00:00Z","Buckets":{"a":[]}}`,
	} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "state")
			require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			bad := standard
			bad.state, bad.saveEvery = name, time.Second
			require.ErrorContains(t, serve(t.Context(), "127.0.0.1:0", bad, io.Discard), name)
			left, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, text, string(left))
		})
	}
}

func TestSaveReplacesWhatAKilledProcessLeft(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(name+".tmp", []byte(`{"Format"`), 0o644))
	require.NoError(t, newStateFile(t, name, nil).save())
	require.NoError(t, newStateFile(t, name, nil).load())
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoFileExists(t, name+".tmp")
}

func TestFailedSaveLeavesTheOldFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "none", "state")
	require.Error(t, newStateFile(t, name, nil).save())
	bad := standard
	bad.state = name
	require.ErrorContains(t, serve(t.Context(), "127.0.0.1:0", bad, io.Discard), "save-every 0s")
}

// TestKilledGatewayForgivesNoMoreThanWasNotSaved kills the gateway at random instants. A
// client never gets more than capacity + refill * time, plus the tokens that it got after
// the last complete save began.
func TestKilledGatewayForgivesNoMoreThanWasNotSaved(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	limit := tokenbucket.Limit{Capacity: 40, RefillPerSec: 20}
	random := rand.New(rand.NewPCG(1, 2))
	start, admitted, unsaved := time.Now(), 0, 0
	for range 6 {
		g := startKillable(t, state)
		var answered []time.Time
		for until := time.Now().Add(time.Duration(random.IntN(400)) * time.Millisecond); time.Now().Before(until); {
			if g.read(t) {
				answered = append(answered, time.Now())
			}
		}
		require.NoError(t, g.process.Process.Kill())
		_ = g.process.Wait() // it was killed
		admitted += len(answered)
		begun := begunAt(t, state)
		for _, at := range answered {
			if at.After(begun) {
				unsaved++
			}
		}
	}
	most := limit.Capacity + limit.RefillPerSec*time.Since(start).Seconds() + float64(unsaved)
	require.LessOrEqual(t, float64(admitted), most)
	require.Greater(t, admitted, 40)
}

// begunAt returns when the last complete save began, or the zero time if there is no
// file.
func begunAt(t *testing.T, name string) time.Time {
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return time.Time{}
	}
	require.NoError(t, err)
	var s saved
	require.NoError(t, json.Unmarshal(text, &s), "a kill never leaves half a file")
	return s.Begun
}

// killable is a gateway that runs in its own process.
type killable struct {
	process *exec.Cmd
	addr    string
}

func startKillable(t *testing.T, state string) *killable {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	process := exec.CommandContext(ctx, os.Args[0], "-addr", addr, "-capacity", "40", "-refill", "20", "-state", state, "-save-every", "20ms")
	process.Env = append(os.Environ(), "RUN_GATEWAY=1")
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	var text strings.Builder
	for buf := make([]byte, 1024); !strings.Contains(text.String(), "Ctrl-C stops"); {
		n, err := out.Read(buf)
		text.Write(buf[:n])
		require.NoError(t, err, text.String())
	}
	return &killable{process, addr}
}

// read sends a request and reports whether it was admitted.
func (g *killable) read(t *testing.T) bool {
	answer, err := http.Get("http://" + g.addr + "/read")
	require.NoError(t, err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	return answer.StatusCode == http.StatusOK
}
