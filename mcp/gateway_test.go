package mcp

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

func TestPassThrough(t *testing.T) {
	r := start(t, "", stubPolicy{"echo": {Effect: policy.EffectRead}}).handshake()
	r.send(`{"jsonrpc":"2.0","id":"7","method":"ping"}`)
	r.expect(`{"jsonrpc":"2.0","id":"7","result":{}}`)
	r.send(`{ "method" : "tools/list", "id":9007199254740993 ,"params":{}}`)
	if got := r.expect(`"id":9007199254740993`); !strings.Contains(got, `"x":9007199254740993`) {
		t.Errorf("the definition is not the server's: %s", got)
	}
	r.send(`{"jsonrpc":"2.0","id":1,"method":"no/such"}`)
	r.expect(`"id":1`, `-32601`)
	r.call("2", "echo", `{"a":1.0}`, "")
	if got := r.expect(`"id":2`, `"got":{"a":1.0}`); strings.Contains(got, "mcp-idem/") {
		t.Errorf("a read is marked: %s", got)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"k":1}}`)
	r.waitSeen(`notifications/roots/list_changed {"k":1}`, 1)
	if len(r.guard.asks) != 0 {
		t.Errorf("the guard was asked: %v", r.guard.asks)
	}
	if err := r.close(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if seen := r.seen(); !strings.Contains(seen, "end") {
		t.Errorf("the server was not let out:\n%s", seen)
	}
}

func TestGuardedCallAndReplay(t *testing.T) {
	r := start(t, "", nil).handshake()
	r.call(`"7"`, "echo", `{"n":9007199254740993}`, `"mcp-idem/task":"t1","mcp-idem/step":"s1","progressToken":3,"claudecode/toolUseId":"toolu_1"`)
	first := r.expect(`"id":"7"`)
	for _, want := range []string{`"structuredContent":{"n":9007199254740993,"p":1.0}`, `"up/trace":"x"`, `"mcp-idem/state":"COMMITTED"`,
		`"mcp-idem/task":"t1"`, `"mcp-idem/step":"s1"`, `"mcp-idem/attempt":1`, `"mcp-idem/op":"`, `"got":{"n":9007199254740993}`} {
		if !strings.Contains(first, want) {
			t.Errorf("no %s in %s", want, first)
		}
	}
	r.call(`7`, "echo", `{"n":9007199254740993}`, `"mcp-idem/task":"t1","mcp-idem/step":"s1"`)
	again := r.expect(`"id":7,`, `"mcp-idem/replayed":true`)
	if want := strings.Replace(strings.Replace(first, `"id":"7"`, `"id":7`, 1), `"}`+`,"got"`, `","mcp-idem/replayed":true},"got"`, 1); !sameBut(again, want, `,"mcp-idem/replayed":true`) {
		t.Errorf("the replay differs:\n%s\n%s", first, again)
	}
	if n := strings.Count(r.seen(), "call echo"); n != 1 {
		t.Errorf("%d dispatches", n)
	}
	a := r.guard.asks[0]
	if a.Tool != "fake/echo" || a.Tenant != "default" || a.Task != "t1" || a.Step != "s1" || len(a.Aliases) != 1 || a.Aliases[0] != "toolu_1" {
		t.Errorf("the ask: %+v", a)
	}
	o := r.guard.outcomes[0]
	if o.Ended != idem.EndByAnswer || o.Kind != idem.ResultValue || o.Sent.IsZero() {
		t.Errorf("the outcome: %+v", o)
	}
}

func sameBut(a, b, cut string) bool {
	return strings.Replace(a, cut, "", 1) == strings.Replace(b, cut, "", 1)
}

func TestKeyIsForwarded(t *testing.T) {
	r := start(t, "", stubPolicy{"echo": {Argument: "ref", Meta: "idempotencyKey"}, "strict": {Argument: "ref"}}).handshake()
	r.call("1", "echo", `{ "a" : 1.50, "ref":"model"}`, `"mcp-idem/step":"s1"`)
	got := r.expect(`"id":1`)
	op := between(got, `"mcp-idem/op":"`, `"`)
	want := `call echo { "a" : 1.50,"ref":"` + op + `"} {"mcp-idem/step":"s1","idempotencyKey":"` + op + `"}`
	if !strings.Contains(r.seen(), want) {
		t.Errorf("want %s in\n%s", want, r.seen())
	}
	r.send(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"},"id":2}`)
	r.expect(`"id":2`, `"got":{"ref":"`)
	r.call("3", "strict", `{"a":1}`, "")
	r.expect(`"id":3`, `INVALID_ARGUMENTS`, `\"ref\"`)
	if strings.Contains(r.seen(), "call strict") {
		t.Error("a call whose key does not fit was sent")
	}
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func TestEndsOfAttempts(t *testing.T) {
	for tool, want := range map[string]struct {
		class idem.Class
		ended idem.EndBy
		kind  idem.ResultKind
	}{
		"echo":    {idem.ClassSuccess, idem.EndByAnswer, idem.ResultValue},
		"noise":   {idem.ClassSuccess, idem.EndByAnswer, idem.ResultValue},
		"rejects": {idem.ClassRejected, idem.EndByAnswer, idem.ResultError},
		"asks":    {idem.ClassInterim, idem.EndByAnswer, idem.ResultValue},
		"exit":    {idem.ClassAmbiguous, idem.EndByGroup, idem.ResultNone},
		"badutf8": {idem.ClassAmbiguous, idem.EndByAnswer, idem.ResultNone},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			r := start(t, "", stubPolicy{tool: {Process: true}}).handshake()
			r.call("1", tool, "{}", "")
			r.expect(`"id":1`)
			o := r.guard.ended(t, 1)[0]
			if o.Class != want.class || o.Ended != want.ended || o.Kind != want.kind || o.Lost != (tool == "exit") || o.Sent.IsZero() {
				t.Errorf("%+v", o)
			}
			r.call("2", "echo", "{}", "") // the next one is served
			r.expect(`"id":2`, `"done"`)
		})
	}
}

func TestRejectedErrorKeepsItsForm(t *testing.T) {
	r := start(t, "", nil).handshake()
	r.call("1", "rejects", "{}", `"mcp-idem/step":"s1"`)
	r.expect(`"id":1`, `"error":{"code":-32602,"message":"bad priority","data":{"value":"why","_meta":{"mcp-idem/op":"`)
}

func TestCancelledCallGoesOn(t *testing.T) {
	r := start(t, "", stubPolicy{"peek": {Effect: policy.EffectRead}, "silent": {ForwardCancel: true}}).handshake()
	r.call("41", "slow", "{}", `"mcp-idem/step":"s1"`)
	r.waitSeen("call slow", 1)
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":41}}`)
	r.send(`{"jsonrpc":"2.0","id":42,"method":"ping"}`)
	r.expect(`"id":42`)
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassSuccess {
		t.Errorf("the attempt ended with %+v", o)
	}
	if seen := r.seen(); strings.Contains(seen, "cancelled") {
		t.Errorf("the cancellation was passed on:\n%s", seen)
	}
	r.call("43", "silent", "{}", `"mcp-idem/step":"s2"`)
	r.waitSeen("call silent", 1)
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"r","requestId":43}}`)
	r.waitSeen(`notifications/cancelled {"reason":"r","requestId":`, 1)
	if strings.Contains(r.seen(), `"requestId":43`) {
		t.Error("the server was told an id that it does not know")
	}
	for _, line := range r.lines {
		if strings.Contains(string(line), `"id":41`) || strings.Contains(string(line), `"id":43`) {
			t.Errorf("a cancelled call was answered: %s", line)
		}
	}
}

func TestServerAsksTheClient(t *testing.T) {
	r := start(t, "", nil).handshake()
	r.call("1", "human", "{}", "")
	asked := r.expect(`"method":"elicitation/create"`, `"message":"sure?"`)
	id := between(asked, `"id":`, `,`)
	if id == `"elicit-1"` {
		t.Error("the server's id is shown to the client")
	}
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept"}}`)
	r.expect(`"id":1`, `"action":"accept"`)
	r.call("2", "progress", "{}", "")
	r.expect(`"method":"notifications/progress","params":{"progressToken":"t","progress":1}`)
}

func TestRefusedLines(t *testing.T) {
	r := start(t, "", nil).handshake()
	for line, want := range map[string][]string{
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`:     {`"id":null`, `-32600`},
		`{"jsonrpc":"2.0","id":1,"method":`:              {`"id":null`, `-32700`},
		`garbage`:                                        {`"id":null`, `-32700`},
		`"text"`:                                         {`"id":null`, `-32600`},
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:      {`"id":null`, `-32600`},
		`{"id":3,"method":"ping","method":"tools/call"}`: {`"id":null`, `-32600`},
		`{"id":4,"method":"tools/call","params":{}}`:     {`"id":4`, `-32602`},
		`{"id":5,"method":"tools/call","params":{"name":"peek","name":"echo"}}`:                                   {`"id":5`, `-32602`},
		`{"id":6,"method":"tools/call","params":{"name":"echo","arguments":{},"arguments":{}}}`:                   {`"id":6`, `INVALID_ARGUMENTS`},
		`{"id":7,"method":"tools/call","params":{"name":"echo","task":{}}}`:                                       {`"id":7`, `INVALID_ARGUMENTS`},
		`{"id":8,"method":"tools/call","params":{"name":"echo","_meta":{"mcp-idem/key":""}}}`:                     {`"id":8`, `INVALID_ARGUMENTS`},
		`{"id":9,"method":"tools/call","params":{"name":"echo","_meta":{"mcp-idem/key":7}}}`:                      {`"id":9`, `INVALID_ARGUMENTS`},
		`{"id":10,"method":"tools/call","params":{"name":"echo","idempotencyKey":"ü"}}`:                           {`"id":10`, `INVALID_ARGUMENTS`},
		`{"id":11,"method":"x","params":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`:         {`"id":11`, `-32600`},
		`{"id":12,"method":"tools/call","params":{"name":"echo","_meta":{"mcp-idem/key":"` + long(256) + `"}}}`:   {`"id":12`, `INVALID_ARGUMENTS`},
		`{"id":13,"\u006dethod":"tools/call","params":{"name":"echo","\u005fmeta":{"idempotencyKey":"a\u0000"}}}`: {`"id":13`, `INVALID_ARGUMENTS`},
	} {
		r.send(line)
		r.expect(want...)
	}
	r.send(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`) // without an id
	r.send(`{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"echo"}}`)
	r.send(`{"jsonrpc":"2.0","id":99,"method":"ping"}`)
	r.expect(`"id":99`)
	if seen := r.seen(); strings.Contains(seen, "call ") || len(r.guard.asks) != 0 {
		t.Errorf("something was sent, or asked: %v\n%s", r.guard.asks, seen)
	}
}

func long(n int) string { return strings.Repeat("k", n) }

// TestArgumentsAreTheGuards: what is wrong inside arguments reaches the guard
// byte for byte, which refuses it under the call's own id.
func TestArgumentsAreTheGuards(t *testing.T) {
	r := start(t, "", nil).handshake()
	r.guard.answer = func(idem.Ask) *idem.Answer {
		return &idem.Answer{Err: &idem.Error{Code: idem.CodeInvalidArguments, Text: "no"}}
	}
	bad := []string{`{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`}
	for i, args := range bad {
		r.call(string(rune('1'+i)), "echo", args, "")
		r.expect(`"id":`+string(rune('1'+i)), "INVALID_ARGUMENTS", `"isError":true`)
		if got := string(r.guard.asks[i].Args); got != args {
			t.Errorf("the guard got %q", got)
		}
	}
}

func TestHintsAreBelievedWhereTheyMayBe(t *testing.T) {
	r := start(t, "", stubPolicy{"write": {Effect: policy.EffectWrite}}, func(c *Config) { c.Servers[0].TrustHints = true }).handshake()
	r.call("1", "peek", "{}", "")
	r.expect(`"id":1`, `"done"`)
	r.call("2", "peek", "{}", "")
	r.expect(`"id":2`, `"done"`)
	r.call("3", "strict", "{}", "")
	r.expect(`"id":3`, `mcp-idem/op`)
	if n := strings.Count(r.seen(), "list "); n != 2 || len(r.guard.asks) != 1 {
		t.Errorf("%d pages, %d asks", n, len(r.guard.asks))
	}
}

func TestAnswersOfTheGuard(t *testing.T) {
	r := start(t, "", nil).handshake()
	rec := &idem.Record{State: idem.StateNeedsReview, Task: "t", ExternalID: "T-1", Last: 2}
	op := idem.OperationID(idem.Scope{Tool: "x"}, idem.SourceStep, "", 1)
	at := idem.InstantOf(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	for i, c := range []struct {
		a    idem.Answer
		want []string
		not  string
	}{
		{idem.Answer{Err: &idem.Error{Code: idem.CodeNeedsReview, Text: "Unknown.", Record: rec, Op: op}},
			[]string{`ops resolve ` + op.String(), `"isError":true`, `"mcp-idem/op":"` + op.String(), `"mcp-idem/state":"NEEDS_REVIEW"`}, `resultType`},
		{idem.Answer{Err: &idem.Error{Code: idem.CodeMismatch, Text: "Other.", Record: rec, Op: op}}, []string{`IDEMPOTENCY_PARAMETER_MISMATCH`}, `T-1`},
		{idem.Answer{Err: &idem.Error{Code: idem.CodeRetryScheduled, Text: "Later.", RetryAt: at}}, []string{`"mcp-idem/retry_at":"2026-11-30T12:00:00Z"`}, `T-1`},
		{idem.Answer{Record: &idem.Record{State: idem.StateCommitted, ResultSize: 5000, ResultDigest: []byte{1, 2}, ExternalID: "T-9", Reconciled: true}, Replayed: true},
			[]string{`5000 bytes`, `SHA-256 0102`, `T-9`, `"mcp-idem/replayed":true`, `"mcp-idem/reconciled":true`}, `isError`},
		{idem.Answer{Record: rec, Result: []byte(`{"content":[]}`), Kind: idem.ResultValue, NotRecorded: true}, []string{`{"content":[],"_meta":{"mcp-idem/code":"EXECUTED_NOT_RECORDED"`}, `isError`},
		{idem.Answer{Record: rec, Result: []byte(`null`), Kind: idem.ResultValue}, []string{`"result":null}`}, `_meta`},
		{idem.Answer{Record: rec, Result: []byte(`{"code":1,"message":"m"}`), Kind: idem.ResultError}, []string{`"error":{"code":1,"message":"m","data":{"_meta":{"mcp-idem/state"`}, `isError`},
	} {
		r.guard.answer = func(idem.Ask) *idem.Answer { return &c.a }
		id := string(rune('1' + i))
		r.call(id, "echo", "{}", "")
		got := r.expect(append(c.want, `"id":`+id)...)
		if strings.Contains(got, c.not) {
			t.Errorf("%s in %s", c.not, got)
		}
	}
	r.guard.answer = func(idem.Ask) *idem.Answer { return &idem.Answer{Err: &idem.Error{Code: idem.CodeUnknown, Text: "x"}} }
	r.call(`"m2"`, "echo", "{}", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)
	r.expect(`"id":"m2"`, `"resultType":"complete"`, `"isError":true`)
}
