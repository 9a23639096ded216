package demo

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// TestMain lets the test binary be the tickets server too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__tickets" {
		os.Exit(TicketsMain(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

func startTickets(t *testing.T, dir string) *rawmcp.Client {
	t.Helper()
	c, err := connect(t.Context(), exec.Command(os.Args[0], "__tickets", "-dir", dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(2 * time.Second) })
	return c
}

func mustCall(t *testing.T, c *rawmcp.Client, tool string, args any) rawmcp.ToolResult {
	t.Helper()
	m, err := c.Call(t.Context(), tool, args, nil)
	if err != nil || m.Error != nil {
		t.Fatalf("%s: %v %s", tool, err, m.Error)
	}
	return m.Tool()
}

func TestTicketsPersistAndAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startTickets(t, dir)
	for _, ref := range []string{"a", "b", "a"} {
		mustCall(t, c, "create_ticket", map[string]any{"order_id": "1", "title": "x", "external_reference": ref})
	}
	c.Kill() // what was answered survives

	var got searchResult
	r := mustCall(t, startTickets(t, dir), "search_tickets", map[string]any{"external_reference": "a"})
	if err := json.Unmarshal(r.Structured, &got); err != nil {
		t.Fatal(err)
	}
	want := searchResult{Items: []Ticket{
		{ID: "T-1", OrderID: "1", Title: "x", ExternalReference: "a"},
		{ID: "T-3", OrderID: "1", Title: "x", ExternalReference: "a"},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r = mustCall(t, startTickets(t, dir), "search_tickets", map[string]any{"external_reference": "none"})
	if string(r.Structured) != `{"items":[]}` {
		t.Errorf("nothing found: %s", r.Structured)
	}
}

func TestTicketsHoldTheAnswerAfterTheEffect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, HoldFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := startTickets(t, dir)
	answered := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), "create_ticket", order, nil)
		answered <- err
	}()
	if err := waitFor(t.Context(), filepath.Join(dir, HeldFile), answered); err != nil {
		t.Fatal(err)
	}
	all, err := ReadTickets(dir)
	if err != nil || len(all) != 1 {
		t.Fatalf("held, but %d tickets are on disk (%v)", len(all), err)
	}
	if err := os.Remove(filepath.Join(dir, HoldFile)); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("released: %v", err)
	}
}

func TestTicketsNeedADirectory(t *testing.T) {
	t.Parallel()
	var stderr rawmcp.Buffer
	if code := TicketsMain(nil, &stderr); code != 2 || stderr.String() == "" {
		t.Errorf("exit status %d, said %q", code, stderr.String())
	}
}

// The gateway checks forward.argument against the schema, so there must be one.
func TestTicketsDescribeTheirArguments(t *testing.T) {
	t.Parallel()
	c := startTickets(t, t.TempDir())
	m, err := c.Request(t.Context(), "tools/list", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Tools []struct {
			Name        string
			InputSchema struct {
				Properties map[string]struct{ Description string }
				Required   []string
			}
		}
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"create_ticket": {"order_id", "title"}, "search_tickets": {"external_reference"}}
	got := map[string][]string{}
	for _, tool := range list.Tools {
		got[tool.Name] = tool.InputSchema.Required
		if tool.InputSchema.Properties["external_reference"].Description == "" {
			t.Errorf("%s does not describe external_reference: %s", tool.Name, m.Raw)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if c.Stderr() != "" {
		t.Errorf("complains: %s", c.Stderr())
	}
}
