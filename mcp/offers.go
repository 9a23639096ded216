package mcp

import "sync"

// offers are the names of the tools that a server had when it was asked last, in
// whatever conversation. It is safe for concurrent use.
type offers struct {
	mu    sync.Mutex
	names map[string]bool // nil: it has not said yet
}

func (o *offers) set(tools []*ToolInfo) {
	if o == nil {
		return
	}
	names := make(map[string]bool, len(tools))
	for _, t := range tools {
		names[t.Name] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = names
}

// has reports whether the server had a tool; known is false where it has not said
// yet.
func (o *offers) has(name string) (has, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.names[name], o.names != nil
}
