package mcp

import (
	"strings"
	"testing"

	"github.com/mcp-idem/mcp-idem/policy"
)

// modernMeta is the _meta of a client that speaks the stateless protocol.
func modernMeta(capabilities string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
}

func TestStatelessClientBeforeLegacyServer(t *testing.T) {
	t.Parallel()
	r := start(t, "", stubPolicy{"peek": {Effect: policy.EffectRead}})
	meta := modernMeta(`{}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
	r.expect(`"id":1`, `"supportedVersions":["2026-07-28"]`, `"capabilities":{"tools":{}}`, `"resultType":"complete"`, `"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + meta + `}}`)
	r.expect(`"id":2`, `"x":9007199254740993`, `"resultType":"complete","ttlMs":0,"cacheScope":"private"`)
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo",` + meta + `}}`)
	r.expect(`"id":3`, `mcp-idem/op`, `"resultType":"complete"`)
	r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"peek",` + meta + `}}`)
	r.expect(`"id":4`, `"resultType":"complete"`)
	r.send(`{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{` + meta + `}}`)
	r.expect(`"id":5`, `-32601`, "earlier protocol")
	if seen := r.seen(); strings.Count(seen, "initialize ") != 1 || !strings.Contains(seen, `"clientInfo":{"name":"c","version":"1"}`) || !strings.Contains(seen, "notifications/initialized") {
		t.Errorf("the server saw:\n%s", seen)
	}
	if seen := r.seen(); !strings.Contains(seen, `list {"_meta":{}}`) || strings.Contains(strings.SplitAfter(seen, "notifications/initialized")[1], "io.modelcontextprotocol/") {
		t.Errorf("what only a stateless server knows has reached it; it saw:\n%s", seen)
	}
	if n := len(r.pids()); n != 1 {
		t.Errorf("%d processes", n)
	}
}

// TestStatelessClientWithoutDiscovery begins with the first request that does
// something.
func TestStatelessClientWithoutDiscovery(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",` + modernMeta(`{"elicitation":{}}`) + `}}`)
	r.expect(`"id":1`, `mcp-idem/op`, `"resultType":"complete"`)
}

// TestClientOfBothErasFallsBack keeps what a server may ask of such a client.
func TestClientOfBothErasFallsBack(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta(`{"elicitation":{}}`) + `}}`)
	r.expect(`"id":1`, `-32601`)
	r.handshake()
	r.call("2", "echo", "{}", "")
	r.expect(`"id":2`, `mcp-idem/op`)
	if seen := r.seen(); strings.Count(seen, "initialize ") != 1 || len(r.pids()) != 1 {
		t.Errorf("the server saw:\n%s", seen)
	}
}

func TestLegacyClientBeforeStatelessServer(t *testing.T) {
	t.Parallel()
	r := start(t, "modern-only", stubPolicy{"peek": {Effect: policy.EffectRead}}, func(c *Config) { c.Guard = realGuard(t) })
	r.send(initLine)
	r.expect(`"id":"init"`, `"protocolVersion":"2025-`, `"serverInfo":{"name":"server"`, `"capabilities":{}`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	r.expect(`"id":1`, `"result":{}`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
	r.expect(`"id":2`, `"result":{}`)
	r.send(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
	r.expect(`"id":3`, `-32601`, "later protocol")
	r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/list"}`)
	r.expect(`"id":4`, `"x":9007199254740993`)
	r.call("5", "echo", `{"a":1}`, "")
	r.expect(`"id":5`, `mcp-idem/op`)
	r.call("6", "exit", `{}`, "")
	r.expect(`"id":6`, `NEEDS_REVIEW`)
	r.call("7", "peek", `{}`, "")
	r.expect(`"id":7`, `"result"`)
	r.call("8", "asks", `{}`, "")
	r.expect(`"id":8`, "has no way to answer", `"isError":true`, `"mcp-idem/state":"PLANNED"`)
	seen := r.seen()
	for _, want := range []string{`list {"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/logLevel":"debug"`} {
		if !strings.Contains(seen, want) {
			t.Errorf("no %s; the server saw:\n%s", want, seen)
		}
	}
	if strings.Contains(seen, "notifications/initialized") || strings.Count(seen, "initialize ") != 1 {
		t.Errorf("the server saw:\n%s", seen)
	}
}
