package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

// session is one client's connection.
type session struct {
	g    *Gateway
	up   *Upstream
	out  *lineWriter
	conn *idem.Conn
	run  string // where each connection is a run
	ctx  context.Context
	end  context.CancelFunc

	// Of the goroutine that reads the client.
	p     parser
	begun bool // a request came

	open sync.WaitGroup // requests that are owed an answer

	mu    sync.Mutex
	calls map[string]*call // guarded ones under way, by the client's id
}

func newSession(g *Gateway, out io.Writer) *session {
	s := &session{g: g, up: g.cfg.Upstream, out: &lineWriter{w: out}, conn: g.cfg.Guard.Conn(), calls: map[string]*call{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	if g.cfg.Identity.NewRunPerConnection {
		s.run = "conn-" + newID()
	}
	return s
}

// read takes the client's messages until there are no more.
func (s *session) read(in io.Reader) {
	lines := newLineReader(in)
	for s.ctx.Err() == nil {
		line, err := lines.next()
		if len(line) > 0 {
			s.line(line)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.g.cfg.Log.Warn().Err(err).Msg("cannot read from the client")
			}
			return
		}
	}
}

// settle is how long the end of the upstream may take to reach the last calls.
const settle = 5 * time.Second

// drain waits for what is running and then ends the upstream.
func (s *session) drain(err error) {
	idle := make(chan struct{})
	go func() { s.open.Wait(); close(idle) }()
	limit := s.g.cfg.Drain
	if err != nil { // nothing will answer any more
		limit = 0
	}
	wait(idle, limit)
	s.end()
	s.up.Close()
	wait(idle, settle)
	s.up.client.CompareAndSwap(s, nil)
}

func wait(ch <-chan struct{}, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ch:
	case <-t.C:
	}
}

// say writes one line to the client; what it cannot take is lost.
func (s *session) say(parts ...[]byte) {
	if _, err := s.out.write(parts...); err != nil {
		s.g.cfg.Log.Debug().Err(err).Msg("the client does not read any more")
	}
}

func (s *session) line(line []byte) {
	if s.conn != nil {
		s.conn.Heard()
	}
	e, err := s.p.parse(line)
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
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

func (s *session) request(e envelope) {
	first := !s.begun
	s.begun = true
	switch e.method {
	case "initialize":
		s.open.Add(1)
		s.up.initialize(s, e)
		return
	case "tools/call":
		if first {
			s.up.withoutHandshake()
		}
		s.call(e)
		return
	}
	if first {
		s.up.withoutHandshake()
	}
	s.pass(e)
}

// pass sends a request on, under an id of ours.
func (s *session) pass(e envelope) {
	s.open.Add(1)
	p := &pending{to: s, id: bytes.Clone(e.rawID())}
	if c := s.up.live.Load(); c != nil && s.passTo(c, e, p) {
		return
	}
	e.line = bytes.Clone(e.line)
	go s.passLater(e, p)
}

// passTo reports whether the request has its end or will get it from c.
func (s *session) passTo(c *child, e envelope, p *pending) bool {
	_, n, err := c.send(e.line, e.id, p)
	if err != nil && n > 0 {
		s.failPassed(p.id, reply{err: err, sent: n})
	}
	return err == nil || n > 0
}

// passLater waits for a process to send the request to.
func (s *session) passLater(e envelope, p *pending) {
	for {
		c, err := s.up.ready(s.ctx)
		if err != nil {
			s.failPassed(p.id, reply{err: err})
			return
		}
		if s.passTo(c, e, p) {
			return
		}
	}
}

// passAnswer hands an answer of the upstream to the client, under its own id.
func (s *session) passAnswer(id []byte, e envelope) {
	s.say(e.line[:e.id.from], id, e.line[e.id.to:])
	s.open.Done()
}

// failPassed answers a request that the upstream never will.
func (s *session) failPassed(id []byte, r reply) {
	text := "the request did not reach the upstream: "
	if r.sent > 0 {
		text = "the upstream gave no answer that can be read: "
	}
	s.sayError(id, codeInternal, text+r.err.Error())
	s.open.Done()
}

func (s *session) sayError(id []byte, code int, text string) {
	s.say([]byte(`{"jsonrpc":"2.0","id":`), id, errorTail(code, text))
}

// answered takes the client's answer to a request of the server.
func (s *session) answered(e envelope) {
	ask, ok := s.up.asks.take(e.rawID())
	if !ok {
		s.g.cfg.Log.Debug().Bytes("id", e.rawID()).Msg("the client answers what nobody asked")
		return
	}
	_, _ = ask.c.in.write(e.line[:e.id.from], []byte(ask.id), e.line[e.id.to:])
}

func (s *session) notified(e envelope) {
	switch e.method {
	case "notifications/initialized":
		s.up.initialized(e.line)
	case "notifications/cancelled":
		s.cancelled(e)
	case "tools/call":
		// Without an id it would go past the guard, and nobody could be told.
		s.g.cfg.Log.Warn().Msg("a tools/call without an id is not carried out")
	default:
		if c := s.up.live.Load(); c != nil {
			_, _ = c.in.write(e.line)
		}
	}
}

// cancelled takes the client's word that it does not want an answer any more. A
// guarded call goes on without it.
func (s *session) cancelled(e envelope) {
	params := e.params.of(e.line)
	at, err := member(params, "requestId")
	if err != nil || !at.there() {
		return
	}
	id := at.of(params)
	s.mu.Lock()
	guarded := s.calls[string(id)]
	s.mu.Unlock()
	if guarded != nil {
		guarded.cancelled(e, at)
		return
	}
	if c := s.up.live.Load(); c != nil {
		if key, ok := c.takePassed(s, id); ok {
			c.forwardCancel(e, at, key)
			s.open.Done()
		}
	}
}
