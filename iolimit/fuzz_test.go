package iolimit_test

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/iolimit"
)

// script returns one choice after another, and 0 when there are no more.
type script []byte

func (s *script) choose(n int) int {
	if len(*s) == 0 {
		return 0
	}
	c := int((*s)[0])
	*s = (*s)[1:]
	return c % n
}

// model is a stream with its buckets, without goroutines and without a clock.
type model struct {
	limits   []tokenbucket.Limits
	states   [][]tokenbucket.State
	now      time.Duration
	deadline time.Duration // of the call; 0: none
	owes     bool
	late     error // the source's error that came with bytes not yet paid for
}

func (m *model) add(l tokenbucket.Limit) {
	m.limits = append(m.limits, tokenbucket.Limits{l})
	m.states = append(m.states, []tokenbucket.State{l.Full(m.now)})
}

// wait takes a cost from a bucket as soon as it can be taken. If the deadline comes first,
// it reports false at the deadline.
func (m *model) wait(bucket int, cost float64) bool {
	wait, ok := m.limits[bucket].TryAcquire(m.states[bucket], m.now, cost)
	if ok {
		return true
	}
	if m.deadline != 0 && m.now+wait > m.deadline {
		m.now = m.deadline
		return false
	}
	m.now += wait
	_, ok = m.limits[bucket].TryAcquire(m.states[bucket], m.now, cost)
	return ok
}

func (m *model) chunk(n int) int {
	size := 64 << 10
	for _, l := range m.limits {
		size = min(size, int(max(1, l[0].Capacity/2)))
	}
	return min(n, size)
}

// acquire returns how many buckets granted n bytes.
func (m *model) acquire(n int) (paid int) {
	for paid < len(m.limits) && m.wait(paid, float64(n)) {
		paid++
	}
	return paid
}

func (m *model) refund(paid, n int) {
	for i := range paid {
		_ = m.limits[i].Refund(m.states[i], m.now, float64(n))
	}
}

// write returns the results that Write must return; take returns how many bytes of a
// chunk the sink takes.
func (m *model) write(n int, take func(size int) (int, error)) (written int, err error) {
	for n > 0 {
		size := m.chunk(n)
		if paid := m.acquire(size); paid < len(m.limits) {
			m.refund(paid, size)
			return written, os.ErrDeadlineExceeded
		}
		taken, err := take(size)
		m.refund(len(m.limits), size-taken)
		written += taken
		if err == nil && taken < size {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, err
		}
		n -= size
	}
	return written, nil
}

// read returns the results that Read must return; give returns how many bytes the source
// gives.
func (m *model) read(n int, give func(size int) (int, error)) (int, error) {
	if m.owes {
		for i := range m.limits {
			if !m.wait(i, 5e-324) {
				return 0, os.ErrDeadlineExceeded
			}
		}
		err := m.late
		m.owes, m.late = false, nil
		if err != nil {
			return 0, err
		}
	}
	given, err := give(m.chunk(n))
	for left := given; left > 0; {
		size := m.chunk(left)
		if paid := m.acquire(size); paid < len(m.limits) {
			for i := range m.limits {
				owed := left
				if i < paid {
					owed -= size
				}
				_ = m.limits[i].Charge(m.states[i], m.now, float64(owed))
			}
			m.owes, m.late = true, err
			return given, os.ErrDeadlineExceeded
		}
		left -= size
	}
	return given, err
}

// outcomes records what the sink or the source did in a call, so that the model can
// repeat it.
type outcomes struct {
	script *script
	list   []result
}

// choose returns how many of n bytes are moved, and sometimes fails.
func (o *outcomes) choose(n int) (int, error) {
	r := result{n: n}
	if o.script.choose(4) == 1 {
		r.n = o.script.choose(n + 1)
	}
	if o.script.choose(8) == 1 {
		r.err = errBroken
	}
	o.list = append(o.list, r)
	return r.n, r.err
}

func (o *outcomes) repeat(int) (int, error) {
	if len(o.list) == 0 {
		return 0, nil
	}
	r := o.list[0]
	o.list = o.list[1:]
	return r.n, r.err
}

// FuzzStream compares a connection with the model: the results of each call, the instant at
// which it returns, and the levels of the buckets. Every byte arrives once, in order, and
// is charged once.
func FuzzStream(f *testing.F) {
	f.Add([]byte{})
	random := rand.NewChaCha8([32]byte{})
	for range 50 {
		choices := make([]byte, 200)
		_, _ = random.Read(choices)
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := script(choices)
			streamOf(t, &s).run(t)
		})
	})
}

// stream is one direction of a connection with its model.
type stream struct {
	script  *script
	start   time.Time
	model   *model
	buckets []*tokenbucket.Bucket
	inner   *endless
	conn    net.Conn
	read    bool
	did     *outcomes
	moved   int    // in bytes
	got     []byte // what was read
}

func streamOf(t *testing.T, s *script) *stream {
	st := &stream{script: s, start: time.Now(), model: &model{}, inner: newEndless(), did: &outcomes{script: s}}
	refills := []float64{2, 1, 4, 5, 8, 10, 20, 40} // grants fall on multiples of 25 ms
	for range 1 + s.choose(3) {
		st.add(tokenbucket.Limit{Capacity: float64(1 + s.choose(30)), RefillPerSec: refills[s.choose(len(refills))]})
	}
	st.add(tokenbucket.Limit{Capacity: 1 << 20, RefillPerSec: 1e-9}) // counts the bytes
	st.read = s.choose(2) == 1
	st.inner.give, st.inner.take = st.did.choose, st.did.choose
	st.conn = iolimit.NewConn(st.inner, iolimit.WithRead(st.buckets...), iolimit.WithWrite(st.buckets...))
	return st
}

func (st *stream) add(l tokenbucket.Limit) {
	st.buckets = append(st.buckets, tokenbucket.MustNew(l))
	st.model.add(l)
}

func (st *stream) run(t *testing.T) {
	for calls := 0; len(*st.script) > 0 && calls < 30; calls++ {
		time.Sleep(time.Duration(st.script.choose(8)) * 250 * time.Millisecond)
		st.model.now = time.Since(st.start)
		st.call(t, 1+st.script.choose(60))
		require.InDelta(t, st.moved, (1<<20)-st.buckets[len(st.buckets)-1].Tokens(), 1e-3, "charged once")
		for i, b := range st.buckets {
			require.InDelta(t, st.model.limits[i].Tokens(st.model.states[i], st.model.now), b.Tokens(), 1e-6)
		}
	}
	if st.read {
		require.Equal(t, count(st.moved), append([]byte{}, st.got...), "once and in order")
	} else {
		require.Equal(t, count(st.moved), append([]byte{}, st.inner.Bytes()...), "once and in order")
	}
}

// call reads or writes n bytes, sometimes with a deadline, never at an instant of a grant.
func (st *stream) call(t *testing.T, n int) {
	var deadline time.Time
	st.model.deadline = 0
	if st.script.choose(2) == 1 {
		left := time.Duration(st.script.choose(100))*100*time.Millisecond + 123457
		deadline = time.Now().Add(left)
		st.model.deadline = st.model.now + left
	}
	require.NoError(t, st.conn.SetDeadline(deadline))
	var p []byte
	var got, want int
	var err, failure error
	if st.read {
		p = make([]byte, n)
		got, err = st.conn.Read(p)
		st.got = append(st.got, p[:got]...)
		want, failure = st.model.read(len(p), st.did.repeat)
	} else {
		p = count(st.moved + n)[st.moved:]
		got, err = st.conn.Write(p)
		want, failure = st.model.write(n, st.did.repeat)
	}
	require.Equal(t, want, got)
	require.Equal(t, st.model.now, time.Since(st.start))
	require.ErrorIs(t, err, failure)
	require.Equal(t, failure == nil, err == nil)
	require.Empty(t, st.did.list)
	st.moved += got
}
