package mcp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var errClientGone = errors.New("the client has left")

// webStream is one HTTP response: one answer as JSON, or a stream of events.
type webStream struct {
	token  string // of progress, raw; empty: none
	modern bool   // an error has an HTTP status that goes with it

	mu      sync.Mutex
	w       http.ResponseWriter
	ctl     *http.ResponseController
	left    context.Context // ends when the client leaves
	stream  bool            // events are sent
	over    bool
	done    chan struct{} // closed when nothing more is written
	written bool          // there is an answer
}

func newWebStream(w http.ResponseWriter, r *http.Request) *webStream {
	return &webStream{w: w, ctl: http.NewResponseController(w), left: r.Context(), done: make(chan struct{})}
}

// wait returns when the response is complete, or the client has left, or quit is
// closed. Nothing is written after it. It reports whether there was no end.
func (st *webStream) wait(quit <-chan struct{}) (cut bool) {
	select {
	case <-st.done:
		return st.left.Err() != nil
	case <-st.left.Done():
	case <-quit:
	}
	st.end()
	return true
}

func (st *webStream) start() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.startLocked()
}

func (st *webStream) startLocked() error {
	if st.over || st.left.Err() != nil {
		return errClientGone
	}
	if st.stream {
		return nil
	}
	st.stream = true
	h := st.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	st.w.WriteHeader(http.StatusOK)
	return st.ctl.Flush()
}

// say sends one message on a stream of events.
func (st *webStream) say(msg []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.startLocked(); err != nil {
		return err
	}
	return st.event(msg)
}

func (st *webStream) event(msg []byte) error {
	for _, part := range [][]byte{[]byte("event: message\ndata: "), msg, []byte("\n\n")} {
		if _, err := st.w.Write(part); err != nil {
			return err
		}
	}
	return st.ctl.Flush()
}

func (st *webStream) comment() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over || st.left.Err() != nil {
		return errClientGone
	}
	if _, err := st.w.Write([]byte(": \n\n")); err != nil {
		return err
	}
	return st.ctl.Flush()
}

// answer sends the answer and ends the response.
func (st *webStream) answer(msg []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over || st.left.Err() != nil {
		return errClientGone
	}
	defer st.endLocked()
	st.written = true
	if st.stream {
		return st.event(msg)
	}
	h := st.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(msg)))
	if st.modern {
		st.w.WriteHeader(answerStatus(msg))
	}
	if _, err := st.w.Write(msg); err != nil {
		return err
	}
	return st.ctl.Flush()
}

func (st *webStream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.endLocked()
}

func (st *webStream) endLocked() {
	if st.over {
		return
	}
	st.over = true
	if !st.stream && !st.written && st.left.Err() == nil { // it was cancelled: no answer is owed
		st.w.WriteHeader(http.StatusAccepted)
	}
	close(st.done)
}

// Bearer is who holds a token.
type Bearer struct {
	SHA256 [sha256.Size]byte // of the token
	Tenant string            // of its asks
	Name   string            // tells it from others of the tenant
}

// bearer is who a request is from.
func (f *Front) bearer(r *http.Request) (principal, bool) {
	if len(f.cfg.Bearers) == 0 {
		return principal{tenant: f.g.cfg.Tenant}, true
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	var who principal
	found := 0
	for _, b := range f.cfg.Bearers { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare(sum[:], b.SHA256[:]) == 1 {
			who, found = principal{b.Tenant, b.Name}, 1
		}
	}
	return who, found == 1 && strings.EqualFold(kind, "Bearer")
}

// fromHere guards against DNS rebinding: a page that a browser has loaded from
// elsewhere must not call a server on the browser's own machine. The host must be
// one of ours, and so must the origin, which only browsers send.
func (f *Front) fromHere(r *http.Request) bool {
	if !f.ours(r.Host, f.cfg.AllowedHosts) {
		return false
	}
	for _, origin := range r.Header.Values("Origin") {
		o, err := url.Parse(origin)
		if slices.Contains(f.cfg.AllowedOrigins, strings.ToLower(origin)) {
			continue
		}
		if err != nil || o.Host == "" || !f.ours(o.Host, nil) {
			return false
		}
	}
	return true
}

func (f *Front) ours(host string, allowed []string) bool {
	host = strings.ToLower(host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	if ip := net.ParseIP(name); name == "localhost" || ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(allowed, host) || slices.Contains(allowed, name)
}
