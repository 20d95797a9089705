// Package fieldtest sets the same header fields as package httplimit, but to constant
// values. Benchmarks compare with it: setting the fields cannot take less time.
package fieldtest

import "net/http"

// Values are the values of the fields, in the order in which they are set.
type Values [8]string

// Admit sets the first five fields and lets a request pass.
func (v *Values) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.setFigures(w.Header())
		next.ServeHTTP(w, r)
	})
}

// Refuse sets all fields and refuses requests. The body contains detail.
func (v *Values) Refuse(detail string) http.Handler {
	body := []byte(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"detail":"` + detail + `","violated-policies":["default"]}`)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		v.setFigures(h)
		h["Retry-After"] = v[5:6:6]
		h["Content-Type"] = v[6:7:7]
		h["Cache-Control"] = v[7:8:8]
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(body)
	})
}

func (v *Values) setFigures(h http.Header) {
	h["X-Ratelimit-Limit"] = v[0:1:1]
	h["X-Ratelimit-Remaining"] = v[1:2:2]
	h["X-Ratelimit-Reset"] = v[2:3:3]
	h["Ratelimit"] = v[3:4:4]
	h["Ratelimit-Policy"] = v[4:5:5]
}
