package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// besides starts an npm server twice: by itself, and behind a gateway.
func besides(t *testing.T, server string, flags ...string) (alone, guarded *rawmcp.Client) {
	t.Helper()
	script := filepath.Join(needServers(t), "node_modules", "@modelcontextprotocol", server, "dist", "index.js")
	flags = append([]string{"--ledger", "bolt://" + filepath.Join(t.TempDir(), "ledger.db"), "--name", "s"}, flags...)
	return connect(t, exec.Command("node", script)), connect(t, exec.Command(mustBuild(t, gateway), append(flags, "--", "node", script)...))
}

// The server that shows everything a server can have is the same behind a
// gateway, and a replay is the same again.
func TestServerEverything(t *testing.T) {
	t.Parallel()
	alone, guarded := besides(t, "server-everything", "--no-control-tools")
	result := func(c *rawmcp.Client, method string, params any) any {
		t.Helper()
		m, err := c.Request(deadline(t), method, params)
		if err != nil || m.Error != nil {
			t.Fatalf("%s %v: %v, %s", method, params, err, m.Raw)
		}
		var v map[string]any
		d := json.NewDecoder(strings.NewReader(string(m.Result)))
		d.UseNumber()
		must(t, d.Decode(&v))
		if meta, _ := v["_meta"].(map[string]any); meta != nil {
			for name := range meta {
				if strings.HasPrefix(name, "mcp-idem/") {
					delete(meta, name)
				}
			}
			if len(meta) == 0 {
				delete(v, "_meta")
			}
		}
		return v
	}
	for _, c := range []struct {
		method string
		params map[string]any
	}{
		{"tools/list", map[string]any{}},
		{"prompts/list", map[string]any{}},
		{"resources/list", map[string]any{}},
		{"resources/templates/list", map[string]any{}},
		{"prompts/get", map[string]any{"name": "args-prompt", "arguments": map[string]any{"city": "Bern"}}},
		{"resources/read", map[string]any{"uri": "demo://resource/static/document/features.md"}},
		{"completion/complete", map[string]any{"ref": map[string]any{"type": "ref/prompt", "name": "completable-prompt"}, "argument": map[string]any{"name": "department", "value": "E"}}},
		{"logging/setLevel", map[string]any{"level": "error"}},
	} {
		if diff := cmp.Diff(result(alone, c.method, c.params), result(guarded, c.method, c.params)); diff != "" {
			t.Errorf("%s (-alone +guarded):\n%s", c.method, diff)
		}
	}
	for i, c := range []struct {
		tool string
		args map[string]any
	}{
		{"echo", map[string]any{"message": "žluťoučký 🐎"}},
		{"get-annotated-message", map[string]any{"messageType": "error", "includeImage": true}},
		{"get-resource-links", map[string]any{"count": 2}},
		{"get-resource-reference", map[string]any{"resourceType": "Text", "resourceId": 1}},
		{"get-structured-content", map[string]any{"location": "Chicago"}},
		{"get-sum", map[string]any{"a": 0.1, "b": 1e300}},
		{"get-sum", map[string]any{"a": "one"}}, // which it refuses
		{"get-tiny-image", map[string]any{}},
		{"trigger-long-running-operation", map[string]any{"duration": 0.2, "steps": 2}},
	} {
		params := map[string]any{"name": c.tool, "arguments": c.args}
		want := result(alone, "tools/call", params)
		params["_meta"] = step("everything", c.tool+string(rune('a'+i)))
		first := result(guarded, "tools/call", params)
		if diff := cmp.Diff(want, first); diff != "" && c.tool != "get-resource-reference" { // which tells the time
			t.Errorf("%s (-alone +guarded):\n%s", c.tool, diff)
		}
		if diff := cmp.Diff(first, result(guarded, "tools/call", params)); diff != "" {
			t.Errorf("%s again (-first +second):\n%s", c.tool, diff)
		}
	}
}

// The server that thinks aloud says that it only reads, and keeps every thought.
// It is not believed, unless a person says so.
func TestServerSequentialThinking(t *testing.T) {
	t.Parallel()
	args := map[string]any{"thought": "once", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": false}
	thoughts := func(c *rawmcp.Client, meta map[string]any) int {
		t.Helper()
		m, err := c.Call(deadline(t), "sequentialthinking", args, meta)
		must(t, err)
		var said struct{ ThoughtHistoryLength int }
		must(t, json.Unmarshal([]byte(m.Tool().Text()), &said))
		return said.ThoughtHistoryLength
	}
	alone, guarded := besides(t, "server-sequential-thinking")
	_, believed := besides(t, "server-sequential-thinking", "--trust-hints")
	for i := range 3 {
		meta := step("think", "1")
		if n := thoughts(alone, meta); n != i+1 {
			t.Errorf("the server alone has %d thoughts after %d calls", n, i+1)
		}
		if n := thoughts(guarded, meta); n != 1 {
			t.Errorf("the guarded server has %d thoughts", n)
		}
		if n := thoughts(believed, meta); n != i+1 {
			t.Errorf("the server that is believed has %d thoughts after %d calls", n, i+1)
		}
	}
	if n := thoughts(guarded, step("think", "2")); n != 2 {
		t.Errorf("a second step: %d thoughts", n)
	}
}
