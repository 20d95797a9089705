package integrations

import (
	"io"
	"net/http"

	"github.com/aa014e13/tokenbucket/httplimit"
)

// DeclaredBytes is a function for httplimit.WithCost: an upload costs as many tokens as
// the bytes that it declares. An upload that declares no size costs 1 until SettledUpload
// knows the size.
func DeclaredBytes(r *http.Request) float64 {
	return float64(max(1, r.ContentLength))
}

// SettledUpload stores uploads and settles their cost by the bytes that have arrived,
// also if the client disconnects before the end. The limiter's middleware needs
// httplimit.WithAdmission.
func SettledUpload(store func(io.Reader) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &countingReader{Reader: r.Body}
		defer func() {
			admission := httplimit.AdmissionFromContext(r.Context())
			if admission == nil {
				return
			}
			if more := float64(body.bytes) - admission.Cost; more > 0 {
				_ = admission.Charge(r.Context(), more)
			} else {
				_ = admission.Refund(r.Context(), -more)
			}
		}()
		if err := store(body); err != nil {
			http.Error(w, "the upload was not stored", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	bytes int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}
