package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

// session is one client's connection.
type session struct {
	g    *Gateway
	ups  []*Upstream // in the order of the configuration
	out  sink
	conn *idem.Conn
	run  string // where each connection is a run
	who  caller
	ctx  context.Context
	end  context.CancelFunc

	// Of the goroutine that reads the client.
	p     parser
	begun bool // a request came

	merged merged

	asks asks

	mu     sync.Mutex
	calls  map[string]*call              // guarded ones under way, by the client's id
	given  map[string]*call              // guarded ones that were answered, until something else is heard
	works  map[string]context.CancelFunc // of requests that we answer by ourselves, by the client's id
	owed   int                           // requests without an answer
	closed bool                          // no more are taken
	idle   chan struct{}                 // closed when none is owed any more
}

// sink takes what goes to a client.
type sink interface {
	// answer ends the client's request of that id.
	answer(id []byte, parts ...[]byte) error
	// abandon says that a request gets no answer.
	abandon(id []byte)
	// say sends a request or a notification. about is the client's request that
	// it belongs to; nil: that is not known.
	say(about []byte, parts ...[]byte) error
}

// lineSink is a client that speaks stdio: all goes the same way.
type lineSink struct{ w *lineWriter }

func (l lineSink) answer(_ []byte, parts ...[]byte) error {
	_, err := l.w.write(parts...)
	return err
}

func (lineSink) abandon([]byte) {}

func (l lineSink) say(_ []byte, parts ...[]byte) error { return l.answer(nil, parts...) }

// caller is who the client is, and how it is told from others.
type caller struct {
	tenant string
	task   string // of asks that name none; empty: they have none
	http   bool   // it came over HTTP: this process's environment is not the client's
	// conns finds the connection of a client without a session; nil: it has one.
	conns func(task string) *idem.Conn
}

// newSession begins a conversation with a client. ups are its own.
func newSession(g *Gateway, ups []*Upstream, out sink) *session {
	s := sessionOn(g, ups, out)
	for _, up := range ups {
		up.client.Store(s)
	}
	return s
}

// sessionOn is a session on conversations with servers that it shares.
func sessionOn(g *Gateway, ups []*Upstream, out sink) *session {
	s := &session{g: g, ups: ups, out: out, conn: g.cfg.Guard.Conn(),
		calls: map[string]*call{}, given: map[string]*call{}, works: map[string]context.CancelFunc{}, idle: make(chan struct{})}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.who = caller{tenant: g.cfg.Tenant, task: g.identity.anyTask}
	if g.cfg.Identity.NewRunPerConnection {
		s.run = "conn-" + newID()
	}
	return s
}

// read takes the client's messages until there are no more.
func (s *session) read(in io.Reader) {
	lines := newLineReader(in, s.ups[0].cfg.lineLimit)
	for s.ctx.Err() == nil {
		line, err := lines.next()
		if errors.Is(err, errLong) {
			s.heard()
			s.sayError([]byte("null"), codeInvalidRequest, fmt.Sprintf("the message is longer than %d bytes", s.ups[0].cfg.lineLimit))
			continue
		}
		if len(line) > 0 {
			s.line(line, nil)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.g.cfg.Log.Warn().Err(err).Msg("cannot read from the client")
			}
			return
		}
	}
}

// settle is how long asks may take to learn of their attempts' end, once the
// upstream has ended; parting is how long those that have not may take to leave.
const (
	settle  = 3 * time.Second
	parting = time.Second
)

// drain waits for what is running and then ends the upstream. An ask whose
// attempt is ended by that is told so; one that waits for something else is sent
// away.
func (s *session) drain(err error) {
	s.close()
	s.finish(err)
}

// finish is the rest of drain, when nothing new is taken any more.
func (s *session) finish(err error) {
	if err == nil { // else nothing will answer any more
		within(s.idle, s.g.cfg.Drain)
	}
	var ended sync.WaitGroup
	for _, up := range s.ups {
		ended.Go(func() { s.g.unlink(up) })
	}
	ended.Wait()
	within(s.idle, settle)
	s.end()
	within(s.idle, parting)
	for _, up := range s.ups {
		up.client.CompareAndSwap(s, nil)
	}
}

// begin counts a request that is owed an answer. It reports false when no more
// are taken.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.owed++
	return true
}

// done is called when a request has its answer, or wants none any more.
func (s *session) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed--; s.closed && s.owed == 0 {
		close(s.idle)
	}
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.owed == 0 {
		close(s.idle)
	}
}

// heard notes that the client sent something: what it was given has arrived.
func (s *session) heard() {
	s.mu.Lock()
	clear(s.given)
	s.mu.Unlock()
	if s.conn != nil {
		s.conn.Heard()
	}
}

// connection is what an ask came on.
func (s *session) connection(task string) *idem.Conn {
	if s.who.conns == nil {
		return s.conn
	}
	c := s.who.conns(task)
	if c != nil {
		c.Heard() // who asks again on it has sent something since
	}
	return c
}

// say sends one message to the client; what it cannot take is lost.
func (s *session) say(about []byte, parts ...[]byte) { s.said(s.out.say(about, parts...)) }

func (s *session) answer(id []byte, parts ...[]byte) { s.said(s.out.answer(id, parts...)) }

func (s *session) said(err error) {
	if err != nil {
		s.g.cfg.Log.Debug().Err(err).Msg("the client does not read any more")
	}
}

func (s *session) line(line []byte, head http.Header) {
	e, err := s.p.parse(line)
	e.head = head
	if err != nil || e.method != "notifications/cancelled" {
		s.heard() // a cancellation may be about an answer that is thrown away
	}
	switch {
	case err != nil:
		s.unreadable(e, err)
	case e.method == "":
		s.answered(e)
	case !e.id.there():
		s.notified(e)
	default:
		s.request(e)
	}
}

// unreadable answers a line that is no message. A line that is only nested
// beyond the tokenizer is answered under its own id.
func (s *session) unreadable(e envelope, err error) {
	switch {
	case errors.Is(err, errBatch), errors.Is(err, errNotObject), errors.Is(err, errTwice), errors.Is(err, errBadID):
		id := e.rawID()
		if len(id) == 0 || errors.Is(err, errBadID) || errors.Is(err, errTwice) {
			id = []byte("null")
		}
		s.sayError(id, codeInvalidRequest, err.Error())
	case tooDeep(err) && e.id.there():
		s.sayError(e.rawID(), codeInvalidRequest, "nested too deeply")
	default:
		s.sayError([]byte("null"), codeParse, "not valid JSON: "+err.Error())
	}
}

const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

func (s *session) request(e envelope) {
	if !s.begin() {
		s.sayError(e.rawID(), codeInternal, "the gateway is ending; nothing was sent")
		return
	}
	first := !s.begun
	s.begun = s.begun || e.method != "server/discover" // initialize may follow
	if first && e.method != "initialize" {
		for _, up := range s.ups {
			up.withoutHandshake(e)
		}
	}
	switch {
	case e.method == "tools/call":
		s.call(e)
	case s.several():
		s.mux(e)
	case e.method == "initialize":
		id := bytes.Clone(e.rawID())
		s.ups[0].initialize(e, func(r reply) {
			if r.err == nil {
				r.env = s.g.controls.announced(r.env)
			}
			s.passed(id, r)
		})
	default:
		s.passTo(s.ups[0], e)
	}
}

// passTo sends a request on, under an id of ours.
func (s *session) passTo(up *Upstream, e envelope) {
	up.pass(s.ctx, e, &pending{to: s, from: s, id: bytes.Clone(e.rawID()), fix: s.shownAs(up, e)})
}

// passAnswer hands an answer of the upstream to the client, under its own id.
func (s *session) passAnswer(id []byte, e envelope) {
	s.answer(id, e.line[:e.id.from], id, e.line[e.id.to:])
	s.done()
}

// passed takes what became of a request that went to the upstream as it was.
func (s *session) passed(id []byte, r reply) {
	if r.err != nil {
		s.failPassed(id, r)
		return
	}
	s.passAnswer(id, r.env)
}

// failPassed answers a request that the upstream never will.
func (s *session) failPassed(id []byte, r reply) {
	text := "the request did not reach the upstream: "
	if r.sent > 0 {
		text = "the upstream gave no answer that can be read: "
	}
	s.sayError(id, codeInternal, text+r.err.Error())
	s.done()
}

func (s *session) sayError(id []byte, code int, text string) {
	s.answer(id, []byte(`{"jsonrpc":"2.0","id":`), id, errorTail(code, text))
}

// answered takes the client's answer to a request of the server.
func (s *session) answered(e envelope) {
	ask, ok := s.asks.take(e.rawID())
	if !ok {
		s.g.cfg.Log.Debug().Bytes("id", e.rawID()).Msg("the client answers what nobody asked")
		return
	}
	_ = ask.c.wire.notify(e.line[:e.id.from], []byte(ask.id), e.line[e.id.to:])
}

func (s *session) notified(e envelope) {
	switch e.method {
	case "notifications/initialized":
		for _, up := range s.ups {
			up.initialized(e.line)
		}
	case "notifications/cancelled":
		s.cancelled(e)
	case "tools/call":
		// Without an id it would go past the guard, and nobody could be told.
		s.g.cfg.Log.Warn().Msg("a tools/call without an id is not carried out")
	case "notifications/progress":
		for _, up := range s.ups {
			if len(s.ups) == 1 || s.asks.of(up) { // of what a server has asked
				up.notify(e)
			}
		}
	default:
		for _, up := range s.ups {
			up.notify(e)
		}
	}
}

// cancelled takes the client's word that it does not want an answer any more, or
// did not when one came. A guarded call goes on without it.
func (s *session) cancelled(e envelope) {
	params := e.params.of(e.line)
	at, err := member(params, "requestId")
	if err != nil || !at.there() {
		return
	}
	id := at.of(params)
	s.mu.Lock()
	guarded := s.calls[string(id)]
	if guarded == nil {
		guarded = s.given[string(id)]
	}
	stop := s.works[string(id)]
	s.mu.Unlock()
	if stop != nil {
		stop()
		return
	}
	if guarded != nil {
		guarded.cancelled(e, at)
		return
	}
	for _, up := range s.ups {
		if up.cancelPassed(s, id, e, at) {
			s.out.abandon(id)
			s.done()
			return
		}
	}
}
