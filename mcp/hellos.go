package mcp

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	initWait  = 5 * time.Second  // for the others, when one server has answered initialize
	initLimit = 20 * time.Second // for the first
)

// initializeAll says the client's initialize to every server. It is answered
// when all have, or some and time is up; one that comes later is made known by
// what has changed.
func (s *session) initializeAll(e envelope) {
	s.mu.Lock()
	if s.merged.init != nil {
		s.mu.Unlock()
		s.refuse(e.rawID(), codeInvalidRequest, "initialize was said already, and is being answered")
		return
	}
	id := bytes.Clone(e.rawID())
	s.merged.init, s.merged.answered, s.merged.told = id, false, 0
	s.merged.version = bytes.Clone(find(e.params.of(e.line), "protocolVersion"))
	s.merged.answers = make([]envelope, len(s.ups))
	s.mu.Unlock()
	for i, up := range s.ups {
		up.initialize(e, func(r reply) { s.initialized(id, i, r) })
	}
	go s.awaitInit(id)
}

// awaitInit answers the client's initialize once no more is to be expected soon.
func (s *session) awaitInit(id []byte) {
	begun := time.Now()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-look.C:
		}
		s.mu.Lock()
		over := s.merged.answered || !bytes.Equal(s.merged.init, id)
		hopeful := false
		for i, up := range s.ups {
			hopeful = hopeful || (s.merged.answers[i].line == nil && !up.stumbled())
		}
		s.mu.Unlock()
		switch waited := time.Since(begun); {
		case over:
			return
		case waited >= initLimit:
			s.answerInit(id, true)
		case waited >= initWait || !hopeful:
			s.answerInit(id, false)
		}
	}
}

// initialized takes what a server says to the client's initialize.
func (s *session) initialized(id []byte, i int, r reply) {
	s.mu.Lock()
	if r.err == nil {
		r.env.line = bytes.Clone(r.env.line)
		s.merged.answers[i] = r.env
	}
	s.merged.told++
	late := s.merged.answered && r.err == nil && r.env.result.there()
	all := s.merged.told == len(s.ups)
	s.mu.Unlock()
	if late {
		s.listsChanged()
	} else if all {
		s.answerInit(id, true)
	}
}

func (s *session) listsChanged() {
	for _, what := range []string{"tools", "prompts", "resources"} {
		s.say(nil, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/%s/list_changed"}`, what))
	}
}

// lacks notes that a list had to do without a server. When it is back, the client
// hears of it.
func (s *session) lacks(up *Upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merged.lack == nil {
		s.merged.lack = map[*Upstream]bool{}
	}
	s.merged.lack[up] = true
	if up.live.Load() != nil { // meanwhile
		go s.back(up)
	}
}

// back is called when a server takes requests.
func (s *session) back(up *Upstream) {
	s.mu.Lock()
	lacked := s.merged.lack[up]
	delete(s.merged.lack, up)
	s.mu.Unlock()
	if lacked {
		s.listsChanged()
	}
}

// answerInit answers the client's initialize with what there is. anyway: even if
// there is nothing.
func (s *session) answerInit(id []byte, anyway bool) {
	s.mu.Lock()
	m := &s.merged
	var results [][]byte
	var of, missing []*Upstream
	for i, a := range m.answers {
		if a.result.there() {
			results, of = append(results, a.result.of(a.line)), append(of, s.ups[i])
		} else {
			missing = append(missing, s.ups[i])
		}
	}
	if m.answered || !bytes.Equal(m.init, id) || (len(results) == 0 && !anyway) {
		s.mu.Unlock()
		return
	}
	m.answered, m.init = true, nil
	version := m.version
	s.mu.Unlock()
	if len(results) == 0 {
		s.refuse(id, codeInternal, "no server behind this gateway answers")
		return
	}
	able := s.g.controls.able(capabilities(results))
	if len(missing) > 0 {
		able = union(able, []byte(mayCome))
	}
	for _, r := range results {
		if v := find(r, "protocolVersion"); v != nil && (len(version) == 0 || string(v) < string(version)) {
			version = v // versions are dates
		}
	}
	out := fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":%s,"serverInfo":%s`, orElse(version, quote(legacyVersion)), able, s.g.info())
	if text := instructions(results, of); text != "" {
		out = append(append(out, `,"instructions":`...), quote(text)...)
	}
	s.passAnswer(id, answerLine(append(out, '}')))
}

// mayCome is what a server that comes late may have.
const mayCome = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`

// discoverAll answers server/discover for all servers.
func (s *session) discoverAll(ctx context.Context, e envelope) {
	ctx, cancel := context.WithTimeout(ctx, muxLimit)
	defer cancel()
	var results [][]byte
	var of []*Upstream
	for i, a := range s.askAll(ctx, e) {
		if a.result.there() {
			results, of = append(results, a.result.of(a.line)), append(of, s.ups[i])
		}
	}
	if len(results) == 0 {
		s.refuse(e.rawID(), codeInternal, "no server behind this gateway answers")
		return
	}
	said := fmt.Appendf(nil, `{"capabilities":%s,"serverInfo":%s`, s.g.controls.able(capabilities(results)), s.g.info())
	if text := instructions(results, of); text != "" {
		said = append(append(said, `,"instructions":`...), quote(text)...)
	}
	s.passAnswer(e.rawID(), answerLine(discovered(append(said, '}'))))
}

// info is how the gateway calls itself to a client of several servers.
func (g *Gateway) info() []byte {
	version := g.cfg.Version
	if version == "" {
		version = "unknown"
	}
	return fmt.Appendf(nil, `{"name":"mcp-idem","version":%s}`, quote(version))
}

// capabilities are those of all servers: what one of them has, the whole has.
func capabilities(results [][]byte) []byte {
	var out []byte
	for _, r := range results {
		out = union(out, find(r, "capabilities"))
	}
	return orElse(out, []byte(`{}`))
}

// union is one object with the members of two, and so on within: true counts
// more than false.
func union(a, b []byte) []byte {
	switch {
	case !isObject(b):
		if string(a) == "true" || b == nil {
			return a
		}
		return b
	case !isObject(a):
		return b
	}
	more, err := gather(b)
	if err != nil {
		return a
	}
	var fields []field
	for quoted, v := range more {
		name, err := unquote([]byte(quoted))
		if err == nil {
			fields = append(fields, field{name, union(find(a, name), v)})
		}
	}
	slices.SortFunc(fields, func(x, y field) int { return bytes.Compare([]byte(x.name), []byte(y.name)) })
	out, err := setMembers(a, fields...)
	if err != nil {
		return a
	}
	return out
}

// instructions are those of all servers, each under its name.
func instructions(results [][]byte, of []*Upstream) (text string) {
	for i, r := range results {
		if t, err := unquote(find(r, "instructions")); err == nil && t != "" {
			if text != "" {
				text += "\n\n"
			}
			text += of[i].cfg.Name + ": " + t
		}
	}
	return text
}
