package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/mcp-idem/mcp-idem"
)

// Caller is who calls a tool of the gateway itself.
type Caller struct {
	Tenant string
	Task   string     // empty: none is known
	Run    string     // empty: none is known
	Step   string     // of this call; empty: none was given
	Conn   *idem.Conn // its connection
}

// ControlTools are tools of the gateway itself. It is safe for concurrent use.
type ControlTools interface {
	// Tools are the definitions, each with a name of its own. They are asked for
	// once.
	Tools() []json.RawMessage
	// Call carries one out and returns a CallToolResult. args are the raw
	// arguments; nil: none were given. ctx ends when the client cancels the
	// request or goes away.
	Call(ctx context.Context, who Caller, name string, args []byte) []byte
}

// controls are the gateway's own tools as clients see them. nil: there are none.
type controls struct {
	tools ControlTools
	names map[string]bool
	raw   []json.RawMessage
}

func newControls(tools ControlTools) *controls {
	if tools == nil {
		return nil
	}
	c := &controls{tools: tools, names: map[string]bool{}, raw: tools.Tools()}
	for _, raw := range c.raw {
		c.names[toolInfo(raw).Name] = true
	}
	return c
}

func (c *controls) has(name string) bool { return c != nil && c.names[name] }

// namedIn reports whether a name of ours may be among the tools of a server.
func (c *controls) namedIn(tools []byte) bool {
	if c != nil {
		for name := range c.names {
			if bytes.Contains(tools, quote(name)) {
				return true
			}
		}
	}
	return false
}

func (c *controls) items() (out []item) {
	if c == nil {
		return nil
	}
	for _, raw := range c.raw {
		out = append(out, item{name: toolInfo(raw).Name, raw: raw})
	}
	return out
}

// able are capabilities with tools among them.
func (c *controls) able(capabilities []byte) []byte {
	if c == nil || find(capabilities, "tools") != nil {
		return capabilities
	}
	out, err := setMembers(capabilities, field{"tools", []byte(`{}`)})
	if err != nil {
		return capabilities
	}
	return out
}

// announced is an answer to initialize or server/discover that says that there
// are tools.
func (c *controls) announced(e envelope) envelope {
	if c == nil || !isObject(e.result.of(e.line)) || find(find(e.result.of(e.line), "capabilities"), "tools") != nil {
		return e
	}
	result, err := setIn(e.result.of(e.line), "capabilities", field{"tools", []byte(`{}`)})
	if err != nil {
		return e
	}
	return answerLine(result)
}

// control answers a call of a tool of ours.
func (s *session) control(e envelope, name string) {
	s.inTheBackground(e, func(ctx context.Context, e envelope) {
		params, err := gather(e.params.of(e.line), `"name"`, `"arguments"`, `"_meta"`)
		if err != nil {
			s.refuse(e.rawID(), codeInvalidParams, err.Error())
			return
		}
		var meta names
		if raw := params[`"_meta"`]; raw != nil {
			meta, _ = gather(raw)
		}
		ask := idem.Ask{Run: s.run}
		if err := s.g.identity.fill(&ask, s.who, place{params, meta, e.head}); err != nil {
			refused, _ := errors.AsType[*idem.Error](err)
			s.passAnswer(e.rawID(), answerLine(made(refused.Text, true)))
			return
		}
		result := s.g.controls.tools.Call(ctx, Caller{Tenant: s.who.tenant, Task: ask.Task, Run: ask.Run, Step: ask.Step, Conn: s.connection(ask.Task)}, name, params[`"arguments"`])
		answer := answerLine(result)
		if modernHello(e) != nil {
			answer = completed(e.method)(answer)
		}
		s.passAnswer(e.rawID(), answer)
	})
}

// shownAs is how the answer of the only server to a request is changed for its
// client; nil: not at all.
func (s *session) shownAs(up *Upstream, e envelope) func(envelope) envelope {
	switch {
	case e.method == "subscriptions/listen":
		return unsubscribed(bytes.Clone(e.rawID()))
	case s.several():
	case e.method == "server/discover" && s.g.controls != nil:
		return s.g.controls.announced
	case e.method == "tools/list" && (s.g.controls != nil || up.cfg.Allows != nil):
		modern := modernHello(e) != nil
		return func(e envelope) envelope { return s.listed(up, e, modern) }
	}
	return nil
}

// listed is a page of the only server's tools: without those that are not
// offered, and on the last page with ours.
func (s *session) listed(up *Upstream, e envelope, modern bool) envelope {
	own := s.g.controls
	if e.errObj.there() && own != nil && rpcError(e.errObj.of(e.line)).Code == codeNoMethod {
		none := answerLine([]byte(`{"tools":[]}`)) // it has no tools, and we do
		if modern {
			none = completed("tools/list")(none)
		}
		e = none
	}
	result := e.result.of(e.line)
	var at, next span
	var sc scanner
	err := sc.members(result, func(name []byte, v span) {
		switch string(name) {
		case `"tools"`:
			at = v
		case `"nextCursor"`:
			next = v
		}
	})
	if err != nil || !at.there() || result[at.from] != '[' {
		return e
	}
	tools := at.of(result)
	if up.cfg.Allows != nil || own.namedIn(tools) {
		tools = s.offered(up, tools)
	}
	if last := !next.there() || string(next.of(result)) == "null" || string(next.of(result)) == `""`; last && own != nil {
		tools = withElements(tools, own.raw)
	}
	return answerLine(splice(result, at, tools))
}

const hiddenText = "a tool of the gateway itself has this name: the server's cannot be called; names: prefix tells them apart"

// offered are the tools that clients may see. A name of ours is ours.
func (s *session) offered(up *Upstream, tools []byte) []byte {
	var kept [][]byte
	for _, raw := range elements(tools) {
		name, err := unquote(find(raw, "name"))
		switch {
		case err != nil || !up.allows(name):
		case s.g.controls.has(name):
			s.g.cfg.Log.Error().Str("tool", name).Str("server", up.cfg.Name).Msg(hiddenText)
		default:
			kept = append(kept, raw)
		}
	}
	return append(append([]byte{'['}, bytes.Join(kept, []byte{','})...), ']')
}

// withElements is an array with more at its end.
func withElements(array []byte, more []json.RawMessage) []byte {
	body := bytes.TrimRight(array[:len(array)-1], " \t\r\n")
	out := bytes.Clone(body)
	for _, raw := range more {
		if !bytes.HasSuffix(out, []byte{'['}) {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return append(out, ']')
}
