package httplimit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/aa014e13/tokenbucket"
)

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

// quotaExceeded returns the form of a refusal by the limits of these names.
func quotaExceeded(violated ...string) form {
	return newForm(problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Quota exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: violated,
	})
}

var (
	unnamed   = quotaExceeded() // by a limit that is not told
	undecided = newForm(problem{
		Type:   "about:blank",
		Title:  http.StatusText(http.StatusServiceUnavailable),
		Status: http.StatusServiceUnavailable,
	})
)

// form is a problem in JSON, encoded once, around a blank for its detail.
type form struct {
	status        int
	before, after []byte
}

func newForm(p problem) form {
	encoded, _ := json.Marshal(p) // strings and a number are never refused
	const blank = `"detail":"`    // in a string there would be no quotes but escaped ones
	before, after, _ := strings.Cut(string(encoded), blank)
	return form{p.Status, []byte(before + blank), []byte(after)}
}

// answer sends the problem with a detail, which has nothing in it that JSON escapes.
func (f *form) answer(w http.ResponseWriter, detail []byte) {
	h := w.Header()
	delete(h, "Content-Length") // of an outer layer: not this body's
	values := &[...]string{"application/problem+json", "no-store"}
	h["Content-Type"] = values[0:1:1]
	h["Cache-Control"] = values[1:2:2]
	w.WriteHeader(f.status)
	_, _ = w.Write(bytes.Join([][]byte{f.before, detail, f.after}, nil)) // a client that is gone needs no answer
}

func (m *middleware) answerUndecided(w http.ResponseWriter) {
	setRetryAfter(w.Header(), m.closedFor)
	seconds, _ := tokenbucket.RetryAfter(m.closedFor)
	undecided.answer(w, fmt.Appendf(nil, "The rate limiter does not answer: retry in %d s.", seconds))
}

func (m *middleware) answerRefused(w http.ResponseWriter, v *verdict) {
	setRetryAfter(w.Header(), v.decision.Wait)
	switch {
	case m.refuse != nil:
		m.refuse(w, v.request, v.decision)
	case v.isTold:
		v.policy.exceeded.answer(w, appendDetail(make([]byte, 0, 128), v))
	default:
		unnamed.answer(w, appendDetail(make([]byte, 0, 128), v))
	}
}

func appendDetail(b []byte, v *verdict) []byte {
	b = append(b, "This request costs "...)
	b = strconv.AppendFloat(b, v.cost, 'g', -1, 64)
	b = append(b, " tokens"...)
	seconds, ok := v.decision.RetryAfter()
	if !ok {
		return append(b, " and can never be admitted: ask for less."...)
	}
	if v.isTold {
		b = strconv.AppendInt(append(b, " and "...), v.remaining, 10)
		b = append(b, " are left"...)
	}
	b = strconv.AppendInt(append(b, ": retry in "...), max(1, seconds), 10)
	return append(b, " s."...)
}
