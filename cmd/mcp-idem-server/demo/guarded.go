package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// step is how the host names the ask; the same on every ask for it.
var step = map[string]any{"mcp-idem/task": "order-123", "mcp-idem/step": "open-ticket"}

// foreign leaves out what configures a gateway of the user's: the demo has a
// ledger of its own.
func foreign(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "MCP_IDEM_") })
}

// runGuarded kills the gateway in the window and asks its successor the same
// step, until it is settled, and once more for the replay.
func runGuarded(ctx context.Context, say *timeline, self, dir string) (int, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	config, err := writeConfig(self, dir)
	if err != nil {
		return 0, err
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(self, "--config", config)
		cmd.Env = append(foreign(os.Environ()), "XDG_STATE_HOME="+dir)
		return cmd
	}
	if err := dieInWindow(ctx, say, start(), dir, "the gateway", step); err != nil {
		return 0, err
	}
	c, err := connect(ctx, start())
	if err != nil {
		return 0, err
	}
	defer c.Close(time.Second)
	say.event("gateway", "starts again; its ledger knows an attempt of unknown outcome")
	say.event("agent", "got no answer, so it asks the same step again")
	r, err := askUntilSettled(ctx, say, c)
	if err != nil {
		return 0, withStderr(err, c)
	}
	if r.MetaBool("mcp-idem/reconciled") {
		say.event("gateway", "asked search_tickets for its key, found %s: %s, and made no second call",
			r.MetaString("mcp-idem/external_id"), r.MetaString("mcp-idem/state"))
	}
	m, err := c.Call(ctx, "create_ticket", order, step)
	if err != nil {
		return 0, withStderr(err, c)
	}
	if m.Tool().MetaBool("mcp-idem/replayed") {
		say.event("gateway", "asked once more, replays the recorded outcome")
	}
	return count(say, dir)
}

// askUntilSettled asks the step as an agent would: an unknown outcome is never
// an invitation to do something else, only to ask again later.
func askUntilSettled(ctx context.Context, say *timeline, c *rawmcp.Client) (rawmcp.ToolResult, error) {
	for said := ""; ; {
		m, err := c.Call(ctx, "create_ticket", order, step)
		if err != nil {
			return rawmcp.ToolResult{}, err
		}
		r := m.Tool()
		if m.Error == nil && r.MetaString("mcp-idem/state") == "COMMITTED" {
			return r, nil
		}
		code := r.MetaString("mcp-idem/code")
		switch code {
		case "OUTCOME_UNKNOWN", "OPERATION_IN_PROGRESS", "RETRY_SCHEDULED":
		default:
			return rawmcp.ToolResult{}, fmt.Errorf("unexpected answer: %s", m.Raw)
		}
		if code != said {
			say.event("gateway", "says %s: nothing is sent before the truth is known", code)
			said = code
		}
		select {
		case <-ctx.Done():
			return rawmcp.ToolResult{}, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// writeConfig writes what a user would: the server, and how create_ticket is
// recognised outside.
func writeConfig(self, dir string) (string, error) {
	b, err := json.MarshalIndent(map[string]any{
		"ledger": "bolt://" + filepath.Join(dir, "ledger.db"),
		"mcpServers": map[string]any{
			"tickets": map[string]any{"command": self, "args": []string{"__tickets", "-dir", dir}},
		},
		"policies": []any{
			map[string]any{
				"match":   "tickets/create_ticket",
				"id":      ".structuredContent.id",
				"forward": map[string]any{"argument": "external_reference"},
				"reconcile": map[string]any{
					"tool":      "search_tickets",
					"arguments": "{external_reference: $key}",
					"found":     "[.structuredContent.items[].id]",
					"settle":    "1s", "every": "1s",
				},
			},
			map[string]any{"match": "tickets/search_tickets", "effect": "read"},
		},
	}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "config.json")
	return path, os.WriteFile(path, b, 0o600)
}
