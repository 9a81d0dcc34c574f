package statuspage

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
)

//go:embed page.html
var pageText string

//go:embed style.css
var style []byte

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Handler serves the board. Requests for other hosts than names are refused, unless it is an
// address or localhost: a page of somebody else in the same browser could read it by giving
// its own name this address.
func (b *Board) Handler(names ...string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", b.page)
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(style)
	})
	mux.HandleFunc("GET /status", b.status)
	mux.HandleFunc("GET /healthz", b.health)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ours(r.Host, names) {
			http.Error(w, fmt.Sprintf("host %q is not this one's", r.Host), http.StatusMisdirectedRequest)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

func ours(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" || slices.Contains(names, host) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

func (b *Board) page(w http.ResponseWriter, _ *http.Request) {
	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, view(b.Now())); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text.Bytes())
}

func (b *Board) status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(b.Now()) // an error is the reader's end
}

// health is one word, then a line for each mirror with its partitions in each state. It is
// a failure (503) when a partition is FAILED, a topic is refused or a mirror does not run.
func (b *Board) health(w http.ResponseWriter, _ *http.Request) {
	s := b.Now()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.Health == failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, s.Health)
	if s.Error != "" {
		fmt.Fprintln(w, s.Error)
	}
	for _, m := range s.Mirrors {
		fmt.Fprintf(w, "%s: %s", m.Name, m.Health)
		for _, state := range slices.Sorted(maps.Keys(m.States)) {
			if n := m.States[state]; n > 0 {
				fmt.Fprintf(w, ", %d %s", n, state)
			}
		}
		if m.Reason != "" {
			fmt.Fprintf(w, ", %s", m.Reason)
		}
		fmt.Fprintln(w)
	}
}
