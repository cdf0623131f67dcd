package watch

import (
	"crypto/subtle"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
)

// Paths below the secret one. The browser polls statePath with the serial of its latest change.
const (
	pagePath  = ""
	statePath = "state"
	afterName = "after"
)

// mostHeader is the number of bytes of a request's header.
const mostHeader = 8 << 10

// makeServer returns the server of the page. Each connection has a deadline for each step.
func (p *Page) makeServer(b bounds) *http.Server {
	return &http.Server{
		Handler: p, ConnContext: p.clients.admit, ConnState: p.clients.follow, ErrorLog: log.New(io.Discard, "", 0),
		ReadTimeout: b.clientTimeout, ReadHeaderTimeout: b.clientTimeout, WriteTimeout: b.clientTimeout, IdleTimeout: b.clientTimeout, MaxHeaderBytes: mostHeader,
	}
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	name, isKnown := p.resource(r.URL.EscapedPath())
	switch {
	case r.Host != p.listener.Addr().String(): // A page of another site that resolves its name to this address.
		refuse(w, http.StatusForbidden)
	case !isKnown:
		refuse(w, http.StatusNotFound)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed)
	case !p.clients.accept(r.Context()):
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable)
	case name == pagePath:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, pageText) // The client may have ended.
	default:
		after, _ := strconv.ParseInt(r.URL.Query().Get(afterName), 10, 64) // All changes if it is invalid.
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.state(after))
	}
}

// resource returns the path below the secret one, and whether a client may know that.
func (p *Page) resource(path string) (name string, isKnown bool) {
	secret, name, hasSlash := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	isSecret := subtle.ConstantTimeCompare([]byte(secret), []byte(p.pathSecret)) == 1
	return name, isSecret && hasSlash && (name == pagePath || name == statePath)
}

// refuse answers with an error, and ends the connection.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(status), status)
}

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // The address is secret.
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}
