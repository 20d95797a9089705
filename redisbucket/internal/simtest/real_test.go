package simtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
)

// realServer runs the script at the instants of a history.
type realServer struct {
	client *redis.Client
	script string
}

func newRealServer(t *testing.T) *realServer {
	source, err := os.ReadFile("../../bucket.lua")
	require.NoError(t, err)
	script := string(source)
	for is, becomes := range map[string]string{
		"redis.call('TIME')":            "{string.match(KEYS[2], '(%d+) (%d+)')}",
		"math.ceil(filling * 1000), 1)": "math.ceil(filling * 1000), 1e6)", // so that the test can look at the key afterwards
	} {
		require.Contains(t, script, is)
		script = strings.Replace(script, is, becomes, 1)
	}
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	return &realServer{client, script}
}

// do sets a key to its state before a step, and carries the step out.
func (s *realServer) do(t *testing.T, this step) (answer, after string) {
	ctx := t.Context()
	pipe := s.client.Pipeline()
	pipe.Del(ctx, this.Key)
	if this.Before != "" {
		pipe.Set(ctx, this.Key, this.Before, time.Hour)
	}
	args := make([]any, len(this.Args))
	for i, arg := range this.Args {
		args[i] = arg
	}
	run := pipe.Eval(ctx, s.script, []string{this.Key, fmt.Sprint(this.Micros/1e6, " ", this.Micros%1e6)}, args...)
	value := pipe.Get(ctx, this.Key)
	_, err := pipe.Exec(ctx)
	if err != redis.Nil {
		require.NoError(t, err, "%+v", this)
	}
	return run.Val().(string), value.Val()
}

// TestRealServer checks that the simulated server answers like a real one.
func TestRealServer(t *testing.T) {
	server := newRealServer(t)
	steps := carryOut(t, setting{Seed: 1, Hours: 3, Faults: "all", Steps: true}).Steps
	require.Greater(t, len(steps), 500)
	for _, this := range steps {
		answer, after := server.do(t, this)
		require.Equal(t, this.Answer, answer, "%+v", this)
		require.Equal(t, this.After, after, "%+v", this)
	}
	t.Logf("%d runs", len(steps))
}
