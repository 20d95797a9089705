package httplimit_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
	"github.com/aa014e13/tokenbucket/keyed"
)

// stage is the base of a Transport in a bubble of virtual time. It returns the answers
// added by will, in order, and then 200s, and notes each request and its instant.
type stage struct {
	t     testing.TB
	start time.Time

	mu      sync.Mutex
	answers []*http.Response
	sent    []sentRequest
	bodies  []*watchedBody // of the answers
}

type sentRequest struct {
	at   time.Duration
	url  string
	body string
}

// onStage runs a test in a bubble.
func onStage(t *testing.T, act func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { act(t, &stage{t: t, start: time.Now()}) })
}

// will adds an answer: its status, then names and values of its header, then after
// "body" its body.
func (s *stage) will(status int, header ...string) *stage {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: -1}
	text := http.StatusText(status)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "body" {
			text = header[i+1]
			continue
		}
		resp.Header.Add(header[i], header[i+1])
	}
	body := &watchedBody{Reader: strings.NewReader(text)}
	resp.Body = body
	s.answers, s.bodies = append(s.answers, resp), append(s.bodies, body)
	return s
}

func (s *stage) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		assert.NoError(s.t, err)
		req.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sentRequest{time.Since(s.start), req.URL.String(), string(body)})
	if len(s.answers) == 0 {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	resp := s.answers[0]
	s.answers = s.answers[1:]
	resp.Request = req
	return resp, nil
}

// watchedBody notes how much of it was read, and whether it was closed.
type watchedBody struct {
	io.Reader
	read   int
	ended  bool
	closed bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *watchedBody) Close() error {
	b.closed = true
	return nil
}

// politely makes a client whose requests end on the stage, with one bucket for all
// hosts, and the bucket.
func (s *stage) politely(limit tokenbucket.Limit, opts ...httplimit.TransportOption) (*http.Client, *tokenbucket.Bucket) {
	s.t.Helper()
	bucket, err := tokenbucket.New(limit)
	require.NoError(s.t, err)
	return s.client(httplimit.AllHosts(bucket), opts...), bucket
}

// hostByHost makes a client with a bucket for each host.
func (s *stage) hostByHost(limit tokenbucket.Limit, opts ...httplimit.TransportOption) (*http.Client, *keyed.Buckets[string]) {
	s.t.Helper()
	buckets, err := keyed.New[string](limit)
	require.NoError(s.t, err)
	return s.client(buckets, opts...), buckets
}

func (s *stage) client(buckets httplimit.HostBuckets, opts ...httplimit.TransportOption) *http.Client {
	s.t.Helper()
	transport, err := httplimit.NewTransport(buckets, append([]httplimit.TransportOption{httplimit.WithBase(s)}, opts...)...)
	require.NoError(s.t, err)
	return &http.Client{Transport: transport}
}

// get gets a URL and returns the status of the answer and its body.
func (s *stage) get(client *http.Client, url string) (status int, body string) {
	s.t.Helper()
	resp, err := client.Get(url)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(text)
}

// instants returns when requests reached the stage.
func (s *stage) instants() (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sent {
		at = append(at, r.at)
	}
	return at
}

func (s *stage) now() time.Duration { return time.Since(s.start) }

// requestBody notes whether it was closed, as RoundTrip must do.
type requestBody struct {
	io.Reader
	closed chan struct{}
}

func newRequestBody(text string) *requestBody {
	return &requestBody{strings.NewReader(text), make(chan struct{}, 8)}
}

func (b *requestBody) Close() error {
	b.closed <- struct{}{}
	return nil
}

// bubbleStart is the Unix time at which a bubble begins.
const bubbleStart = 946684800

const (
	exampleURL = "http://api.example.com/"
	otherURL   = "http://other.example.com/"
)

// oneASecond is a bucket of 1 that refills 1 a second.
var oneASecond = tokenbucket.Limit{Capacity: 1, RefillPerSec: 1}
