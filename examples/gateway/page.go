package main

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/netip"
)

var (
	//go:embed page.html
	pageText string
	page     = template.Must(template.New("page").Funcs(template.FuncMap{"plain": plain}).Parse(pageText))

	//go:embed page
	pageFiles embed.FS
)

// pagePolicy lets the page load its own script, style and pictures and send requests to
// this gateway, and nothing else (W3C, Content Security Policy Level 3).
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// view is the data that the page contains when it is loaded. Its script reads the level of the
// bucket from the header fields of answers, and the list of clients from /clients.
type view struct {
	Refill  float64
	Actions []action
	Client  string // the client whose bucket the page shows
	Host    string // host and port of the page
	Other   string // an address on the client's machine that has another bucket
	Clients bool   // whether to list the most limited clients
}

// action is a request that the page offers to send.
type action struct {
	Path, Name string
	Price      float64
}

func (t terms) view(r *http.Request) view {
	v := view{
		Refill:  t.limit.RefillPerSec,
		Actions: []action{{"/read", "Read", t.read}, {"/export", "Export", t.export}},
		Client:  r.RemoteAddr,
		Host:    r.Host,
		Clients: t.showClients,
	}
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		addr := peer.Addr().Unmap()
		v.Client = addr.String()
		if addr.Is4() && addr.IsLoopback() { // IPv6 has only one loopback address
			v.Other = addr.Next().String()
		}
	}
	return v
}

func (t terms) servePage(w http.ResponseWriter, r *http.Request) {
	var text bytes.Buffer
	if err := page.Execute(&text, t.view(r)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text.Bytes()) // an error means that the client has gone
}

func servePageFile(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeFileFS(w, r, pageFiles, "page/"+r.PathValue("file"))
}

func serveIcon(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pageFiles, "page/icon.svg")
}
