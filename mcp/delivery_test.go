package mcp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// realGuard stands in front of a ledger in memory, for servers of these names and
// the fake one.
func realGuard(t *testing.T, servers ...string) *idem.Guard {
	t.Helper()
	set, err := policy.New(policy.Config{Servers: append([]string{"fake"}, servers...)})
	if err != nil {
		t.Fatal(err)
	}
	system, err := proc.New()
	if err != nil {
		t.Fatal(err)
	}
	g, err := idem.New(idem.Config{Store: memstore.New(memstore.Config{}), Policy: set, Owner: system.Self(), Processes: system})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = g.Close(ctx)
	})
	return g
}

// TestCancellationBehindTheAnswer: the client had sent it before the answer
// came, and throws the answer away. Its next ask gets the same answer.
func TestCancellationBehindTheAnswer(t *testing.T) {
	cancel := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
	}
	r := start(t, "", nil, func(c *Config) { c.Guard, c.Identity.FlagTask = realGuard(t), "t1" }).handshake()
	replayed := func(id, args string, want bool) {
		t.Helper()
		r.call(id, "echo", args, "")
		if got := r.expect(`"id":`+id, `"done"`); strings.Contains(got, `mcp-idem/replayed`) != want {
			t.Errorf("replayed: %v\n%s", !want, got)
		}
	}
	replayed("1", `{"a":1}`, false)
	replayed("2", `{"a":1}`, false) // the first has arrived: a second one is meant
	r.send(cancel("1"))             // too late
	r.send(cancel("2"))
	replayed("3", `{"a":1}`, true)
	replayed("4", `{"a":1}`, false)
	// Two answers, both thrown away.
	r.call("5", "echo", `{"b":1}`, "")
	r.call("6", "echo", `{"b":2}`, "")
	r.expect(`"id":5`)
	r.expect(`"id":6`)
	r.send(cancel("6"))
	r.send(cancel("5"))
	replayed("7", `{"b":1}`, true)
	replayed("8", `{"b":2}`, true)
	if n := strings.Count(r.seen(), "call echo"); n != 5 {
		t.Errorf("%d dispatches:\n%s", n, r.seen())
	}
}

// TestRoundTripsOfOneCall: an answer that asks for input is none, and the
// continuation goes through.
func TestRoundTripsOfOneCall(t *testing.T) {
	r := start(t, "", nil, func(c *Config) { c.Guard = realGuard(t) }).handshake()
	r.call("1", "asks", "{}", `"mcp-idem/task":"t","mcp-idem/step":"s"`)
	r.expect(`"id":1`, `"input_required"`, `"requestState":"st"`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"asks","arguments":{},"requestState":"st","inputResponses":{},"_meta":{"mcp-idem/task":"t","mcp-idem/step":"s"}}}`)
	r.expect(`"id":2`, `"input_required"`) // this server asks without end
	if n := strings.Count(r.seen(), "call asks"); n != 2 {
		t.Errorf("%d dispatches:\n%s", n, r.seen())
	}
}
