package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// merged is what the client of several servers was told, and by whom. Guarded by
// session.mu.
type merged struct {
	uris  map[string]*Upstream // resources and templates that were listed
	clash map[string]bool      // prompts that two servers have, under one name
	lack  map[*Upstream]bool   // servers that were left out of a list

	init     []byte // the client's id of initialize, while its answer is owed
	version  []byte // that it asked for
	answers  []envelope
	told     int // servers that answered, or will not
	answered bool
}

// each calls f for every server at once.
func (s *session) each(f func(i int, up *Upstream)) {
	var wg sync.WaitGroup
	for i, up := range s.ups {
		wg.Go(func() { f(i, up) })
	}
	wg.Wait()
}

// lists are the methods that list something, and the member that it is in.
var lists = map[string]string{
	"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
}

// item is one thing that a server lists.
type item struct {
	up   *Upstream
	name string
	raw  []byte
}

// merge lists what all servers have, on one page. Definitions stay as they are
// but for a name that gets its server's before it.
func (s *session) merge(ctx context.Context, e envelope) {
	if find(e.params.of(e.line), "cursor") != nil {
		s.refuse(e.rawID(), codeInvalidParams, "the cursor is not known: everything is on the first page")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, muxLimit)
	defer cancel()
	items := make([][]item, len(s.ups))
	errs := make([]error, len(s.ups))
	s.each(func(i int, up *Upstream) { items[i], errs[i] = s.list(ctx, up, e) })
	for i, err := range errs {
		if err != nil {
			s.lacks(s.ups[i])
			s.g.cfg.Log.Warn().Err(err).Str("server", s.ups[i].cfg.Name).Msg("a server is left out of a list")
		}
	}
	if !slices.Contains(errs, nil) {
		s.refuse(e.rawID(), codeInternal, fmt.Sprintf("%s: no server answers: %v", e.method, errs[0]))
		return
	}
	all := slices.Concat(items...)
	if e.method == "tools/list" {
		all = append(slices.DeleteFunc(all, s.hidden), s.g.controls.items()...)
	}
	if s.searches() && (e.method == "tools/list" || e.method == "prompts/list") {
		all = s.withoutCollisions(e.method, all)
	}
	out := append([]byte(`{"`), lists[e.method]...)
	out = append(out, `":[`...)
	for i, it := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, it.raw...)
	}
	out = append(out, ']')
	if modernHello(e) != nil {
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	s.passAnswer(e.rawID(), answerLine(append(out, '}')))
}

// hidden reports whether a tool goes by a name of the gateway's own.
func (s *session) hidden(it item) bool {
	if !s.g.controls.has(s.shown(it.up, it.name)) {
		return false
	}
	s.g.cfg.Log.Error().Str("tool", it.name).Str("server", it.up.cfg.Name).Msg(hiddenText)
	return true
}

// list is every page of one server. What it does not know it has none of.
func (s *session) list(ctx context.Context, up *Upstream, e envelope) (out []item, err error) {
	for range maxPages {
		answer, err := s.ask(ctx, up, e)
		switch {
		case err != nil:
			return nil, err
		case answer.errObj.there():
			if rpc := rpcError(answer.errObj.of(answer.line)); rpc.Code != codeNoMethod {
				return nil, rpc
			}
			return nil, nil
		}
		page := answer.result.of(answer.line)
		for _, raw := range elements(find(page, lists[e.method])) {
			if it, ok := s.item(up, e.method, raw); ok {
				out = append(out, it)
			}
		}
		next := find(page, "nextCursor")
		if next == nil || string(next) == "null" || string(next) == `""` {
			return out, nil
		}
		if e, err = withParam(e, "cursor", next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// item is something listed as the client sees it. false: it does not.
func (s *session) item(up *Upstream, method string, raw []byte) (item, bool) {
	it := item{up: up, raw: raw}
	it.name, _ = unquote(find(raw, "name"))
	switch method {
	case "resources/list":
		s.learn(up, find(raw, "uri"))
		return it, true
	case "resources/templates/list":
		s.learn(up, find(raw, "uriTemplate"))
		return it, true
	case "tools/list":
		if !up.allows(it.name) {
			return it, false
		}
	}
	at, err := member(raw, "name")
	if err != nil || !at.there() {
		return it, false
	}
	if shown := s.shown(up, it.name); shown != it.name {
		it.raw = splice(raw, at, quote(shown))
	}
	return it, true
}

// learn keeps whose a resource or template is. Who has listed it first has it.
func (s *session) learn(up *Upstream, raw []byte) {
	uri, err := unquote(raw)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merged.uris == nil {
		s.merged.uris = map[string]*Upstream{}
	}
	if _, there := s.merged.uris[uri]; !there {
		s.merged.uris[uri] = up
	}
}

// likely is the order in which servers are asked for a resource that nobody has
// listed: first whose template begins most like it.
func (m *merged) likely(uri string, ups []*Upstream) []*Upstream {
	var first *Upstream
	longest := 0
	for template, up := range m.uris {
		begin, _, isTemplate := strings.Cut(template, "{")
		if isTemplate && len(begin) > longest && strings.HasPrefix(uri, begin) {
			first, longest = up, len(begin)
		}
	}
	if first == nil {
		return ups
	}
	return append([]*Upstream{first}, slices.DeleteFunc(slices.Clone(ups), func(up *Upstream) bool { return up == first })...)
}

// withoutCollisions leaves out what goes by a name that more than one server has:
// a call could not be told to be of one of them.
func (s *session) withoutCollisions(method string, all []item) []item {
	of := map[string]*Upstream{}
	bad := map[string]bool{}
	for _, it := range all {
		if other := of[it.name]; other != nil && other != it.up && !bad[it.name] {
			bad[it.name] = true
			s.g.cfg.Log.Error().Str("list", method).Str("name", it.name).Strs("servers", []string{other.cfg.Name, it.up.cfg.Name}).
				Msg("two servers have this name, and neither's is offered; names: prefix tells them apart")
		}
		of[it.name] = it.up
	}
	if method == "prompts/list" {
		s.mu.Lock()
		s.merged.clash = bad
		s.mu.Unlock()
	}
	return slices.DeleteFunc(all, func(it item) bool { return bad[it.name] })
}

// withParam is a request with one more of params.
func withParam(e envelope, name string, value []byte) (envelope, error) {
	params, err := setMembers(e.params.of(e.line), field{name, value})
	if err != nil {
		return e, err
	}
	line, err := setMembers(e.line, field{"params", params})
	if err != nil {
		return e, err
	}
	var p parser
	out, err := p.parse(line)
	out.head = e.head
	return out, err
}
