package config

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

func env(name string) (string, bool) {
	v, ok := map[string]string{"TENANT": "acme", "TICKETS_TOKEN": "s3cret", "EMPTY": ""}[name]
	return v, ok
}

func TestEverything(t *testing.T) {
	path := filepath.Join("testdata", "full.jsonc")
	c, err := Load(path, env)
	if err != nil {
		t.Fatal(err)
	}
	if c.File != path || c.Ledger != BoltAt("/var/lib/mcp-idem/ledger.db") || c.Tenant != "acme" || c.Lease != 30*time.Second || c.ClientTimeout != 50*time.Second ||
		c.Drain != 10*time.Second || c.ReplayWindow != 24*time.Hour || !cmp.Equal(c.TrustHints, []string{"tickets"}) {
		t.Errorf("%+v", c)
	}
	if want := []Upstream{{Name: "tickets", Type: TransportStdio, Command: "node", Args: []string{"tickets.js", ""}, Env: []string{"A=", "TOKEN=Bearer s3cret"}, Dir: "/srv"}}; !cmp.Equal(c.Upstreams, want) {
		t.Errorf("upstreams %s", cmp.Diff(want, c.Upstreams))
	}
	want := Sources{
		Task:       []Source{{KindMeta, "mcp-idem/task"}, {KindHeader, "Mcp-Idem-Task"}, {KindMeta, "vscode.conversationId"}, {KindEnv, "CLAUDE_CODE_SESSION_ID"}, {KindFlag, ""}},
		Run:        []Source{{KindFlag, ""}},
		Step:       []Source{{KindMeta, "mcp-idem/step"}},
		GenericKey: []Source{{KindParams, "idempotencyKey"}},
		Alias:      []Source{{KindMeta, "callId"}},
		NewRun:     true,
	}
	if !cmp.Equal(c.Identity, want) {
		t.Errorf("identity %s", cmp.Diff(want, c.Identity))
	}

	var asked string
	s, err := c.Set(func(_ context.Context, q idem.Lookup, tool string, args []byte) ([]byte, error) {
		server := q.Record.Server()
		asked = server + "/" + tool + string(args)
		return []byte(`{"content":[],"structuredContent":{"items":[{"id":"T-1"}]}}`), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, ok := s.Rules("tickets/create_ticket")
	if !ok {
		t.Fatal("no rules")
	}
	f, err := r.Query.Reconciler.Query(context.Background(), idem.Lookup{Key: "k", Record: &idem.Record{Scope: idem.Scope{Tool: "tickets/create_ticket"}}})
	if err != nil || asked != `tickets/search_tickets{"external_reference":"k"}` || !cmp.Equal(f.IDs, []string{"T-1"}) {
		t.Errorf("asked %s, found %v, %v", asked, f, err)
	}
	if q := *r.Query; q.Settle != 35*time.Second || q.Every != 5*time.Second || q.GiveUp != 10*time.Minute || q.Baseline {
		t.Errorf("query %+v", q)
	}
	if k, err := r.Key([]byte(`{"order_id":7.0}`)); k != "7" || err != nil {
		t.Errorf("key %s, %v", k, err)
	}
	if r.Retry.MaxAttempts != 4 || r.Retry.MaxElapsed != 2*time.Minute || r.Retry.Delay(9, 0) > 10*time.Second {
		t.Errorf("retry %+v", r.Retry)
	}
	r.Key, r.Query, r.Retry = nil, nil, idem.Retry{}
	if want := (idem.Rules{Operation: "create", Repeat: idem.RepeatReplay, Timeout: 30 * time.Second, Wait: 20 * time.Second, Lease: 30 * time.Second,
		Bind: []idem.Path{{"amount"}, {"title"}}, Ignore: []idem.Path{{"reason"}, {"trace", "id"}, {"x y"}}, Fills: idem.Path{"external_reference"},
		FailureTTL: time.Minute, Retention: 700 * time.Hour, OccurrenceRetention: 48 * time.Hour, ResultLimit: 4 << 20}); !cmp.Equal(r, want) {
		t.Errorf("rules %s", cmp.Diff(want, r))
	}
	tool := s.Tool("tickets/create_ticket")
	if tool.Cancel != policy.CancelForward || tool.Forward != (policy.Forward{Argument: "external_reference", Meta: "idempotencyKey"}) ||
		len(tool.Rules) != 2 || tool.Rules[0].Class != idem.ClassThrottled || !tool.Rules[1].Trust || tool.ID.String() != ".structuredContent.id" {
		t.Errorf("tool %+v", tool)
	}
	if s.Effect("tickets/search_x") != policy.EffectRead || s.Effect("tickets/create_ticket") != policy.EffectWrite {
		t.Error("effects")
	}
	r, _ = s.Rules("tickets/append_x")
	if q := *r.Query; !r.Resend || !r.Process || r.Wait != 0 || r.FailureTTL != 0 || !q.Baseline || q.Settle != 0 || q.Every != 3*time.Second || q.GiveUp != 3*time.Second {
		t.Errorf("third entry: %+v, %+v", r, q)
	}
	if d, ok := s.Rules("tickets/other"); !ok || d.Query != nil || d.Operation != "call" {
		t.Errorf("defaults: %+v", d)
	}
}

func TestDefaults(t *testing.T) {
	c, err := parse([]byte(`{}`), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.Tenant != "default" || c.Ledger != (Ledger{}) || c.Lease != 30*time.Second || c.ClientTimeout != 55*time.Second || c.Drain != 10*time.Second || c.ReplayWindow != 24*time.Hour {
		t.Errorf("%+v", c)
	}
	if len(c.Identity.Task) != 7 || len(c.Identity.Run) != 3 || len(c.Identity.Step) != 2 || len(c.Identity.Key) != 1 || len(c.Identity.GenericKey) != 3 || len(c.Identity.Alias) != 2 || c.Identity.NewRun {
		t.Errorf("identity %+v", c.Identity)
	}
	// Defaults give way to a long replay window; given values are mistakes.
	c, err = parse([]byte(`{"replay_window":"1000h"}`), env)
	if err != nil || c.retention != 1000*time.Hour || c.occurrenceRetention != 1000*time.Hour {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parse([]byte(`{"replay_window":"1s","retention":"2s"}`), env)
	if err != nil || c.retention != 2*time.Second || c.occurrenceRetention != 48*time.Hour {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parse([]byte(`{"policies":[{"match":"a/b","retry":{"initial":"30s"}},{"match":"a/c","retry":{"max":"100ms"}}]}`), env)
	if err != nil || c.tools[0].Retry.Max != 30*time.Second || c.tools[1].Retry.Initial != 100*time.Millisecond {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestForCommand(t *testing.T) {
	name := NameFor("/usr/bin/node", []string{"a.js"}, "/srv")
	if name == NameFor("/usr/bin/node", []string{"b.js"}, "/srv") || name == NameFor("/usr/bin/node", []string{"a.js"}, "/") || name[:5] != "node-" || len(name) != 13 {
		t.Errorf("name %s", name)
	}
	c, err := ForCommand(Upstream{Name: name, Command: "node", Args: []string{"a.js"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Set(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Hint(name, "get", true)
	if _, ok := s.Rules(name + "/x"); !ok || s.Effect(name+"/get") != policy.EffectRead || s.Effect(name+"/x") != policy.EffectWrite {
		t.Errorf("%+v", c)
	}
	if _, err := ForCommand(Upstream{Name: "a/b", Command: "x"}, false); err == nil {
		t.Error("a name with a slash is accepted")
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.json"), env); err == nil {
		t.Error("no file, no error")
	}
	_, err := Load(filepath.Join("testdata", "full.jsonc"), func(string) (string, bool) { return "", false })
	bad, ok := errors.AsType[*Error](err)
	if !ok || bad.File != filepath.Join("testdata", "full.jsonc") || bad.Path != "tenant" {
		t.Errorf("%v", err)
	}
}
