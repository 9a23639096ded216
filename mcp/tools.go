package mcp

import (
	"bytes"
	"context"
	"fmt"
	"sync"
)

// ToolInfo is one tool as the upstream defines it.
type ToolInfo struct {
	Name     string
	ReadOnly bool   // its readOnlyHint, to be believed only where trust_hints says so
	Raw      []byte // the definition

	mirrors []mirror // arguments that are headers too
}

// Takes reports whether the tool's schema allows an argument of this name:
// false only where additionalProperties is false and no property has the name.
func (t *ToolInfo) Takes(argument string) bool {
	schema := find(t.Raw, "inputSchema")
	if extra := find(schema, "additionalProperties"); string(extra) != "false" {
		return true
	}
	return find(find(schema, "properties"), argument) != nil
}

// find is the raw value of a member; nil: there is none.
func find(object []byte, name string) []byte {
	if len(object) == 0 {
		return nil
	}
	at, err := member(object, name)
	if err != nil || !at.there() {
		return nil
	}
	return at.of(object)
}

// toolCache keeps the tools of one process of the upstream.
type toolCache struct {
	fetch sync.Mutex // held while they are asked for
	mu    sync.Mutex
	n     uint64 // counts drops, so that a stale list is not kept
	tools map[string]*ToolInfo
	order []*ToolInfo
}

func (t *toolCache) drop() {
	t.mu.Lock()
	t.n++
	t.tools, t.order = nil, nil
	t.mu.Unlock()
}

// get looks a tool up without asking the server; known is false when the list
// is not there.
func (t *toolCache) get(name string) (tool *ToolInfo, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tools[name], t.tools != nil
}

const maxPages = 1000 // of tools/list; a server that has more goes in circles

// Tools lists the upstream's tools, from every page. The list is kept until the
// server says that it has changed, or ends.
func (u *Upstream) Tools(ctx context.Context) ([]*ToolInfo, error) {
	t := &u.tools
	t.fetch.Lock()
	defer t.fetch.Unlock()
	t.mu.Lock()
	n, order, known := t.n, t.order, t.tools != nil
	t.mu.Unlock()
	if known {
		return order, nil
	}
	params := []byte(`{}`)
	for range maxPages {
		page, err := u.request(ctx, "tools/list", params)
		if err != nil {
			return nil, fmt.Errorf("tools/list of %s: %w", u.cfg.Name, err)
		}
		for _, raw := range elements(find(page, "tools")) {
			order = append(order, toolInfo(raw))
		}
		next := find(page, "nextCursor")
		if next == nil || string(next) == "null" || string(next) == `""` {
			break
		}
		params = append(append([]byte(`{"cursor":`), next...), '}')
	}
	tools := make(map[string]*ToolInfo, len(order))
	for _, tool := range order {
		tools[tool.Name] = tool
	}
	u.cfg.offers.set(order)
	t.mu.Lock()
	if t.n == n {
		t.tools, t.order = tools, order
	}
	t.mu.Unlock()
	return order, nil
}

func toolInfo(raw []byte) *ToolInfo {
	t := &ToolInfo{Raw: bytes.Clone(raw)}
	if name := find(raw, "name"); name != nil {
		t.Name, _ = unquote(name)
	}
	t.mirrors = mirrors(raw)
	t.ReadOnly = string(find(find(raw, "annotations"), "readOnlyHint")) == "true"
	return t
}

// tool finds one tool, asking the server where the list is not known. nil: the
// server has no such tool.
func (u *Upstream) tool(ctx context.Context, name string) (*ToolInfo, error) {
	if t, known := u.tools.get(name); known {
		return t, nil
	}
	all, err := u.Tools(ctx)
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, err
}
