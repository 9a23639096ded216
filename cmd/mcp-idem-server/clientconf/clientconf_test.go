package clientconf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

func mustRead(t *testing.T, text string) *Client {
	t.Helper()
	c, err := Read([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// load is what the gateway makes of a file.
func load(t *testing.T, text []byte, env map[string]string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp-idem.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return c
}

func TestStartingConfigurationIsGood(t *testing.T) {
	if c := load(t, Starting(), nil); len(c.Upstreams) != 1 || c.Upstreams[0].Name != "tickets" {
		t.Errorf("%+v", c)
	}
}

// A client's file becomes the same servers: command, arguments, environment,
// headers, to the last character.
func TestServersAreKept(t *testing.T) {
	c := mustRead(t, `{ // Claude Desktop and others
		"globalShortcut": "",
		"mcpServers": {
			"tickets": {"type": "stdio", "command": "node", "args": ["tickets.js", "", "a<b>&\"ü"], "env": {"TOKEN": "p@ss", "N": 7, "B": true, "EMPTY": ""}, "cwd": "/srv", "alwaysAllow": ["search"], "timeout": 60},
			"my files": {"command": "C:\\bin\\files.exe"},
			"my/files": {"command": "f2", "disabled": true},
			"pay": {"url": "https://pay.example/mcp?k=1", "headers": {"Authorization": "Bearer s3cret"}},
			"old": {"type": "sse", "url": "http://h/sse"}, "surf": {"serverUrl": "http://h/${env:P}"},
		} }`)
	text, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	got := load(t, text, map[string]string{"P": "path"})
	want := []config.Upstream{
		{Name: "my_files", Type: config.TransportStdio, Command: `C:\bin\files.exe`},
		{Name: "old", Type: config.TransportSSE, URL: "http://h/sse"},
		{Name: "pay", Type: config.TransportHTTP, URL: "https://pay.example/mcp?k=1", Headers: map[string]string{"Authorization": "Bearer s3cret"}},
		{Name: "surf", Type: config.TransportHTTP, URL: "http://h/path"},
		{Name: "tickets", Type: config.TransportStdio, Command: "node", Args: []string{"tickets.js", "", `a<b>&"ü`}, Env: []string{"B=true", "EMPTY=", "N=7", "TOKEN=p@ss"}, Dir: "/srv"},
	}
	if !cmp.Equal(got.Upstreams, want) {
		t.Error(cmp.Diff(want, got.Upstreams))
	}
	if !c.Servers["my_files_2"].Disabled || len(c.Left) != 0 || len(c.Taken) != 6 {
		t.Errorf("%+v", c)
	}
	notes := strings.Join(c.Notes, "\n")
	for _, want := range []string{`"tickets"`, `"alwaysAllow", "timeout"`, `"my files" is called my_files`, `"my/files" is called my_files_2`} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note of %s in\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "60") || strings.Contains(notes, "search") {
		t.Errorf("a value is shown: %s", notes)
	}
}

// What VS Code puts in itself it puts into the gateway's environment.
func TestVSCode(t *testing.T) {
	for root, wrap := range map[string]string{"servers": `%`, "mcp.servers": `{"mcp": %}`} {
		c := mustRead(t, strings.ReplaceAll(wrap, "%", `{"inputs": [{"id": "api-key"}],
			"servers": {"tickets": {"type": "stdio", "command": "${workspaceFolder}/run", "args": ["${env:MODE}"], "env": {"KEY": "k-${input:api-key}", "GONE": null}, "envFile": "${workspaceFolder}/.env"}}}`))
		if c.Root != root {
			t.Errorf("root %s", c.Root)
		}
		name, entry := c.Entry("mcp-idem-server", "/x/mcp-idem.json")
		raw, err := json.Marshal(entry)
		if want := `{"args":["--config","/x/mcp-idem.json"],"command":"mcp-idem-server","env":{"MODE":"${env:MODE}","VSCODE_API_KEY":"${input:api-key}","VSCODE_WORKSPACEFOLDER":"${workspaceFolder}"},"envFile":"${workspaceFolder}/.env","type":"stdio"}`; err != nil || name != "tickets" || string(raw) != want {
			t.Errorf("entry %s: %s", name, raw)
		}
		text, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		got := load(t, text, map[string]string{"MODE": "m", "VSCODE_API_KEY": "s3", "VSCODE_WORKSPACEFOLDER": "/w"})
		if want := []config.Upstream{{Name: "tickets", Type: config.TransportStdio, Command: "/w/run", Args: []string{"m"}, Env: []string{"KEY=k-s3"}}}; !cmp.Equal(got.Upstreams, want) {
			t.Error(cmp.Diff(want, got.Upstreams))
		}
		if notes := strings.Join(c.Notes, "\n"); !strings.Contains(notes, "GONE is to be unset") {
			t.Errorf("notes %s", notes)
		}
	}
}

// Claude Code knows variables with defaults.
func TestVariables(t *testing.T) {
	c := mustRead(t, `{"mcpServers": {"a": {"command": "x", "args": ["${A}", "${B:-s3cret}", "${B}", "$C", "${}", "${a b}"]}}}`)
	if got, want := c.Servers["a"].Args, []string{"${A}", "${B}", "${B}", "$C", "${}", "${a b}"}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if want := map[string]string{"A": "", "B": ""}; !cmp.Equal(c.Variables, want) {
		t.Error(cmp.Diff(want, c.Variables))
	}
	notes := strings.Join(c.Notes, "\n")
	if !strings.Contains(notes, "B has a default") || !strings.Contains(notes, "${a b} is the client's language") || strings.Contains(notes, "s3cret") {
		t.Error(notes)
	}
	if _, entry := c.Entry("m", "f"); entry["env"] != nil || entry["type"] != nil {
		t.Errorf("%v", entry)
	}
}

// What the gateway cannot guard stays in the client, with the reason.
func TestLeft(t *testing.T) {
	c := mustRead(t, `{"mcpServers": {
		"ok": {"command": "x"},
		"done": {"command": "/usr/bin/mcp-idem-server", "args": ["--", "y"]},
		"ws": {"type": "ws", "url": "ws://s3cret", "args": ["${GONE}"], "extra": 1},
		"both": {"command": "x", "url": "http://h"}, "none": {}, "list": [], "args": {"command": "x", "args": "y"}, "num": {"command": "x", "args": [1]},
		"user": {"url": "https://u:s3cret@h"}, "head": {"url": "http://h", "headers": {"Host": "x"}}, "env": {"command": "x", "env": {"A": {}}}, "envs": {"command": "x", "env": []}}}`)
	for name, want := range map[string]string{"done": "guarded already", "ws": "type", "both": "url", "none": "command is missing", "list": "no object", "args": "args is of the wrong type",
		"num": "args is of the wrong type", "user": "Authorization", "head": "headers.Host", "env": "env.A", "envs": "env is of the wrong type"} {
		if got := c.Left[name]; !strings.Contains(got, want) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if len(c.Left) != 11 || !cmp.Equal(c.Taken, []string{"ok"}) || len(c.Notes) != 0 || len(c.Variables) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestEntryNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"mcpServers":{"a":{"command":"x"}}}`:                     "a",
		`{"mcpServers":{"a":{"command":"x"},"b":{"command":"x"}}}`: "mcp-idem",
		`{"mcpServers":{"a":{"command":"x"},"b":{"command":"x"},"mcp-idem":{"command":"mcp-idem-server","args":["--","other"]}}}`: "mcp-idem-gateway",
	} {
		if got, _ := mustRead(t, text).Entry("m", "f"); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestProjectsServersAreNamed(t *testing.T) {
	c := mustRead(t, `{"projects":{"/p":{"mcpServers":{"w":{"command":"x"}}},"/q":{}},"mcpServers":{"g":{"command":"y"}}}`)
	if len(c.Servers) != 1 || c.Left["projects./p.mcpServers.w"] == "" || len(c.Left) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestNothingToRead(t *testing.T) {
	for text, want := range map[string]string{
		``: "", `[]`: "no JSON object", `{"a":1`: "line", `{}`: "names no servers", `{"mcpServers":[]}`: "mcpServers is no object", `{"mcp":{}}`: "names no servers",
		`{"servers":{}}`: "is empty", `{"mcpServers":{"a":{"command":"mcp-idem-server"}}}`: `no server of mcpServers can be guarded: "a": it is guarded already`,
		`{"mcpServers":null}`: "is empty",
		`{"projects":{"/p":{"mcpServers":{"w":{"command":"x"}}}}}`: `no server of projects can be guarded: "projects./p.mcpServers.w": it is of that directory only`,
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
