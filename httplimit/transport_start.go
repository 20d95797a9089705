package httplimit

import (
	"bytes"
	"io"
	"net/http"
)

// maxStart is how many bytes of an answer's body the function of WithTooFastFunc can read.
const maxStart = 64 << 10

// readsStart calls a function that may read the start of an answer's body, and returns its
// result. Afterwards the caller can read all of the body.
func readsStart(resp *http.Response, ask func(*http.Response) bool) bool {
	if resp.Body == nil || resp.Body == http.NoBody {
		return ask(resp)
	}
	body := resp.Body
	s := &start{body: body}
	resp.Body = s
	answer := ask(resp)
	resp.Body = body // unchanged if nothing was read, so that an upgraded connection keeps its Write
	if s.read.Len() > 0 || s.err != nil {
		resp.Body = s.whole()
	}
	return answer
}

// start is the start of a body. It keeps what is read. Close does not close the body.
type start struct {
	body io.ReadCloser
	read bytes.Buffer
	err  error // of the body
}

func (s *start) Read(p []byte) (n int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.read.Len() >= maxStart {
		return 0, io.EOF
	}
	n, s.err = s.body.Read(p[:min(len(p), maxStart-s.read.Len())])
	s.read.Write(p[:n])
	return n, s.err
}

func (s *start) Close() error { return nil }

// whole returns the body from its first byte.
func (s *start) whole() io.ReadCloser {
	var rest io.Reader = s.body
	if s.err != nil {
		rest = failing{s.err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&s.read, rest), s.body}
}

// failing is a reader that returns only an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
