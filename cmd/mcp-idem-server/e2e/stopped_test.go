package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// The gateway is stopped past its lease and wakes: the answer that waited for
// it in the pipe is the outcome, whatever the lease says.
func TestStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	for _, l := range ledgers() {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			stopPastLease(t, ticketStageOn(t, l, mustBuild(t, gateway), nil))
		})
	}
}

func stopPastLease(t *testing.T, st *stage) {
	gw := st.start()
	must(t, st.ctl.Hold(ticketTool))
	asked := askInBackground(t, gw, ticketTool, ticketArgs, ticketStep)
	st.wait(relay.Held, ticketTool, 1)

	gw.Signal(syscall.SIGSTOP)
	must(t, st.ctl.Hold(""))
	must(t, st.ctl.Release())
	st.wait(relay.Returned, ticketTool, 1)
	time.Sleep(3 * time.Second) // the lease is 2 s
	gw.Signal(syscall.SIGCONT)

	<-asked // its text depends on who was first: the answer or the lease's end
	m := settle(t, gw, ticketTool, ticketArgs, ticketStep)
	wantTicket(t, st, m)
}

// The tool takes longer than its policy's timeout and then succeeds: its own
// answer is recorded, nothing is sent twice.
func TestSlowerThanItsTimeout(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), map[string]any{"timeout": "300ms", "wait": "1s"})
	gw := st.start()
	must(t, st.ctl.Hold(ticketTool))
	asked := askInBackground(t, gw, ticketTool, ticketArgs, ticketStep)
	st.wait(relay.Held, ticketTool, 1)
	<-asked
	must(t, st.ctl.Hold(""))
	must(t, st.ctl.Release())
	st.wait(relay.Returned, ticketTool, 1)
	wantTicket(t, st, settle(t, gw, ticketTool, ticketArgs, ticketStep))
}

// The tool used where no real server is needed: the demo's tickets server.
const ticketTool = "create_ticket"

var (
	ticketArgs = map[string]any{"order_id": "17", "title": "broken on arrival"}
	ticketStep = step("order-17", "open-ticket")
)

// ticketStage is a stage with the tickets server. more is added to the tool's
// policy.
func ticketStage(t *testing.T, bin string, more map[string]any) *stage {
	t.Helper()
	return ticketStageOn(t, nil, bin, more)
}

func ticketStageOn(t *testing.T, l ledger, bin string, more map[string]any) *stage {
	t.Helper()
	if testing.Short() {
		t.Skip("killing processes is not for -short")
	}
	dir := filepath.Join(t.TempDir(), "tickets")
	must(t, os.Mkdir(dir, 0o700))
	return newStage(t, ticketSetting(t, l, bin, dir, more))
}

func ticketSetting(t *testing.T, l ledger, bin, dir string, more map[string]any) setting {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	policy := map[string]any{
		"match": "tickets/" + ticketTool, "id": ".structuredContent.id",
		"forward": map[string]any{"argument": "external_reference"},
		"reconcile": map[string]any{
			"tool": "search_tickets", "arguments": "{external_reference: $key}",
			"found": "[.structuredContent.items[].id]", "settle": "500ms", "every": "200ms",
		},
	}
	for k, v := range more {
		policy[k] = v
		if v == nil {
			delete(policy, k)
		}
	}
	return setting{
		bin: bin, ledger: l, name: "tickets", storage: dir, command: []string{self, "__tickets", "-dir", dir}, env: map[string]string{},
		policies: []map[string]any{{"match": "tickets/search_tickets", "effect": "read"}, policy},
	}
}

// wantTicket checks that there is one ticket, and that the answer names it.
func wantTicket(t *testing.T, st *stage, m rawmcp.Message) {
	t.Helper()
	all, err := demo.ReadTickets(st.dir)
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("%d tickets, want 1: %+v", len(all), all)
	}
	r := m.Tool()
	if r.MetaString("mcp-idem/state") != "COMMITTED" || r.MetaString("mcp-idem/external_id") != all[0].ID {
		t.Errorf("not the outcome of %s: %s", all[0].ID, m.Raw)
	}
}
