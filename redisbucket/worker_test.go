package redisbucket_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// job is what one of several processes does: goroutines that ask for one key as
// often as they are told they may.
type job struct {
	Addr       string
	Limit      tokenbucket.Limit
	Goroutines int
	For        time.Duration
	Lease      float64 // tokens, for maxAge; 0 for none
}

// result is what came of it. Instants are the server's, 0 if it was away.
type result struct {
	Admitted   int
	Failures   int
	Start, End time.Time
}

const jobVariable = "TOKENBUCKET_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			panic(err)
		}
		j.serve()
		return
	}
	os.Exit(m.Run())
}

// serve is the process: it says that it is ready, waits for a line, works, and
// says what came of it.
func (j job) serve() {
	client := redis.NewClient(&redis.Options{Addr: j.Addr})
	b, err := redisbucket.New(client, j.Limit, j.options()...)
	if err != nil {
		panic(err)
	}
	client.Ping(background)
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	r := j.work(client, b)
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

func (j job) options() []redisbucket.Option {
	opts := []redisbucket.Option{redisbucket.WithTimeout(10 * sec)} // a busy machine is no failure
	if j.Lease > 0 {
		opts = append(opts, redisbucket.WithLease(j.Lease, maxAge))
	}
	return opts
}

func (j job) work(client *redis.Client, b *redisbucket.Buckets) (r result) {
	var admitted, failures atomic.Int64
	var group sync.WaitGroup
	r.Start, _ = client.Time(background).Result()
	end := time.Now().Add(j.For)
	for range j.Goroutines {
		group.Go(func() {
			for {
				wait, ok, err := b.TryAcquire(background, "key", 1)
				left := time.Until(end)
				switch {
				case ok:
					admitted.Add(1)
				case err != nil && !errors.Is(err, redisbucket.ErrUnavailable):
					panic(err)
				case err != nil:
					failures.Add(1)
					time.Sleep(5 * ms)
				default:
					time.Sleep(min(wait, left))
				}
				if !ok && left <= 0 { // what is there by the end has been taken
					return
				}
			}
		})
	}
	group.Wait()
	r.End, _ = client.Time(background).Result()
	if err := b.Close(); err != nil {
		panic(err)
	}
	r.Admitted, r.Failures = int(admitted.Load()), int(failures.Load())
	return r
}

// process is a worker that is ready.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), jobVariable+"="+string(text))
	p.Stderr = os.Stderr
	p.in, err = p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return p
}

// startAll starts so many processes and lets them go at once.
func startAll(t *testing.T, processes int, j job) []*process {
	t.Helper()
	all := make([]*process, processes)
	for i := range all {
		all[i] = startProcess(t, j)
	}
	for _, p := range all {
		_, err := io.WriteString(p.in, "go\n")
		require.NoError(t, err)
	}
	return all
}

func (p *process) result(t *testing.T) (r result) {
	t.Helper()
	require.NoError(t, json.NewDecoder(p.out).Decode(&r))
	return r
}

// total is what came of all of them: the time that they all worked, and the time
// that any did.
type total struct {
	admitted, failures int
	all, any           time.Duration
}

func sum(t *testing.T, processes []*process) (s total) {
	t.Helper()
	var first, last, begin, end time.Time
	for i, p := range processes {
		r := p.result(t)
		s.admitted += r.Admitted
		s.failures += r.Failures
		if i == 0 || r.Start.Before(first) {
			first = r.Start
		}
		if i == 0 || r.End.After(last) {
			last = r.End
		}
		if i == 0 || r.Start.After(begin) {
			begin = r.Start
		}
		if i == 0 || r.End.Before(end) {
			end = r.End
		}
	}
	s.all, s.any = end.Sub(begin), last.Sub(first)
	return s
}
