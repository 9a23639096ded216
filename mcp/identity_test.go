package mcp

import (
	"errors"
	"testing"

	"github.com/mcp-idem/mcp-idem"
)

func TestIdentity(t *testing.T) {
	t.Setenv("SESSION", "session-9")
	id, err := compile(Identity{
		Task: []string{"_meta.mcp-idem/task", "header.X", "_meta.vscode.conversationId", "env.SESSION", "flag"}, FlagTask: "flag-task",
		Run: []string{"_meta.mcp-idem/run", "flag"}, FlagRun: "r0", Step: []string{"_meta.mcp-idem/step"}, Key: []string{"_meta.mcp-idem/key"},
		GenericKey: []string{"_meta.idempotencyKey", "params.idempotencyKey"}, Alias: []string{"_meta.claudecode/toolUseId", "_meta.callId"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for params, want := range map[string]idem.Ask{
		`{}`: {Task: "session-9", Run: "r0"},
		`{"_meta":{"vscode.conversationId":"c","mcp-idem/task":"","mcp-idem/step":7}}`:           {Task: "c", Run: "r0", Step: "7"},
		`{"_meta":{"mcp-idem/task":"t\u0031","vscode.conversationId":"c","mcp-idem/run":"r1"}}`:  {Task: "t1", Run: "r1"},
		`{"_meta":{"idempotencyKey":null,"mcp-idem/key":"k"},"idempotencyKey":"g"}`:              {Task: "session-9", Run: "r0", HostKey: "k", Generic: "g"},
		`{"_meta":{"mcp-idem/task":{"x":1},"callId":"call_0","claudecode/toolUseId":"toolu_1"}}`: {Task: "session-9", Run: "r0", Aliases: []string{"toolu_1", "call_0"}},
	} {
		var got idem.Ask
		p, err := gather([]byte(params))
		if err != nil {
			t.Fatal(err)
		}
		meta, _ := gather(p[`"_meta"`])
		if err := id.fill(&got, caller{}, place{params: p, meta: meta}); err != nil {
			t.Errorf("%s: %v", params, err)
		}
		if got.Task != want.Task || got.Run != want.Run || got.Step != want.Step || got.HostKey != want.HostKey || got.Generic != want.Generic ||
			len(got.Aliases) != len(want.Aliases) || len(got.Aliases) > 0 && got.Aliases[0] != want.Aliases[0] {
			t.Errorf("%s: %+v, want %+v", params, got, want)
		}
	}
	for _, key := range []string{`""`, `7`, `{}`, `"a\n"`, `"ü"`, `"\ud800"`, `"` + long(256) + `"`} {
		meta, _ := gather([]byte(`{"mcp-idem/key":` + key + `}`))
		if err := id.fill(new(idem.Ask), caller{}, place{meta: meta}); !errors.Is(err, idem.ErrInvalidArguments) {
			t.Errorf("key %s: %v", key, err)
		}
	}
	without, err := compile(Identity{Task: []string{"flag"}})
	if err != nil {
		t.Fatal(err)
	}
	var one, two idem.Ask
	who := caller{task: without.anyTask}
	if without.fill(&one, who, place{}) != nil || without.fill(&two, who, place{}) != nil || one.Task == "" || one.Task != two.Task {
		t.Errorf("a process without a task: %q, %q", one.Task, two.Task)
	}
	for _, bad := range []string{"meta.x", "_meta", "", "_meta.", "Flag"} {
		if _, err := compile(Identity{Step: []string{bad}}); err == nil {
			t.Errorf("the source %q is taken", bad)
		}
	}
}
