package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

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

// quotaExceeded returns the form of a refusal by the limits that have these names.
func quotaExceeded(violated ...string) form {
	return newForm(problem{
		Type:     "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:    "Quota exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: violated,
	})
}

var (
	unnamed   = quotaExceeded() // for a decision without a valid limit
	undecided = newForm(problem{
		Type:   "about:blank",
		Title:  http.StatusText(http.StatusServiceUnavailable),
		Status: http.StatusServiceUnavailable,
	})
)

// form is a problem in JSON, encoded once, with a gap for its detail.
type form struct {
	status        int
	before, after string
}

func newForm(p problem) form {
	encoded, _ := json.Marshal(p) // strings and a number always can be encoded
	const blank = `"detail":"`    // cannot be part of a string, where quotes are escaped
	before, after, _ := strings.Cut(string(encoded), blank)
	return form{p.Status, before + blank, after}
}

// bodies are buffers for reuse. That is safe because a Write must not keep its argument
// (io.Writer).
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// answer sends the problem with a detail, which must not contain anything that JSON escapes.
func (p *form) answer(w http.ResponseWriter, f *fields, detail []byte) {
	delete(f.header, contentLength) // set by an outer layer for another body
	f.set(contentType, &f.refusal.contentType, "application/problem+json")
	w.WriteHeader(p.status)
	body := bodies.Get().(*[]byte)
	*body = append(append(append((*body)[:0], p.before...), detail...), p.after...)
	// After an error the client has gone, so the error needs no handling. But the buffer
	// must not be used again: with HTTP/2, Write returns when the stream is reset, even if
	// net/http is still sending the buffer.
	if _, err := w.Write(*body); err == nil {
		bodies.Put(body)
	}
}

func (m *middleware) answerUndecided(w http.ResponseWriter, f *fields, v *verdict) {
	if m.unavailable != nil {
		m.unavailable(w, v.request, v.err)
		return
	}
	seconds, _ := tokenbucket.RetryAfter(m.closedFor)
	undecided.answer(w, f, fmt.Appendf(nil, "The rate limiter does not answer: retry in %d s.", seconds))
}

func (m *middleware) answerRefused(w http.ResponseWriter, f *fields, v *verdict) {
	switch {
	case m.refuse != nil:
		m.refuse(w, v.request, v.decision)
	case v.isKnown:
		v.policy.exceeded.answer(w, f, appendDetail(make([]byte, 0, 128), v))
	default:
		unnamed.answer(w, f, appendDetail(make([]byte, 0, 128), v))
	}
}

func appendDetail(b []byte, v *verdict) []byte {
	seconds, ok := v.decision.RetryAfter()
	hasCost := !v.ask.each || v.decision.LimitIndex >= 0 // one cost, or that for a limit
	switch {
	case !ok && !hasCost:
		return append(b, "The number of costs is not the number of limits, or a cost is invalid: this can never be met."...)
	case hasCost:
		b = strconv.AppendFloat(append(b, "Tokens needed: "...), v.cost, 'g', -1, 64)
		if !ok {
			return append(b, ", which can never be met: ask for less."...)
		}
		if v.isKnown {
			b = strconv.AppendInt(append(b, ", left: "...), v.remaining, 10)
		}
		b = append(b, ". "...)
	}
	b = strconv.AppendInt(append(b, "Retry in "...), max(1, seconds), 10)
	return append(b, " s."...)
}
