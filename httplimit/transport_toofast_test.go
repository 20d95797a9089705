package httplimit_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// isSecondary reports whether GitHub's secondary limits refused a request.
func isSecondary(resp *http.Response) bool {
	if resp.StatusCode != http.StatusForbidden {
		return false
	}
	if resp.Header.Get("Retry-After") != "" {
		return true
	}
	text, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(text), "secondary rate limit")
}

func TestTransportTooFastFunc(t *testing.T) { // go-github-ratelimit#38
	for _, row := range []struct {
		name   string
		status int
		header []string
		pause  time.Duration
	}{
		{"by a field", 403, []string{"Retry-After", "7", "body", `{"message": "wait"}`}, 7 * time.Second},
		{"by the body", 403, []string{"body", `{"message": "You have exceeded a secondary rate limit."}`}, 4 * time.Second},
		{"a missing permission", 403, []string{"body", `{"message": "Resource not accessible by integration"}`}, 0},
		{"a missing permission, without a body", 403, []string{"body", ""}, 0},
		{"a missing page", 404, []string{"Retry-After", "7"}, 0},
		{"success", 200, nil, 0},
		{"429 is too fast as ever", 429, []string{"Retry-After", "7"}, 7 * time.Second},
		{"503 is too fast as ever", 503, []string{"Retry-After", "7"}, 7 * time.Second},
		{"a long body", 403, []string{"body", strings.Repeat("x", 1<<20) + "secondary rate limit"}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				client, _ := s.politely(oneASecond, httplimit.WithDefaultPause(4*time.Second), httplimit.WithTooFastFunc(isSecondary))
				s.will(row.status, row.header...)
				want := http.StatusText(row.status)
				if n := len(row.header); n > 0 && row.header[n-2] == "body" {
					want = row.header[n-1]
				}
				status, body := s.get(client, exampleURL)
				require.Equal(t, row.status, status)
				require.True(t, want == body, "the caller gets all of it")
				require.True(t, s.bodies[0].closed)
				s.get(client, exampleURL)
				require.Equal(t, []time.Duration{0, row.pause + time.Second}, s.instants())
			})
		})
	}
}

func TestTransportRetriesWhatTheFunctionCallsTooFast(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.will(403, "body", "a secondary rate limit")
		client, _ := s.politely(oneASecond, httplimit.WithDefaultPause(4*time.Second), httplimit.WithTooFastFunc(isSecondary), httplimit.WithRetries(1))
		status, _ := s.get(client, exampleURL)
		require.Equal(t, http.StatusOK, status)
		require.True(t, s.bodies[0].ended)
		require.True(t, s.bodies[0].closed)
	})
	_, err := httplimit.NewTransport(&ledger{}, httplimit.WithTooFastFunc(nil))
	require.NoError(t, err)
}

// The caller gets the whole body, regardless of how much of it the function reads.
func TestTransportTooFastFuncDoesNotSpoilTheBody(t *testing.T) {
	broken := errors.New("broken")
	long := strings.Repeat("0123456789", 20_000)
	for name, row := range map[string]struct {
		body io.Reader
		read func(resp *http.Response)
		want string
		err  error
	}{
		"unread":        {strings.NewReader("text"), func(*http.Response) {}, "text", nil},
		"closed":        {strings.NewReader("text"), func(r *http.Response) { r.Body.Close() }, "text", nil},
		"replaced":      {strings.NewReader("text"), func(r *http.Response) { r.Body = http.NoBody }, "text", nil},
		"read in part":  {strings.NewReader("text"), func(r *http.Response) { _, _ = io.CopyN(io.Discard, r.Body, 2) }, "text", nil},
		"read whole":    {strings.NewReader("text"), func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) }, "text", nil},
		"byte by byte":  {iotest.OneByteReader(strings.NewReader("text")), func(r *http.Response) { _, _ = io.CopyN(io.Discard, r.Body, 3) }, "text", nil},
		"long":          {strings.NewReader(long), func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) }, long, nil},
		"broken":        {io.MultiReader(strings.NewReader("te"), iotest.ErrReader(broken)), func(r *http.Response) { _, _ = io.ReadAll(r.Body) }, "te", broken},
		"broken, twice": {iotest.ErrReader(broken), func(r *http.Response) { _, _ = io.ReadAll(r.Body); _, _ = io.ReadAll(r.Body) }, "", broken},
		"end with data": {iotest.DataErrReader(strings.NewReader("text")), func(r *http.Response) { _, _ = io.ReadAll(r.Body) }, "text", nil},
	} {
		t.Run(name, func(t *testing.T) {
			body := &watchedBody{Reader: row.body}
			transport, err := httplimit.NewTransport(&ledger{}, httplimit.WithTooFastFunc(func(r *http.Response) bool {
				row.read(r)
				return false
			}), httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}, nil
			})))
			require.NoError(t, err)
			req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
			require.NoError(t, err)
			resp, err := transport.RoundTrip(req)
			require.NoError(t, err)
			require.False(t, body.closed)
			require.LessOrEqual(t, body.read, 64<<10)
			text, err := io.ReadAll(resp.Body)
			require.Equal(t, row.err, err)
			require.True(t, row.want == string(text))
			require.NoError(t, resp.Body.Close())
			require.True(t, body.closed)
			if name == "unread" {
				require.Same(t, body, resp.Body)
			}
		})
	}
}

func TestTransportTooFastFuncWithoutABody(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		asked := 0
		transport, err := httplimit.NewTransport(&ledger{}, httplimit.WithTooFastFunc(func(r *http.Response) bool {
			asked++
			assert.Equal(t, body, r.Body)
			return true
		}), httplimit.WithBase(roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}, nil
		})))
		require.NoError(t, err)
		req, err := http.NewRequest(http.MethodGet, exampleURL, nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 1, asked)
	}
}
