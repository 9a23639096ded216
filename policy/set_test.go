package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	idem "github.com/mcp-idem/mcp-idem"
)

func set(t *testing.T, c Config) *Set {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func entry(match string, change func(*Tool)) Tool {
	e := DefaultTool()
	e.Match = match
	if change != nil {
		change(&e)
	}
	return e
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a/b", "a/b", true}, {"a/b", "a/bc", false}, {"a/*", "a/b", true}, {"a/*", "a/b/c", false}, {"a/**", "a/b/c", true}, {"**", "a/b", true},
		{"*/create_*", "x/create_y", true}, {"*/create_*", "x/y/create_z", false}, {"**_x", "a/b_x", true}, {"a/*b*c", "a/xbybc", true}, {"a/*", "a/", true}, {"a*", "a/b", false}, {"A/b", "a/b", false},
	} {
		if got := match(c.pattern, c.name); got != c.want {
			t.Errorf("match(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
	for _, bad := range []string{"", "*", "tickets"} {
		if _, err := New(Config{Tools: []Tool{entry(bad, nil)}}); err == nil {
			t.Errorf("pattern %q is accepted", bad)
		}
	}
}

func TestSetRules(t *testing.T) {
	s := set(t, Config{Servers: []string{"tickets"}, Retention: time.Hour, ResultLimit: 7, Tools: []Tool{
		entry("tickets/create_*", func(e *Tool) {
			e.Operation, e.Key, e.Forward = "create", jq(".order_id"), Forward{Argument: "ref"}
			e.Effect, e.Retention, e.Process = EffectIdempotent, 2*time.Hour, true
			e.Bind, e.Ignore = []idem.Path{{"amount"}}, []idem.Path{{"reason"}}
		}),
		entry("tickets/**", func(e *Tool) { e.Wait = time.Second }),
	}})
	r, ok := s.Rules("tickets/create_ticket")
	if !ok || r.Operation != "create" || !r.Resend || !r.Process || r.Retention != 2*time.Hour || !cmp.Equal(r.Fills, idem.Path{"ref"}) ||
		!cmp.Equal(r.Bind, []idem.Path{{"amount"}}) || !cmp.Equal(r.Ignore, []idem.Path{{"reason"}}) {
		t.Errorf("rules %+v", r)
	}
	if k, err := r.Key([]byte(`{"order_id":"o1"}`)); err != nil || k != "o1" {
		t.Errorf("key %q, %v", k, err)
	}
	r, _ = s.Rules("tickets/other")
	if r.Wait != time.Second || r.Resend || r.Key != nil || r.Fills != nil {
		t.Errorf("second entry: %+v", r)
	}
	if _, ok := s.Rules("pay/x"); ok {
		t.Error("a server that is not configured has rules")
	}
	if got := s.Unmatched([]string{"tickets/create_ticket"}); !cmp.Equal(got, []int{1}) {
		t.Errorf("unmatched %v", got)
	}

	d, ok := set(t, Config{Servers: []string{"a"}}).Rules("a/tool")
	want := idem.Rules{Operation: "call", Repeat: idem.RepeatOccurrence, Wait: 20 * time.Second, Lease: 30 * time.Second,
		FailureTTL: 10 * time.Minute, Retention: 720 * time.Hour, OccurrenceRetention: 48 * time.Hour}
	retry := d.Retry
	d.Retry = idem.Retry{}
	if !ok || !cmp.Equal(d, want) {
		t.Errorf("defaults %s", cmp.Diff(want, d))
	}
	if retry.MaxAttempts != 3 || retry.MaxElapsed != 2*time.Minute || retry.Delay == nil {
		t.Errorf("default retry %+v", retry)
	}
}

func TestEffect(t *testing.T) {
	s := set(t, Config{Servers: []string{"a", "b"}, TrustHints: []string{"a"}, Tools: []Tool{
		entry("a/write", func(e *Tool) { e.Effect = EffectWrite }),
		entry("b/read", func(e *Tool) { e.Effect = EffectRead }),
	}})
	for _, server := range []string{"a", "b"} {
		for _, tool := range []string{"write", "read", "get", "turned"} {
			s.Hint(server, tool, true)
		}
	}
	s.Hint("a", "turned", false)
	for tool, want := range map[string]Effect{
		"a/write": EffectWrite, // the policy's word goes before the hint
		"a/get":   EffectRead, "a/turned": EffectWrite, "a/unknown": EffectWrite,
		"b/read": EffectRead, "b/get": EffectWrite, // not trusted
	} {
		if got := s.Effect(tool); got != want {
			t.Errorf("%s is %s, want %s", tool, got, want)
		}
	}
}

func TestReaches(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"a/x", true}, {"a/*", true}, {"*/x", true}, {"**", true}, {"a**", true}, {"**/x", true}, {"**x", true}, {"a*/x", true},
		{"b/x", false}, {"ab/x", false}, {"a", false}, {"*", false}, {"*x/y", false}, {"", false},
	} {
		if got := Reaches(c.pattern, "a"); got != c.want {
			t.Errorf("%q reaches server a: %v", c.pattern, got)
		}
	}
}
