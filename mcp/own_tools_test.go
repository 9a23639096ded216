package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

// stubControl is one tool, idem_probe, that tells who called it.
type stubControl struct {
	mu    sync.Mutex
	calls []Caller
	hold  bool // until the call is cancelled
}

const probe = `{"name":"idem_probe","inputSchema":{"type":"object"},"n":1.0}`

func (*stubControl) Tools() []json.RawMessage { return []json.RawMessage{json.RawMessage(probe)} }

func (c *stubControl) Call(ctx context.Context, who Caller, name string, args []byte) []byte {
	c.mu.Lock()
	c.calls = append(c.calls, who)
	hold := c.hold
	c.mu.Unlock()
	if hold {
		<-ctx.Done()
		return made("cancelled", true)
	}
	return made(name+" "+string(args), false)
}

func (c *stubControl) called() []Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Caller(nil), c.calls...)
}

// TestOwnTools: the gateway's tools are on the last page of the only server's,
// and calls of them do not reach it.
func TestOwnTools(t *testing.T) {
	t.Parallel()
	own := &stubControl{}
	r := start(t, "", nil, func(c *Config) { c.Control = own }).handshake()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if first := r.expect(`"id":1`, `"nextCursor":"page2"`); strings.Contains(first, "idem_probe") {
		t.Errorf("on the first page: %s", first)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"page2"}}`)
	r.expect(`"id":2`, `{"name":"strict","inputSchema":{"type":"object","properties":{"a":{}},"additionalProperties":false}},`+probe+`]`)
	r.call("3", "idem_probe", `{"a":1}`, `"mcp-idem/task":"t9"`)
	r.expect(`"id":3`, `idem_probe {\"a\":1}`)
	if got := own.called(); len(got) != 1 || got[0].Task != "t9" || got[0].Tenant != "default" {
		t.Errorf("callers: %+v", got)
	}
	if seen := r.seen(); strings.Contains(seen, "idem_probe") || len(r.guard.asked()) > 0 {
		t.Errorf("the call went on: %s", seen)
	}
	own.mu.Lock()
	own.hold = true
	own.mu.Unlock()
	r.call("4", "idem_probe", `{}`, "")
	for end := time.Now().Add(5 * time.Second); len(own.called()) < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not called")
		}
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
	r.expect(`"id":4`, "cancelled")
}

// TestOwnToolsOfAServerWithoutTools: they are announced and listed all the same.
func TestOwnToolsOfAServerWithoutTools(t *testing.T) {
	t.Parallel()
	r := script(t, `while read -r line; do
case "$line" in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"fake","version":"1"}}}';;
*tools/list*) echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}';;
esac; done`, func(c *Config) { c.Control = &stubControl{} })
	r.send(initLine)
	r.expect(`"id":"init"`, `"logging":{}`, `"tools":{}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":1`, `"result":{"tools":[`+probe+`]}`)
}

// TestOwnToolsBeforeSeveral: they keep their names, and a server keeps a tool of
// that name under its own.
func TestOwnToolsBeforeSeveral(t *testing.T) {
	t.Parallel()
	own := &stubControl{}
	same := scripted(t, "c", `*tools/list*) answer '{"tools":[{"name":"idem_probe"}]}';;`)
	r, _ := startSeveral(t, nil, func(c *Config) { c.Control, c.Servers = own, append(c.Servers, same) }, "", "")
	r.hello()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":1`, `"a__peek"`, `"b__peek"`, `{"name":"c__idem_probe"},`+probe)
	r.call("2", "idem_probe", `{}`, "")
	r.expect(`"id":2`, "idem_probe {}")
	if n := len(own.called()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestAServersToolOfOurName gives way, whichever way it is spelled.
func TestAServersToolOfOurName(t *testing.T) {
	for name, raw := range map[string]string{
		"alone": `[{"name":"idem_probe","x":1}]`, "among others": `[{"name":"a"}, {"name":"idem_probe"} ,{"name":"b"}]`, "none": `[]`, "others": `[ {"name":"a"} ]`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{g: &Gateway{controls: newControls(&stubControl{}), cfg: Config{Log: testLog(t)}}}
			e := s.listed(&Upstream{}, answerLine([]byte(`{"a":1.0,"tools":`+raw+`,"z":[]}`)), false)
			result := e.result.of(e.line)
			tools := elements(find(result, "tools"))
			n := 0
			for _, tool := range tools {
				if toolInfo(tool).Name == "idem_probe" {
					n++
				}
			}
			if last := tools[len(tools)-1]; n != 1 || string(last) != probe || !json.Valid(e.line) {
				t.Errorf("%s", e.line)
			}
			if string(find(result, "a")) != "1.0" || string(find(result, "z")) != "[]" {
				t.Errorf("the rest is not kept: %s", e.line)
			}
		})
	}
}
