package mcp

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// separator stands between a server's name and its tool's.
const separator = "__"

// several reports whether what the client sees is put together by us: there is
// more than one server, or its name stands before those of its tools.
func (s *session) several() bool { return len(s.ups) > 1 || s.g.cfg.Prefix }

// searches reports whether a tool's name does not say which server it is of.
func (s *session) searches() bool { return len(s.ups) > 1 && !s.g.cfg.Prefix }

// target is the server that a name belongs to, and the server's own name for it;
// nil: it cannot be told from the name.
func (s *session) target(shown string) (up *Upstream, name string) {
	switch {
	case s.g.cfg.Prefix:
		for _, u := range s.ups {
			rest, ok := strings.CutPrefix(shown, u.cfg.Name+separator)
			if ok && (up == nil || len(u.cfg.Name) > len(up.cfg.Name)) {
				up, name = u, rest
			}
		}
		return up, name
	case len(s.ups) == 1:
		return s.ups[0], shown
	}
	return nil, ""
}

// shown is how the client sees a name of a server.
func (s *session) shown(up *Upstream, name string) string {
	if s.g.cfg.Prefix {
		return up.cfg.Name + separator + name
	}
	return name
}

// search finds the server of a tool by asking all for their tools.
func (s *session) search(e envelope, name string) {
	ctx, cancel := context.WithTimeout(s.ctx, listLimit)
	defer cancel()
	var of []*Upstream
	var silent []string
	for _, up := range s.ups {
		t, err := up.tool(ctx, name)
		switch {
		case err != nil:
			silent = append(silent, up.cfg.Name)
		case t != nil && up.allows(name):
			of = append(of, up)
		}
	}
	switch {
	case len(of) == 1 && len(silent) == 0:
		s.callOf(of[0], e, name)
		return
	case len(of) > 1:
		s.sayError(e.rawID(), codeInvalidParams, fmt.Sprintf("the tool %s is offered by %s and %s: nothing was sent; names: prefix tells them apart", name, of[0].cfg.Name, of[1].cfg.Name))
	case len(silent) > 0:
		s.sayError(e.rawID(), codeInternal, fmt.Sprintf("the tool %s cannot be told to be of one server alone, since these do not list theirs: %s; nothing was sent", name, strings.Join(silent, ", ")))
	default:
		s.sayError(e.rawID(), codeInvalidParams, "unknown tool: "+name)
	}
	s.done()
}

// renamed is a request whose params name something else. Every other byte stays.
func renamed(e envelope, name string) envelope { return replaced(e, []string{"name"}, quote(name)) }

// replaced is a request with another value at a place in its params.
func replaced(e envelope, path []string, value []byte) envelope {
	at := e.params
	for _, name := range path {
		inner, err := member(at.of(e.line), name)
		if err != nil || !inner.there() {
			return e
		}
		at = span{at.from + inner.from, at.from + inner.to}
	}
	line := splice(e.line, at, value)
	var p parser
	out, err := p.parse(line)
	if err != nil {
		return e
	}
	return out
}

// mux takes a request that belongs to one of several servers, or to all.
func (s *session) mux(e envelope) {
	switch e.method {
	case "initialize":
		s.initializeAll(e)
	case "ping":
		s.passAnswer(bytes.Clone(e.rawID()), answerLine([]byte(`{}`)))
	case "prompts/get":
		s.passNamed(e, "name")
	case "completion/complete":
		params := e.params.of(e.line)
		if find(find(params, "ref"), "name") != nil {
			s.passNamed(e, "ref", "name")
			return
		}
		s.inTheBackground(e, func(ctx context.Context, e envelope) { s.byURI(ctx, e, find(find(e.params.of(e.line), "ref"), "uri")) })
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		s.inTheBackground(e, func(ctx context.Context, e envelope) { s.byURI(ctx, e, find(e.params.of(e.line), "uri")) })
	case "logging/setLevel":
		s.inTheBackground(e, s.toAll)
	case "server/discover":
		s.inTheBackground(e, s.discoverAll)
	default:
		if _, ok := lists[e.method]; ok {
			s.inTheBackground(e, s.merge)
			return
		}
		s.refuse(e.rawID(), codeNoMethod, e.method+" cannot be told to belong to one of the servers behind this gateway")
	}
}

// muxLimit bounds how long servers may take over a request to all of them. Those
// that take longer are left out.
const muxLimit = 10 * time.Second

// inTheBackground sees a request through on its own goroutine.
func (s *session) inTheBackground(e envelope, f func(context.Context, envelope)) {
	e.line = bytes.Clone(e.line)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, muxLimit)
		defer cancel()
		f(ctx, e)
	}()
}

func (s *session) refuse(id []byte, code int, text string) {
	s.sayError(id, code, text)
	s.done()
}

// passNamed passes a request to the server whose name stands before another at
// that place.
func (s *session) passNamed(e envelope, path ...string) {
	raw := e.params.of(e.line)
	for _, name := range path {
		raw = find(raw, name)
	}
	shown, err := unquote(raw)
	if err != nil {
		s.refuse(e.rawID(), codeInvalidParams, e.method+" needs "+strings.Join(path, "."))
		return
	}
	if up, name := s.target(shown); up != nil {
		s.passTo(up, replaced(e, path, quote(name)))
		return
	}
	s.inTheBackground(e, s.firstThatKnows)
}

// ask makes a client's request of one server and waits for its answer, which is
// a copy.
func (s *session) ask(ctx context.Context, up *Upstream, e envelope) (envelope, error) {
	ch := make(chan reply, 1)
	up.pass(ctx, e, &pending{id: bytes.Clone(e.rawID()), done: func(r reply) {
		r.env.line = bytes.Clone(r.env.line)
		ch <- r
	}})
	select {
	case r := <-ch:
		if r.broken {
			return envelope{}, fmt.Errorf("%s: the answer of %s cannot be read", e.method, up.cfg.Name)
		}
		return r.env, r.err
	case <-ctx.Done():
		return envelope{}, fmt.Errorf("%s: %s does not answer", e.method, up.cfg.Name)
	}
}

// byURI passes a request to the server that has listed the resource, else to the
// first that knows it.
func (s *session) byURI(ctx context.Context, e envelope, raw []byte) {
	uri, err := unquote(raw)
	if err != nil {
		s.refuse(e.rawID(), codeInvalidParams, e.method+" needs a uri")
		return
	}
	s.mu.Lock()
	up := s.merged.uris[uri]
	s.mu.Unlock()
	if up != nil {
		s.passTo(up, e)
		return
	}
	s.firstThatKnows(ctx, e)
}

// firstThatKnows asks the servers one after the other, until one answers with a
// result. What is asked so changes nothing, or is refused by who does not know
// it.
func (s *session) firstThatKnows(ctx context.Context, e envelope) {
	var last envelope
	for _, up := range s.ups {
		answer, err := s.ask(ctx, up, e)
		if err == nil && (answer.result.there() || !last.errObj.there()) {
			last = answer
		}
		if err == nil && answer.result.there() {
			break
		}
	}
	if last.line == nil {
		s.refuse(e.rawID(), codeInternal, e.method+": no server answers")
		return
	}
	s.passAnswer(e.rawID(), last)
}

// toAll passes a request to all servers, and tells the client that it is done
// when one of them says so.
func (s *session) toAll(ctx context.Context, e envelope) {
	answers := s.askAll(ctx, e)
	i := slices.IndexFunc(answers, func(a envelope) bool { return a.result.there() })
	if i < 0 {
		i = slices.IndexFunc(answers, func(a envelope) bool { return a.errObj.there() })
	}
	if i < 0 {
		s.refuse(e.rawID(), codeInternal, e.method+": no server answers")
		return
	}
	s.passAnswer(e.rawID(), answers[i])
}

// askAll asks every server at once. An answer without a line is none.
func (s *session) askAll(ctx context.Context, e envelope) []envelope {
	answers := make([]envelope, len(s.ups))
	s.each(func(i int, up *Upstream) {
		var err error
		if answers[i], err = s.ask(ctx, up, e); err != nil {
			s.g.cfg.Log.Warn().Err(err).Str("server", up.cfg.Name).Msg("a server is left out")
		}
	})
	return answers
}
