package mcp

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// startSeveral is a gateway before several fakes, one per text of modes. Its rig
// has no single upstream.
func startSeveral(t *testing.T, tools stubPolicy, change func(*Config), modes ...string) (r *rig, logs []string) {
	t.Helper()
	r = &rig{t: t, guard: &stubGuard{done: map[string]idem.Outcome{}}, woken: make(chan struct{}, 1), done: make(chan error, 1)}
	cfg := Config{Guard: r.guard, Policy: tools, Drain: 2 * time.Second, Log: testLog(t), Prefix: true, Version: "1",
		Identity: Identity{Task: []string{"flag"}, FlagTask: "t"}}
	for i, m := range modes {
		srv, log := server(t, m)
		srv.Name = string(rune('a' + i))
		if m == "missing" {
			srv.Command = filepath.Join(t.TempDir(), "no-such-server")
		}
		cfg.Servers = append(cfg.Servers, srv)
		logs = append(logs, log)
	}
	r.log = logs[0]
	if change != nil {
		change(&cfg)
	}
	g, err := NewGateway(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.g = g
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	r.in = inW
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		err := g.Serve(ctx, inR, outW)
		_ = outW.Close()
		_ = inR.CloseWithError(io.EOF)
		r.done <- err
	}()
	go r.read(outR)
	t.Cleanup(func() { _ = inW.Close(); cancel() })
	return r, logs
}

func (r *rig) named(log string) *rig { return &rig{t: r.t, log: log} }

func TestSeveralServers(t *testing.T) {
	t.Parallel()
	r, logs := startSeveral(t, stubPolicy{"peek": {Effect: policy.EffectRead}}, nil, "", "")
	r.send(initLine)
	r.expect(`"id":"init"`, `"protocolVersion":"2025-11-25"`, `"capabilities":{"tools":{"listChanged":true}}`, `"serverInfo":{"name":"mcp-idem","version":"1"}`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	list := r.expect(`"id":1`)
	for _, want := range []string{`{"name":"a__peek","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"},"x":9007199254740993}`, `"b__peek"`, `"a__strict"`, `"b__strict"`} {
		if !strings.Contains(list, want) {
			t.Errorf("no %s in %s", want, list)
		}
	}
	if strings.Contains(list, "nextCursor") {
		t.Errorf("not on one page: %s", list)
	}
	r.call("2", "b__echo", `{"x":1}`, "")
	r.expect(`"id":2`, `mcp-idem/op`)
	r.call("3", "a__peek", `{}`, "")
	r.expect(`"id":3`, `"result"`)
	r.call("4", "peek", `{}`, "")
	r.expect(`"id":4`, `-32602`, "unknown tool: peek")
	r.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	r.expect(`"id":5`, `"result":{}`)
	r.send(`{"jsonrpc":"2.0","id":6,"method":"resources/list"}`)
	r.expect(`"id":6`)
	if o := r.guard.asked(); len(o) != 1 || o[0].Tool != "b/echo" {
		t.Errorf("asked: %+v", o)
	}
	a, b := r.named(logs[0]).seen(), r.named(logs[1]).seen()
	if strings.Contains(a, "call echo") || strings.Count(b, "call echo") != 1 || strings.Count(a, "call peek") != 1 || strings.Contains(b, "call peek") {
		t.Errorf("a saw:\n%s\nb saw:\n%s", a, b)
	}
	if strings.Count(a, "notifications/initialized") != 1 || strings.Count(b, "notifications/initialized") != 1 {
		t.Error("not every server was told that the client is ready")
	}
	if err := r.close(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestOneBadServer keeps nobody from the others.
func TestOneBadServer(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"missing", "dies"} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			r, _ := startSeveral(t, nil, nil, "", bad)
			r.send(initLine)
			r.expectWithin(20*time.Second, `"id":"init"`, `"result"`)
			r.call("1", "a__echo", `{}`, "")
			r.expect(`"id":1`, `mcp-idem/op`)
			r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
			r.expectWithin(20*time.Second, `"id":2`, `"a__peek"`)
			select {
			case err := <-r.done:
				t.Fatalf("Serve: %v", err)
			default:
			}
		})
	}
}

// TestServerThatComesLate is made known.
func TestServerThatComesLate(t *testing.T) {
	t.Parallel()
	r, _ := startSeveral(t, nil, nil, "", "late")
	r.send(initLine)
	r.expectWithin(20*time.Second, `"id":"init"`, `"result"`)
	r.expectWithin(20*time.Second, `"notifications/tools/list_changed"`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	r.expect(`"id":2`, `"b__peek"`)
}

func TestPlainNames(t *testing.T) {
	t.Parallel()
	r, logs := startSeveral(t, stubPolicy{"peek": {Effect: policy.EffectRead}}, func(c *Config) {
		c.Prefix = false
		c.Servers[1].Allows = func(tool string) bool { return tool == "strict" }
		c.Servers[0].Allows = func(tool string) bool { return tool != "strict" }
	}, "", "")
	r.send(initLine)
	r.expect(`"id":"init"`, `"result"`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if list := r.expect(`"id":1`); strings.Count(list, `"peek"`) != 1 || strings.Count(list, `"strict"`) != 1 {
		t.Errorf("%s", list)
	}
	r.call("2", "strict", `{}`, "")
	r.expect(`"id":2`, `mcp-idem/op`)
	if o := r.guard.asked(); len(o) != 1 || o[0].Tool != "b/strict" {
		t.Errorf("asked: %+v", o)
	}
	if strings.Contains(r.named(logs[0]).seen(), "call strict") {
		t.Error("the other server was asked")
	}
	r.call("3", "nothing", `{}`, "")
	r.expect(`"id":3`, "unknown tool: nothing")
}

// TestNamesThatCollide are refused rather than guessed at.
func TestNamesThatCollide(t *testing.T) {
	t.Parallel()
	r, _ := startSeveral(t, nil, func(c *Config) { c.Prefix = false }, "", "")
	r.send(initLine)
	r.expect(`"id":"init"`, `"result"`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":1`, `"tools":[]`)
	r.call("2", "peek", `{}`, "")
	r.expect(`"id":2`, "offered by a and b", "nothing was sent")
	if n := len(r.guard.asked()); n != 0 {
		t.Errorf("%d asks", n)
	}
}

func TestToolsThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil, func(c *Config) { c.Servers[0].Allows = func(tool string) bool { return tool != "peek" } }).handshake()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":1`, `"tools":[]`, `"nextCursor":"page2"`)
	r.call("2", "peek", `{}`, "")
	r.expect(`"id":2`, `-32602`, "unknown tool: peek")
	if strings.Contains(r.seen(), "call peek") {
		t.Error("it was called")
	}
}

func TestUnion(t *testing.T) {
	for _, c := range [][3]string{
		{`{}`, `{"tools":{}}`, `{"tools":{}}`},
		{`{"tools":{"listChanged":true}}`, `{"tools":{"listChanged":false},"logging":{}}`, `{"logging":{},"tools":{"listChanged":true}}`},
		{`{"a":false}`, `{"a":true}`, `{"a":true}`},
		{``, `{"x":{"y":[1]}}`, `{"x":{"y":[1]}}`},
	} {
		got := union([]byte(c[0]), []byte(c[1]))
		var have, want any
		if json.Unmarshal(got, &have) != nil || json.Unmarshal([]byte(c[2]), &want) != nil || !equalJSON(have, want) {
			t.Errorf("%s and %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
