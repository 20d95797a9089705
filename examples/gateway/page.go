package main

import (
	"bytes"
	"embed"
	"html/template"
	"net"
	"net/http"
)

var (
	//go:embed page.html
	pageText string
	page     = template.Must(template.New("page").Parse(pageText))

	//go:embed page
	pageFiles embed.FS
)

// pagePolicy lets the page have its own script, style and pictures and ask this
// gateway, and nothing else anywhere (W3C, Content Security Policy Level 3).
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// servePage tells the page the prices, whose bucket it shows and where it is. All else it reads in
// the header fields of the answers it gets.
func (t terms) servePage(w http.ResponseWriter, r *http.Request) {
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	var text bytes.Buffer
	err = page.Execute(&text, struct {
		Read, Export float64
		Client, Host string
	}{t.read, t.export, client, r.Host})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text.Bytes()) // a client that is gone needs no page
}

func servePageFile(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeFileFS(w, r, pageFiles, "page/"+r.PathValue("file"))
}

func serveIcon(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pageFiles, "page/icon.svg")
}
