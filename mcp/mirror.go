package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
)

// mirror is an argument of a tool that a header of the call carries too
// (x-mcp-header of SEP-2243).
type mirror struct {
	header string // the whole name
	path   []string
}

const headerParam = "Mcp-Param-"

// mirrors finds them in a tool's definition.
func mirrors(raw []byte) []mirror {
	if !bytes.Contains(raw, []byte("x-mcp-header")) {
		return nil
	}
	return mirrorsIn(find(raw, "inputSchema"), nil)
}

func mirrorsIn(schema []byte, path []string) (all []mirror) {
	properties := find(schema, "properties")
	var sc scanner
	_ = sc.members(properties, func(name []byte, v span) {
		property, err := unquote(name)
		if err != nil {
			return
		}
		inner := v.of(properties)
		at := append(path[:len(path):len(path)], property)
		if said, err := unquote(find(inner, "x-mcp-header")); err == nil && isToken(said) {
			all = append(all, mirror{http.CanonicalHeaderKey(headerParam + said), at})
		}
		all = append(all, mirrorsIn(inner, at)...)
	})
	return all
}

// isToken reports whether a text can be a header's name (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || bytes.IndexByte([]byte(`"(),/:;<=>?@[\]{}`), c) >= 0 {
			return false
		}
	}
	return s != ""
}

// in is the argument as the header says it; ok is false where there is nothing to
// say.
func (m mirror) in(args []byte) (text string, ok bool) {
	raw := args
	for _, name := range m.path {
		if !isObject(raw) {
			return "", false
		}
		raw = find(raw, name)
	}
	var v any
	if raw == nil || json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
			return "", false
		}
		return strconv.FormatInt(int64(v), 10), true
	}
	return "", false
}

// mirrored are the headers of a call with these arguments.
func (t *ToolInfo) mirrored(args []byte) http.Header {
	h := http.Header{}
	for _, m := range t.mirrors {
		if text, ok := m.in(args); ok {
			h[m.header] = []string{headerText(text)}
		}
	}
	return h
}

// agrees reports whether a call's headers say what its arguments do.
func (t *ToolInfo) agrees(h http.Header, args []byte) bool {
	for _, m := range t.mirrors {
		text, there := m.in(args)
		if there && !one(h, m.header, text) || !there && len(h.Values(m.header)) > 0 {
			return false
		}
	}
	return true
}

// callOf takes a tools/call whose server is known. One that came over HTTP from a
// client of the stateless protocol has to say the same in its headers.
func (s *session) callOf(up *Upstream, e envelope, name string) {
	if e.head == nil || modernHello(e) == nil {
		s.callTo(up, e, name)
		return
	}
	checked := func(t *ToolInfo) {
		if t != nil && !t.agrees(e.head, find(e.params.of(e.line), "arguments")) {
			s.refuse(e.rawID(), codeHeaderMismatch, "the headers and the arguments do not say the same; nothing was sent")
			return
		}
		s.callTo(up, e, name)
	}
	if t, known := up.tools.get(name); known {
		checked(t)
		return
	}
	e.line = bytes.Clone(e.line)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, listLimit)
		defer cancel()
		t, _ := up.tool(ctx, name) // what cannot be told is the server's to judge
		checked(t)
	}()
}

// mirrored are the headers that a server of the stateless protocol wants with a
// call.
func (w *httpWire) mirrored(m message) http.Header {
	if m.version == "" || m.method != "tools/call" {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, listLimit)
	defer cancel()
	t, err := w.peer.up.tool(ctx, m.name)
	if err != nil || t == nil || len(t.mirrors) == 0 {
		return nil
	}
	var p parser
	e, _ := p.parse(m.line)
	return t.mirrored(find(e.params.of(e.line), "arguments"))
}
