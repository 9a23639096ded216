package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

// HTTPConfig says how clients are served over HTTP.
type HTTPConfig struct {
	// Bearers are who may call, by the SHA-256 of their tokens; nil: everybody,
	// who then are one.
	Bearers []Bearer
	// AllowedOrigins are origins (scheme://host[:port]) that browsers may call
	// from, and AllowedHosts names by which clients may call this server, both
	// beside loopback and in lower case.
	AllowedOrigins, AllowedHosts []string
	MaxBody                      int64         // bytes of a request; 0: 16 MiB
	SessionIdle                  time.Duration // after which a session that nobody uses ends; 0: 30 min
}

// Front serves clients of both eras over streamable HTTP. A client that says
// initialize has a session, with conversations of its own with the servers; one
// that does not speaks over conversations that its principal's other requests
// share. It is safe for concurrent use.
type Front struct {
	g   *Gateway
	cfg HTTPConfig

	mu       sync.Mutex
	sessions map[string]*webSession
	shared   map[principal]*sharedLinks
	ending   map[*webSession]struct{} // sessions that are over and have calls under way
	closed   bool
	quit     chan struct{}
	wg       sync.WaitGroup // sessions, and whoever looks after them
}

// principal is who calls. Nothing of one is seen by another.
type principal struct{ tenant, name string }

const (
	defaultMaxBody     = 16 << 20
	defaultSessionIdle = 30 * time.Minute
	maxSessions        = 10_000
)

// Front returns a server of clients over HTTP. [Front.Close] ends it.
func (g *Gateway) Front(cfg HTTPConfig) *Front {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.SessionIdle == 0 {
		cfg.SessionIdle = defaultSessionIdle
	}
	f := &Front{g: g, cfg: cfg, sessions: map[string]*webSession{}, shared: map[principal]*sharedLinks{}, ending: map[*webSession]struct{}{}, quit: make(chan struct{})}
	f.wg.Go(f.sweep)
	return f
}

// ServeHTTP implements [http.Handler], at whatever path.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.fromHere(r) {
		http.Error(w, "this host or origin is not allowed here", http.StatusForbidden)
		return
	}
	who, ok := f.bearer(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mcp-idem"`)
		http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		return
	}
	switch r.Method {
	case http.MethodPost:
		f.post(w, r, who)
	case http.MethodGet:
		f.listen(w, r, who)
	case http.MethodDelete:
		f.leave(w, r, who)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

// post takes one message.
func (f *Front) post(w http.ResponseWriter, r *http.Request, who principal) {
	if t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); t != "application/json" {
		http.Error(w, "Content-Type has to be application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, f.cfg.MaxBody))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			http.Error(w, "the message is too long", http.StatusRequestEntityTooLarge)
		}
		return // else the client has left
	}
	body = bytes.TrimSpace(body)
	var p parser
	e, err := p.parse(body)
	if err != nil && !(tooDeep(err) && e.id.there()) {
		code := codeParse
		if errors.Is(err, errBatch) || errors.Is(err, errNotObject) || errors.Is(err, errBadID) || errors.Is(err, errTwice) {
			code = codeInvalidRequest
		}
		writeError(w, http.StatusBadRequest, nil, code, err.Error())
		return
	}
	if wrong := modernFault(r.Header, e); wrong != nil {
		wrong.write(w, e.rawID())
		return
	}
	s, status, text := f.session(r, e, who)
	if s == nil {
		writeError(w, status, e.rawID(), codeInvalidRequest, text)
		return
	}
	s.take(w, r, body, e)
}

// session is whose conversation a message belongs to; nil: none, and why.
func (f *Front) session(r *http.Request, e envelope, who principal) (s *webSession, status int, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.Header.Get(headerSession)
	switch {
	case f.closed:
		return nil, http.StatusServiceUnavailable, "the gateway is ending; nothing was sent"
	case modernHello(e) != nil: // it has no sessions
		return f.oneOffLocked(who), 0, ""
	case id != "":
		if s := f.sessions[id]; s != nil && s.who == who {
			s.used = time.Now()
			return s, 0, ""
		}
		return nil, http.StatusNotFound, "the session is not known"
	case e.method == "initialize" && e.id.there():
		if len(f.sessions) >= maxSessions {
			return nil, http.StatusServiceUnavailable, "there are too many sessions"
		}
		return f.beginLocked(who), 0, ""
	}
	return f.oneOffLocked(who), 0, ""
}

func writeError(w http.ResponseWriter, status int, id []byte, code int, text string) {
	if len(id) == 0 {
		id = []byte("null")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(bytes.Join([][]byte{[]byte(ownHead), id, errorTail(code, text)}, nil))
}

// listen is the stream on which servers speak on their own.
func (f *Front) listen(w http.ResponseWriter, r *http.Request, who principal) {
	s := f.find(r, who)
	if s == nil {
		f.unknown(w, r)
		return
	}
	st := newWebStream(w, r)
	if st.start() != nil || !s.sink.hear(st) {
		return
	}
	defer s.sink.deaf(st)
	beat := time.NewTicker(beatPause)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			s.touch()
			if st.comment() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-st.done:
			return
		}
	}
}

// beatPause is how often a stream says that it lives.
const beatPause = 25 * time.Second

func (f *Front) unknown(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(headerSession) == "" {
		http.Error(w, "there is no session: Mcp-Session-Id is missing", http.StatusMethodNotAllowed)
		return
	}
	http.Error(w, "the session is not known", http.StatusNotFound)
}

func (f *Front) find(r *http.Request, who principal) *webSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[r.Header.Get(headerSession)]
	if s == nil || s.who != who || f.closed {
		return nil
	}
	s.used = time.Now()
	return s
}

// leave ends a session by its client's wish. What it has under way goes on.
func (f *Front) leave(w http.ResponseWriter, r *http.Request, who principal) {
	s := f.find(r, who)
	if s == nil {
		f.unknown(w, r)
		return
	}
	f.end(s)
	w.WriteHeader(http.StatusNoContent)
}

// end takes a session off the list and sees it out in the background.
func (f *Front) end(s *webSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions[s.id] != s {
		return
	}
	delete(f.sessions, s.id)
	f.ending[s] = struct{}{}
	f.wg.Go(func() {
		s.see(f.quit)
		f.mu.Lock()
		delete(f.ending, s)
		f.mu.Unlock()
	})
}

// sweep ends the sessions that nobody uses.
func (f *Front) sweep() {
	t := time.NewTicker(min(f.cfg.SessionIdle/4, time.Minute))
	defer t.Stop()
	for {
		select {
		case <-f.quit:
			return
		case <-t.C:
		}
		f.mu.Lock()
		var idle []*webSession
		for _, s := range f.sessions {
			if time.Since(s.used) > f.cfg.SessionIdle && !s.busy() {
				idle = append(idle, s)
			}
		}
		f.mu.Unlock()
		for _, s := range idle {
			f.end(s)
		}
	}
}

// Close takes nothing new, waits for what is under way, Config.Drain of the
// gateway at most, and ends every conversation. Stop the HTTP server after it:
// answers still go out meanwhile.
func (f *Front) Close(ctx context.Context) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	all := f.sessions
	f.sessions = map[string]*webSession{}
	shared := f.shared
	f.mu.Unlock()
	close(f.quit) // who is ending already has no more time than these
	for _, s := range all {
		f.wg.Go(func() { s.see(f.quit) })
	}
	for _, l := range shared {
		f.wg.Go(func() { l.end(f.g) })
	}
	done := make(chan struct{})
	go func() { f.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// connsLimit bounds how many connections of clients without a session are
// remembered; then all are forgotten, and what was delivered on them may be
// replayed once more.
const connsLimit = 10_000

// sharedLinks are the conversations with the servers that requests of one
// principal share where they have no session.
type sharedLinks struct {
	ups    []*Upstream
	open   sync.WaitGroup // requests
	tokens tokens

	mu    sync.Mutex
	conns map[string]*idem.Conn // by task
}

// conn is what stands for the connection of a client that has none, by its task.
func (l *sharedLinks) conn(g *Gateway, task string) *idem.Conn {
	if task == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conns[task]
	if c == nil {
		if l.conns == nil || len(l.conns) >= connsLimit {
			l.conns = map[string]*idem.Conn{}
		}
		c = g.cfg.Guard.Conn()
		l.conns[task] = c
	}
	return c
}

func (l *sharedLinks) end(g *Gateway) {
	done := make(chan struct{})
	go func() { l.open.Wait(); close(done) }()
	within(done, g.cfg.Drain)
	var wg sync.WaitGroup
	for _, up := range l.ups {
		wg.Go(func() { g.unlink(up) })
	}
	wg.Wait()
	within(done, settle)
}
