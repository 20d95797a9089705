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

// job describes the work of one of several processes: goroutines that request one key as
// often as the refusals allow.
type job struct {
	Addr       string
	Limit      tokenbucket.Limit
	Goroutines int
	For        time.Duration
	Lease      float64 // tokens, for maxAge; 0 for none
}

// result is the result of a job. Its instants are by the server's clock.
type result struct {
	Admitted, Failures int
	Start              time.Time // before the first request
	Emptied            time.Time // once a request had been refused
	Due                time.Time // when its time was over; after that it took the remaining tokens
	End                time.Time // after the last request
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

// failed is the line that a process prints when a request has failed for the first time.
const failed = "failed\n"

// serve runs in the process. It prints that it is ready, waits for a line, works, and
// prints the result.
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
	opts := []redisbucket.Option{redisbucket.WithTimeout(10 * sec)} // so long that a busy machine does not cause a failure
	if j.Lease > 0 {
		opts = append(opts, redisbucket.WithLease(j.Lease, maxAge))
	}
	return opts
}

func (j job) work(client *redis.Client, b *redisbucket.Buckets) (r result) {
	w := worker{client: client, buckets: b}
	r.Start = w.now()
	w.share(j.Goroutines, w.takeRest)
	r.Emptied = w.now()
	end := time.Now().Add(j.For)
	w.share(j.Goroutines, func() { w.takeUntil(end) })
	r.Due = w.now()
	w.takeRest()
	r.End = w.now()
	if err := b.Close(); err != nil {
		panic(err)
	}
	r.Admitted, r.Failures = int(w.admitted.Load()), int(w.failures.Load())
	return r
}

// worker is the process that does a job.
type worker struct {
	client             *redis.Client
	buckets            *redisbucket.Buckets
	admitted, failures atomic.Int64
}

// now returns the server's time. It tries until the server answers.
func (w *worker) now() time.Time {
	for {
		if now, err := w.client.Time(background).Result(); err == nil {
			return now
		}
		w.fail()
		time.Sleep(5 * ms)
	}
}

func (w *worker) fail() {
	if w.failures.Add(1) == 1 {
		fmt.Print(failed)
	}
}

// share lets n goroutines do the same, and waits for them.
func (w *worker) share(n int, do func()) {
	var group sync.WaitGroup
	for range n {
		group.Go(do)
	}
	group.Wait()
}

// take tries to take a token, and returns how long to wait if there was none.
func (w *worker) take() (wait time.Duration) {
	wait, ok, err := w.buckets.TryAcquire(background, "key", 1)
	switch {
	case ok:
		w.admitted.Add(1)
		return 0
	case err == nil:
		return wait
	case errors.Is(err, redisbucket.ErrUnavailable):
		w.fail()
		return 5 * ms
	default:
		panic(err)
	}
}

// takeRest takes all tokens that are left.
func (w *worker) takeRest() {
	for w.take() == 0 {
	}
}

func (w *worker) takeUntil(end time.Time) {
	for left := time.Until(end); left > 0; left = time.Until(end) {
		time.Sleep(min(w.take(), left))
	}
}

// process is a worker that is ready.
type process struct {
	*exec.Cmd
	in      io.WriteCloser
	failed  chan struct{} // closed when a request has failed, or when the process has ended
	results chan result   // closed when the process has ended
}

func startProcess(t *testing.T, j job) *process {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(os.Args[0]), failed: make(chan struct{}), results: make(chan result, 1)}
	p.Env = append(os.Environ(), jobVariable+"="+string(text))
	p.Stderr = os.Stderr
	p.in, err = p.StdinPipe()
	require.NoError(t, err)
	pipe, err := p.StdoutPipe()
	require.NoError(t, err)
	out := bufio.NewReader(pipe)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	go p.listen(out)
	return p
}

// listen reads what the process prints.
func (p *process) listen(out *bufio.Reader) {
	defer close(p.results)
	hasFailed := sync.OnceFunc(func() { close(p.failed) })
	defer hasFailed()
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return
		}
		var r result
		if line == failed {
			hasFailed()
		} else if json.Unmarshal([]byte(line), &r) == nil {
			p.results <- r
		}
	}
}

// awaitFailures waits until each process has had a request that failed, or has ended.
func awaitFailures(processes []*process) {
	for _, p := range processes {
		<-p.failed
	}
}

// startAll starts a number of processes and lets them begin at the same time.
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
	r, ok := <-p.results
	require.True(t, ok, "the process has printed no result")
	return r
}

// total is the result of all processes: the sums, and the earliest or latest instants.
type total struct {
	admitted, failures int
	start, emptied     time.Time // the earliest
	due, end           time.Time // the latest
}

func sum(t *testing.T, processes []*process) (s total) {
	t.Helper()
	for i, p := range processes {
		r := p.result(t)
		s.admitted += r.Admitted
		s.failures += r.Failures
		if i == 0 || r.Start.Before(s.start) {
			s.start = r.Start
		}
		if i == 0 || r.Emptied.Before(s.emptied) {
			s.emptied = r.Emptied
		}
		if r.Due.After(s.due) {
			s.due = r.Due
		}
		if r.End.After(s.end) {
			s.end = r.End
		}
	}
	return s
}

// requireAtMost checks that no more was admitted than tokens plus the refill during the
// time in which any process worked.
func (s total) requireAtMost(t *testing.T, tokens, refill float64) {
	t.Helper()
	worked := s.end.Sub(s.start)
	most := tokens + refill*worked.Seconds()
	t.Logf("admitted %d in %v, at most %.0f", s.admitted, worked, most)
	require.LessOrEqual(t, float64(s.admitted), most)
}

// requireWithin checks that the processes got at most what the limit allows, and at least
// a share of it, on any busy machine. The capacity was taken before the first refusal, and
// the last process was refused after that. In between no tokens are lost, unless all
// processes stop for as long as the bucket needs to fill.
func (s total) requireWithin(t *testing.T, l tokenbucket.Limit, share float64) {
	t.Helper()
	s.requireAtMost(t, l.Capacity, l.RefillPerSec)
	least := l.Capacity + l.RefillPerSec*s.due.Sub(s.emptied).Seconds()
	require.GreaterOrEqual(t, float64(s.admitted), share*least)
}
