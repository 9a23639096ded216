package mcp

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem/policy"
)

// scripted is a server in sh, whose text sees each line as $line and its id as
// $id.
func scripted(t *testing.T, name, cases string) Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".sh")
	text := `say() { echo "{\"jsonrpc\":\"2.0\",$1}"; }
answer() { say "\"id\":$id,\"result\":$1"; }
refuse() { say "\"id\":$id,\"error\":{\"code\":$1,\"message\":\"$2\"}"; }
while read -r line; do
id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
echo "$line" >> ` + path + `.log
case "$line" in
*'"method":"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fake","version":"1"},"instructions":"From ` + name + `."}';;
` + cases + `
*'"id":'*) refuse -32601 'no such method';;
esac; done
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Server{Name: name, Command: "sh", Args: []string{path}, Log: testLog(t)}
}

// noted is what reached a scripted server.
func noted(t *testing.T, srv Server) string {
	t.Helper()
	b, err := os.ReadFile(srv.Args[0] + ".log")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func (r *rig) hello() {
	r.t.Helper()
	r.send(initLine)
	r.expect(`"id":"init"`, `"result"`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// TestTwoServersAskTheSame: requests of servers that use one id are answered each
// by its own answer.
func TestTwoServersAskTheSame(t *testing.T) {
	t.Parallel()
	r, _ := startSeveral(t, nil, nil, "", "")
	r.hello()
	asked := map[string]string{}
	for id, tool := range map[string]string{"1": "a__human", "2": "b__human"} {
		r.call(id, tool, `{}`, "")
		line := r.expect(`"elicitation/create"`)
		asked[id] = string(find([]byte(line), "id"))
	}
	if asked["1"] == asked["2"] {
		t.Fatalf("one id for two requests: %v", asked)
	}
	for id, ask := range asked {
		r.send(`{"jsonrpc":"2.0","id":` + ask + `,"result":{"to":` + id + `}}`)
	}
	for id := range asked {
		r.expect(`"id":`+id, `"structuredContent":{"to":`+id+`}`)
	}
}

// TestAbsentServerHoldsNothingUp: what one of several does not answer is answered
// without it, soon, and its calls say what is wrong.
func TestAbsentServerHoldsNothingUp(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		r, _ := startSeveral(t, stubPolicy{"peek": {Effect: policy.EffectRead}}, func(c *Config) { c.Prefix = !plain }, "missing", "")
		begun := time.Now()
		r.hello()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		r.expect(`"id":1`, `peek"`)
		if plain { // it may be of the other one as well, and have been called there
			r.call("2", "strict", `{}`, "")
			r.expect(`"id":2`, "may be of a server as well that has not told its tools yet: a", "nothing was sent")
			r.call("4", "peek", `{}`, "")
			r.expect(`"id":4`, `"done"`)
		} else {
			r.call("2", "b__echo", `{}`, "")
			r.expect(`"id":2`, `mcp-idem/op`)
		}
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("plain %v: it took %v", plain, took)
		}
		if !plain {
			r.call("3", "a__echo", `{}`, "")
			r.expectWithin(30*time.Second, `"id":3`, "the upstream a is not available")
		}
	}
}

// TestPlainNameOfADeadServer: a tool stays that of a server that has ended, and is
// not called of another one that has the same.
func TestPlainNameOfADeadServer(t *testing.T) {
	t.Parallel()
	r, logs := startSeveral(t, nil, func(c *Config) { c.Prefix = false }, "", "")
	r.hello()
	r.call("1", "strict", `{}`, "")
	r.expect(`"id":1`, "offered by a and b")
	pid := r.named(logs[0]).pids()[0]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	r.g.mu.Lock()
	r.g.links["a"][0].tools.drop() // as if it were a new process that is slow to begin
	r.g.mu.Unlock()
	r.call("2", "strict", `{}`, "")
	r.expect(`"id":2`, "offered by a and b", "nothing was sent")
	if seen := r.named(logs[1]).seen(); strings.Contains(seen, "call strict") {
		t.Error(seen)
	}
}

// TestServerThatComesBack: one that ended before it answered is started again
// without being asked for, and made known.
func TestServerThatComesBack(t *testing.T) {
	t.Parallel()
	r, _ := startSeveral(t, nil, nil, "", "dies-once")
	r.hello()
	if r.expect(`"notifications/tools/list_changed"`) == "" {
		t.Fatal("nothing is said")
	}
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":1`, `"b__peek"`)
}

// TestResourcesFindTheirServer: by the list, by the template, or by asking; what
// the right server refuses is its refusal, and nobody else is asked then.
func TestResourcesFindTheirServer(t *testing.T) {
	t.Parallel()
	one := scripted(t, "one", `*resources/list*) answer '{"resources":[{"uri":"m:1","name":"x"}]}';;
*resources/templates/list*) answer '{"resourceTemplates":[]}';;
*prompts/list*) answer '{"prompts":[{"name":"same"},{"name":"p1"}]}';;
*'"m:1"'*) answer '{"contents":[{"uri":"m:1","text":"one"}]}';;
*resources/*) refuse -32002 'not found';;`)
	two := scripted(t, "two", `*resources/list*) answer '{"resources":[]}';;
*resources/templates/list*) answer '{"resourceTemplates":[{"uriTemplate":"u:{x}","name":"y"}]}';;
*prompts/list*) answer '{"prompts":[{"name":"same"},{"name":"p2"}]}';;
*'"p2"'*) answer '{"messages":[],"description":"of two"}';;
*'"u:'*) answer '{"contents":[{"uri":"u:1","text":"two"}]}';;
*'"broken:'*) refuse -32603 'disk on fire';;
*resources/subscribe*) answer '{}';;`)
	three := scripted(t, "three", `*resources/read*) answer '{"contents":[{"uri":"z:1","text":"three"}]}';;
*vendor/thing*) answer '{"thing":1.0}';;`)
	r, _ := startSeveral(t, nil, func(c *Config) { c.Prefix, c.Servers = false, []Server{one, two, three} }, "")
	r.send(initLine)
	r.expect(`"id":"init"`, `"protocolVersion":"2025-06-18"`, `one: From one.\n\ntwo: From two.\n\nthree: From three.`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)
	r.expect(`"id":1`, `"resources":[{"uri":"m:1","name":"x"}]`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"resources/templates/list"}`)
	r.expect(`"id":2`, `[{"uriTemplate":"u:{x}","name":"y"}]`)
	for uri, want := range map[string]string{"m:1": `"text":"one"`, "u:1": `"text":"two"`, "z:1": `"text":"three"`, "broken:1": "disk on fire"} {
		r.send(`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"` + uri + `"}}`)
		r.expect(`"id":3`, want)
	}
	if seen := noted(t, three); strings.Contains(seen, "broken:") || strings.Contains(seen, `"u:1"`) || strings.Contains(seen, `"m:1"`) {
		t.Errorf("three was asked for what is not its own:\n%s", seen)
	}
	r.send(`{"jsonrpc":"2.0","id":4,"method":"prompts/list"}`)
	r.expect(`"id":4`, `"prompts":[{"name":"p1"},{"name":"p2"}]`)
	r.send(`{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"same"}}`)
	r.expect(`"id":5`, "offered by more than one server")
	r.send(`{"jsonrpc":"2.0","id":6,"method":"prompts/get","params":{"name":"p2"}}`)
	r.expect(`"id":6`, `"description":"of two"`)
	r.send(`{"jsonrpc":"2.0","id":7,"method":"vendor/thing"}`)
	r.expect(`"id":7`, `{"thing":1.0}`)
	r.send(`{"jsonrpc":"2.0","id":8,"method":"vendor/other"}`)
	r.expect(`"id":8`, `-32601`)
}

// TestCancelledWhileTheServerIsSought: the server that is being asked is told.
func TestCancelledWhileTheServerIsSought(t *testing.T) {
	t.Parallel()
	silent := scripted(t, "silent", `*resources/read*) ;;`)
	r, _ := startSeveral(t, nil, func(c *Config) { c.Servers = []Server{silent, c.Servers[0]} }, "")
	r.hello()
	r.send(`{"jsonrpc":"2.0","id":"r-1","method":"resources/read","params":{"uri":"x:1"}}`)
	wait := func(text string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); !strings.Contains(noted(t, silent), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %s in:\n%s", text, noted(t, silent))
			}
		}
	}
	wait("resources/read")
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"r-1"}}`)
	wait("notifications/cancelled")
	if err := r.close(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestServerAtAURLThatComesLate: one of several that refuses connections at first
// is made known when it is there.
func TestServerAtAURLThatComesLate(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	r, _ := startSeveral(t, nil, func(c *Config) {
		c.Servers = append(c.Servers, Server{Name: "far", URL: "http://" + at + "/mcp", Log: testLog(t)})
	}, "")
	r.hello()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if got := r.expect(`"id":1`, `"a__peek"`); strings.Contains(got, "far__") {
		t.Fatalf("listed: %s", got)
	}
	s := sdkserver.NewMCPServer("far", "1", sdkserver.WithToolCapabilities(false))
	s.AddTool(sdk.NewTool("look"), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return sdk.NewToolResultText("far away"), nil
	})
	if l, err = net.Listen("tcp", at); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", sdkserver.NewStreamableHTTPServer(s))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close() })
	r.expectWithin(20*time.Second, `"notifications/tools/list_changed"`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	r.expect(`"id":2`, `"far__look"`)
	r.call("3", "far__look", `{}`, "")
	r.expect(`"id":3`, "far away")
}
