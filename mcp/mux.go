package mcp

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcp-idem/mcp-idem/policy"
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

// search finds the server of a tool by asking all for their tools. One that does
// not answer has what it had before. Where it has never said, a tool with effects
// is not called: it may be that server's, and a call of it may have been made.
func (s *session) search(e envelope, name string) {
	ctx, cancel := context.WithTimeout(s.ctx, absence)
	defer cancel()
	has, errs := make([]bool, len(s.ups)), make([]error, len(s.ups))
	s.each(func(i int, up *Upstream) {
		var t *ToolInfo
		if t, errs[i] = up.tool(ctx, name); errs[i] == nil {
			has[i] = t != nil
		} else if had, known := up.cfg.offers.has(name); known {
			has[i], errs[i] = had, nil
		}
	})
	var of []*Upstream
	var silent []string
	for i, up := range s.ups {
		switch {
		case !up.allows(name):
		case errs[i] != nil:
			silent = append(silent, up.cfg.Name)
		case has[i]:
			of = append(of, up)
		}
	}
	switch {
	case len(of) == 1 && (len(silent) == 0 || s.g.cfg.Policy.Tool(of[0].cfg.Name+"/"+name).Effect == policy.EffectRead):
		s.callOf(of[0], e, name)
		return
	case len(of) == 1:
		s.sayError(e.rawID(), codeInternal, fmt.Sprintf("the tool %s is of %s, and may be of a server as well that has not told its tools yet: %s; nothing was sent; names: prefix tells them apart", name, of[0].cfg.Name, strings.Join(silent, ", ")))
	case len(of) > 1:
		s.sayError(e.rawID(), codeInvalidParams, fmt.Sprintf("the tool %s is offered by %s and %s: nothing was sent; names: prefix tells them apart", name, of[0].cfg.Name, of[1].cfg.Name))
	case len(silent) > 0:
		s.sayError(e.rawID(), codeInternal, fmt.Sprintf("the tool %s is of no server that answers, and these do not: %s; nothing was sent", name, strings.Join(silent, ", ")))
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
	out.head = e.head
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
		s.byURI(e, find(find(params, "ref"), "uri"))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		s.byURI(e, find(e.params.of(e.line), "uri"))
	case "logging/setLevel", "subscriptions/listen":
		s.inTheBackground(e, s.toAll)
	case "server/discover":
		s.inTheBackground(e, s.discoverAll)
	default:
		if _, ok := lists[e.method]; ok {
			s.inTheBackground(e, s.merge)
			return
		}
		s.inTheBackground(e, func(ctx context.Context, e envelope) { s.firstThatKnows(ctx, e, s.ups) })
	}
}

const (
	// muxLimit is how long servers may take over what all are asked for. One that
	// takes longer is left out.
	muxLimit = 10 * time.Second
	// absence is how long one that does not run is waited for.
	absence = 2 * time.Second
)

// inTheBackground sees a request through on its own goroutine. Its context ends
// when the client cancels the request.
func (s *session) inTheBackground(e envelope, f func(context.Context, envelope)) {
	e.line = bytes.Clone(e.line)
	id := string(e.rawID())
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	s.works[id] = cancel
	s.mu.Unlock()
	go func() {
		defer cancel()
		f(ctx, e)
		s.mu.Lock()
		delete(s.works, id)
		s.mu.Unlock()
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
	s.mu.Lock()
	clash := s.merged.clash[shown]
	s.mu.Unlock()
	if clash {
		s.refuse(e.rawID(), codeInvalidParams, fmt.Sprintf("the prompt %s is offered by more than one server; names: prefix tells them apart", shown))
		return
	}
	if up, name := s.target(shown); up != nil {
		s.passTo(up, replaced(e, path, quote(name)))
		return
	}
	s.inTheBackground(e, func(ctx context.Context, e envelope) { s.firstThatKnows(ctx, e, s.ups) })
}

// ask makes a client's request of one server and waits for its answer, which is
// a copy.
func (s *session) ask(ctx context.Context, up *Upstream, e envelope) (envelope, error) {
	ch := make(chan reply, 1)
	p := &pending{id: bytes.Clone(e.rawID()), from: s, fix: s.shownAs(up, e), done: func(r reply) {
		r.env.line = bytes.Clone(r.env.line)
		ch <- r
	}}
	there, cancel := context.WithTimeout(ctx, absence)
	defer cancel()
	up.pass(there, e, p)
	select {
	case r := <-ch:
		if r.broken {
			return envelope{}, fmt.Errorf("%s: the answer of %s cannot be read", e.method, up.cfg.Name)
		}
		return r.env, r.err
	case <-ctx.Done():
		up.withdraw(p)
		return envelope{}, fmt.Errorf("%s: %s does not answer", e.method, up.cfg.Name)
	}
}

// byURI passes a request to the server that has listed the resource or template,
// else to the first that knows it.
func (s *session) byURI(e envelope, raw []byte) {
	uri, err := unquote(raw)
	if err != nil {
		s.refuse(e.rawID(), codeInvalidParams, e.method+" needs a uri")
		return
	}
	s.mu.Lock()
	up := s.merged.uris[uri]
	order := s.merged.likely(uri, s.ups)
	s.mu.Unlock()
	if up != nil {
		s.passTo(up, e)
		return
	}
	s.inTheBackground(e, func(ctx context.Context, e envelope) { s.firstThatKnows(ctx, e, order) })
}

// unknownCodes are what servers answer to a request that is none of theirs: by
// the specifications of different years, and by what some of them do.
var unknownCodes = []int64{codeNoMethod, codeInvalidParams, -32002, 0}

// firstThatKnows asks the servers one after the other, until one answers what
// does not say that it is none of its business.
func (s *session) firstThatKnows(ctx context.Context, e envelope, order []*Upstream) {
	var unknown envelope
	for _, up := range order {
		answer, err := s.ask(ctx, up, e)
		switch {
		case ctx.Err() != nil:
			s.refuse(e.rawID(), codeInternal, "the request was cancelled")
			return
		case err != nil:
			s.g.cfg.Log.Warn().Err(err).Str("server", up.cfg.Name).Msg("a server is left out")
		case answer.errObj.there() && slices.Contains(unknownCodes, rpcError(answer.errObj.of(answer.line)).Code):
			if unknown.line == nil {
				unknown = answer
			}
		default:
			s.passAnswer(e.rawID(), answer)
			return
		}
	}
	if unknown.line == nil {
		s.refuse(e.rawID(), codeInternal, e.method+": no server answers")
		return
	}
	s.passAnswer(e.rawID(), unknown)
}

// toAll passes a request to all servers, and tells the client that it is done
// when one of them says so.
func (s *session) toAll(ctx context.Context, e envelope) {
	if e.method != "subscriptions/listen" { // which ends when the client wants it to
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, muxLimit)
		defer cancel()
	}
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
