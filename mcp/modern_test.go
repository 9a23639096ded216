package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-idem/mcp-idem/policy"
)

const helloMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`

func sdkRig(t *testing.T, tools stubPolicy) *rig {
	t.Helper()
	srv, _ := server(t, "")
	srv.Env = []string{fakeMode + "=sdk", "GORACE=atexit_sleep_ms=0"}
	return startServer(t, srv, "", tools, func(c *Config) {
		c.Guard, c.Identity = realGuard(t), Identity{Task: []string{"flag"}, FlagTask: "t", GenericKey: []string{"params.idempotencyKey"}}
	})
}

// TestSubscriptionHasTheClientsID: what belongs to a subscription, and its end,
// carry the id that the client gave it, of whatever kind. What comes after the
// client has ended it is for nobody.
func TestSubscriptionHasTheClientsID(t *testing.T) {
	t.Parallel()
	r := sdkRig(t, nil)
	for _, id := range []string{`"mine"`, `70`} {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` + helloMeta + `}}}`)
		r.expect(`notifications/subscriptions/acknowledged`, `"io.modelcontextprotocol/subscriptionId":`+id)
	}
	r = script(t, `tag() { echo '"_meta":{"n":1.0,"io.modelcontextprotocol/subscriptionId":'"$id"'}'; }
while read -r line; do
case "$line" in
*server/discover*) id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/'); echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}}';;
*subscriptions/listen*) id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  echo '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u:1",'$(tag)'}}';;
*end-it*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete",'$(tag)'}}';;
*cancelled*) echo '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u:late",'$(tag)'}}'; echo '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u:last"}}';;
esac; done`)
	listen := func(id string) {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"_meta":{` + helloMeta + `}}}`)
		r.expect(`"uri":"u:1","_meta":{"n":1.0,"io.modelcontextprotocol/subscriptionId":` + id + `}`)
	}
	listen(`"s-1"`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/end-it"}`)
	r.expect(`"id":"s-1"`, `"_meta":{"n":1.0,"io.modelcontextprotocol/subscriptionId":"s-1"}`)
	listen(`5`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	r.expect(`"u:last"`)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) > 0 {
		t.Errorf("said after the end: %s", r.lines)
	}
}

// TestRoundTripsAreOneOperation: the answers of a person come in a further
// request, which is no conflict, no replay and no second effect; the next call is
// another operation.
func TestRoundTripsAreOneOperation(t *testing.T) {
	t.Parallel()
	r := sdkRig(t, nil)
	call := func(id int, more string) string {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"confirm","arguments":{"n":1}%s,"_meta":{%s}}}`, id, more, helloMeta))
		return r.expect(fmt.Sprintf(`"id":%d`, id))
	}
	op := func(answer string) string {
		_, rest, _ := strings.Cut(answer, `"mcp-idem/op":`)
		op, _, _ := strings.Cut(rest, `,`)
		return op
	}
	responses := `,"requestState":"st-1","inputResponses":{"sure":{"action":"accept","content":{"yes":true}}}`
	parked := call(1, "")
	if !strings.Contains(parked, `"resultType":"input_required"`) || !strings.Contains(parked, `"requestState":"st-1"`) || !strings.Contains(parked, `elicitation/create`) {
		t.Fatalf("parked: %s", parked)
	}
	done := call(2, responses)
	if !strings.Contains(done, "confirmed 1") || strings.Contains(done, "replayed") || op(done) != op(parked) {
		t.Errorf("continued: %s\nparked: %s", done, parked)
	}
	if next := call(3, ""); !strings.Contains(next, "input_required") || op(next) == op(parked) {
		t.Errorf("the next call: %s", next)
	}
	if next := call(4, responses); !strings.Contains(next, "confirmed 2") {
		t.Errorf("its end: %s", next)
	}
}

// TestKeyInParams: an idempotency key that typed decoding drops names the
// operation, and reaches the server where it stood.
func TestKeyInParams(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil, func(c *Config) {
		c.Guard, c.Identity = realGuard(t), Identity{Task: []string{"flag"}, FlagTask: "t", GenericKey: []string{"params.idempotencyKey"}}
	}).handshake()
	for id := range 3 {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"a":1},"idempotencyKey":"k-1"}}`, id))
		if got := r.expect(fmt.Sprintf(`"id":%d`, id), `"done"`); strings.Contains(got, "mcp-idem/replayed") != (id > 0) {
			t.Errorf("answer %d: %s", id, got)
		}
	}
	r.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"a":2},"idempotencyKey":"k-1"}}`)
	r.expect(`"id":9`, "IDEMPOTENCY_PARAMETER_MISMATCH")
	if n := strings.Count(r.seen(), "call echo"); n != 1 {
		t.Errorf("%d dispatches", n)
	}
}

// TestTasks: a call with a side effect that wants to run as a task is refused, for
// its outcome would not be kept; one that only reads passes.
func TestTasks(t *testing.T) {
	t.Parallel()
	r := start(t, "", stubPolicy{"peek": {Effect: policy.EffectRead}}, func(c *Config) { c.Guard = realGuard(t) }).handshake()
	call := func(id, tool string) {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{},"task":{"ttl":60000},"_meta":{"mcp-idem/task":"t"}}}`)
	}
	call("1", "echo")
	r.expect(`"id":1`, "INVALID_ARGUMENTS", "run as tasks", "Nothing was sent", `"isError":true`)
	call("2", "peek")
	r.expect(`"id":2`, `"done"`)
	if seen := r.seen(); strings.Contains(seen, "call echo") || !strings.Contains(seen, "call peek") {
		t.Errorf("the server saw:\n%s", seen)
	}
}

// TestStatelessClientOfSeveral: a client without handshake sees a stateless
// server and one of the earlier protocol as one.
func TestStatelessClientOfSeveral(t *testing.T) {
	t.Parallel()
	old := scripted(t, "old", `*tools/list*) answer '{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}';;
*tools/call*) answer '{"content":[{"type":"text","text":"seen"}]}';;`)
	r, _ := startSeveral(t, stubPolicy{"look": {Effect: policy.EffectRead}, "progress": {Effect: policy.EffectRead}}, func(c *Config) {
		srv := c.Servers[0]
		srv.Name, srv.Env = "new", []string{fakeMode + "=sdk", "GORACE=atexit_sleep_ms=0"}
		c.Servers = []Server{old, srv}
	}, "")
	ask := func(id, method, params string) string {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `"_meta":{` + helloMeta + `}}}`)
		return r.expect(`"id":`+id, `"resultType":"complete"`)
	}
	// It answers servers, so a server's own refusal of this would be passed on.
	for method, want := range map[string][]string{
		"tools/list":     {`"old__look"`, `"new__progress"`, `"ttlMs":0`},
		"resources/list": {`"mem://4"`, `"cacheScope":"private"`},
	} {
		got := ask(`"`+method+`"`, method, "")
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %s in %s", method, w, got)
			}
		}
	}
	if got := ask("3", "tools/call", `"name":"old__look","arguments":{},`); !strings.Contains(got, `"seen"`) {
		t.Errorf("a call of the old one: %s", got)
	}
	if got := ask("4", "resources/read", `"uri":"mem://2",`); !strings.Contains(got, "text of mem://2") {
		t.Errorf("a resource of the new one: %s", got)
	}
	if got := ask("5", "tools/call", `"name":"new__roots","arguments":{},`); !strings.Contains(got, `"result"`) {
		t.Errorf("a guarded call of the new one: %s", got)
	}
	if got := ask("6", "server/discover", ""); !strings.Contains(got, modernVersion) || !strings.Contains(got, `"name":"mcp-idem"`) {
		t.Errorf("server/discover: %s", got)
	}
}
