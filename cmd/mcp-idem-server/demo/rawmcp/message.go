package rawmcp

import "encoding/json"

// Message is one JSON-RPC message as it came.
type Message struct {
	Raw    []byte          `json:"-"`
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// ToolResult is what this package's users look at in a tool's answer.
type ToolResult struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage            `json:"structuredContent"`
	IsError    bool                       `json:"isError"`
	Meta       map[string]json.RawMessage `json:"_meta"`
}

// Tool decodes the result of a tools/call; the zero ToolResult where there is
// none.
func (m Message) Tool() ToolResult {
	var r ToolResult
	if len(m.Result) > 0 {
		_ = json.Unmarshal(m.Result, &r) // a result of another shape has none of these fields
	}
	return r
}

// Text returns the first content's text.
func (r ToolResult) Text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

// MetaString returns a string of the result's _meta, "" where it has none.
func (r ToolResult) MetaString(key string) string {
	var s string
	_ = json.Unmarshal(r.Meta[key], &s)
	return s
}

// MetaBool reports whether a field of the result's _meta is true.
func (r ToolResult) MetaBool(key string) bool { return string(r.Meta[key]) == "true" }
