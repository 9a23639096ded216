package suggest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

func mustTools(t *testing.T, definitions ...string) (tools []Tool) {
	t.Helper()
	for _, d := range definitions {
		tool, err := ReadTool([]byte(d))
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool)
	}
	return tools
}

func named(name, annotations string) string {
	return `{"name":"` + name + `","annotations":{` + annotations + `},"inputSchema":{"type":"object"}}`
}

func TestReads(t *testing.T) {
	for definition, want := range map[string][2]bool{
		named("get_ticket", ``): {true, true}, named("listTickets", ``): {true, true}, named("search-tickets", `"readOnlyHint":true`): {true, true},
		named("sequentialthinking", `"readOnlyHint":true`): {true, false}, named("status", ``): {false, false},
		named("get_or_create_ticket", ``): {false, false}, named("delete_ticket", `"readOnlyHint":true`): {false, false},
		named("get_ticket", `"readOnlyHint":false`): {false, false}, named("fetch_and_go", `"destructiveHint":true`): {false, false},
		named("get_ticket", `"readOnlyHint":true,"destructiveHint":true`): {true, true}, `{"name":""}`: {false, false},
	} {
		read, sure := mustTools(t, definition)[0].reads()
		if got := [2]bool{read, sure}; got != want {
			t.Errorf("%s: %v", definition, got)
		}
	}
}

func TestNouns(t *testing.T) {
	for name, want := range map[string]string{"create_ticket": "ticket", "listTickets": "ticket", "search-entities": "entity", "add_address": "address", "read_text_file": "text file", "get": ""} {
		if got := strings.Join(nouns(name), " "); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

var (
	create = `{"name":"create_ticket","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"external_reference":{"type":"string"}}}}`
	search = `{"name":"search_tickets","inputSchema":{"type":"object","properties":{"external_reference":{"type":"string"}}},
		"outputSchema":{"type":"object","properties":{"total":{"type":"integer"},"items":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"}}}}}}}`
)

// load is what the gateway makes of a proposal.
func load(t *testing.T, text []byte) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers":{"s":{"command":"x"}},`+string(text)+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, os.LookupEnv)
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return c
}

func TestAQueryIsFound(t *testing.T) {
	got := For("s", mustTools(t, create, named("get_ticket", ``), search, named("list_tickets", ``), named("search_users", ``)))
	last := got[len(got)-1]
	want := Proposal{Tool: "s/create_ticket", Certain: true, Why: last.Why, Policy: &config.Policy{Match: "s/create_ticket", Forward: &config.Forward{Argument: "external_reference"},
		Reconcile: &config.Reconcile{Tool: "search_tickets", Arguments: "{external_reference: $key}", Found: "[.structuredContent.items[].id]"}}}
	if len(got) != 5 || !cmp.Equal(last, want) {
		t.Error(cmp.Diff(want, last))
	}
	text, err := Text(got)
	if err != nil {
		t.Fatal(err)
	}
	set, err := load(t, text).Set(nil)
	if err != nil {
		t.Fatal(err)
	}
	if rules, _ := set.Rules("s/create_ticket"); rules.Query == nil || set.Effect("s/search_tickets") != "read" || set.Effect("s/create_ticket") != "write" {
		t.Errorf("%s", text)
	}
}

// What is not known for sure is a comment, and stays good when it is taken in.
func TestDoubtsAreComments(t *testing.T) {
	for name, definitions := range map[string][]string{
		"no schema of the result": {create, `{"name":"search_tickets","inputSchema":{"type":"object","properties":{"external_reference":{}}}}`},
		"no place for the key":    {named("create_ticket", ``), search},
		"no argument to find it":  {create, named("list_tickets", ``)},
		"read among others":       {named("edit_file", ``), named("read_text_file", ``)},
		"a hint alone":            {named("think", `"readOnlyHint":true`)},
		"idempotent, it says":     {named("set_mode", `"idempotentHint":true`)},
	} {
		proposals := For("s", mustTools(t, definitions...))
		last := proposals[len(proposals)-1]
		if last.Certain || last.Policy == nil {
			t.Errorf("%s: %+v", name, last)
		}
		text, err := Text(proposals)
		if err != nil {
			t.Fatal(err)
		}
		if set, err := load(t, text).Set(nil); err != nil {
			t.Error(err)
		} else if _, decided := set.Index(last.Tool); decided {
			t.Errorf("%s is no comment:\n%s", name, text)
		}
		load(t, []byte(strings.ReplaceAll(string(text), "// {", "{")))
	}
}

func TestNothingToAskWith(t *testing.T) {
	got := For("s", mustTools(t, named("send_mail", ``), named("go\\nwrong", ``)))
	if len(got) != 2 || got[0].Policy != nil || got[1].Policy != nil || !strings.Contains(got[1].Why, "waits for a person") {
		t.Errorf("%+v", got)
	}
	text, err := Text(got)
	if err != nil {
		t.Fatal(err)
	}
	load(t, text)
}
