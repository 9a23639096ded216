package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// Every gap between two durable steps, for real processes. The gateway, built
// with -tags idemcrash, kills itself at the named points, one run after the
// other; then one runs through. Whatever the outside saw, there is one ticket
// in the end and every answer names it.
func TestCrashInEveryGap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		points []string // where each successive run dies
		policy map[string]any
		hold   bool // the first run's answer is held until the first crash
	}{
		{name: "after the claim, before the dispatch", points: []string{"claimed"}},
		{name: "after the request was written", points: []string{"dispatched"}},
		{name: "after the answer, before the record", points: []string{"answered"}},
		{name: "after the record, before the answer is sent", points: []string{"recorded"}},
		{name: "after the answer was sent", points: []string{"delivered"}},
		{name: "after the timeout was recorded", points: []string{"timeout-recorded"}, policy: map[string]any{"timeout": "200ms"}, hold: true},
		{name: "after the lease of a query, found", points: []string{"answered", "query-claimed"}},
		{name: "after a query's answer, found", points: []string{"answered", "query-answered"}},
		{name: "after a query's record, found", points: []string{"answered", "query-recorded"}},
		{name: "after the lease of a query, absent", points: []string{"claimed", "query-claimed"}},
		{name: "after a query's answer, absent", points: []string{"claimed", "query-answered"}},
		{name: "after a query's record, absent", points: []string{"claimed", "query-recorded"}},
		{name: "again and again", points: []string{"claimed", "claimed", "dispatched", "query-claimed", "query-answered", "query-claimed", "query-recorded"}, policy: map[string]any{"retry": map[string]any{"max_attempts": 10}}},
	} {
		for _, l := range ledgers() {
			t.Run(fmt.Sprintf("%s/%s", l, c.name), func(t *testing.T) {
				t.Parallel()
				st := ticketStageOn(t, l, mustBuild(t, crashGateway), c.policy)
				if c.hold {
					must(t, st.ctl.Hold(ticketTool))
				}
				for _, point := range c.points {
					st.dieAt(point)
					must(t, st.ctl.Hold(""))
				}
				gw := st.start()
				m := settle(t, gw, ticketTool, ticketArgs, ticketStep)
				wantTicket(t, st, m)
				wantReplay(t, gw, ticketTool, ticketArgs, ticketStep, m)
			})
		}
	}
}

// dieAt runs a gateway that kills itself at the point, and asks until it has.
// Recovery may bring it there before anybody asks.
func (st *stage) dieAt(point string) {
	st.t.Helper()
	gw, err := rawmcp.Start(st.command("MCP_IDEM_CRASH=" + point))
	must(st.t, err)
	st.t.Cleanup(func() { gw.Close(0) })
	ctx := deadline(st.t)
	_, err = gw.Initialize(ctx)
	for err == nil {
		_, err = gw.Call(ctx, ticketTool, ticketArgs, ticketStep)
		time.Sleep(50 * time.Millisecond) // the point may lie behind the answer
	}
	select {
	case <-gw.Ended():
	case <-ctx.Done():
		st.t.Fatalf("the gateway never came to %s: %v\n%s", point, err, gw.Stderr())
	}
	if gw.ExitCode() != -1 {
		st.t.Fatalf("at %s: exit status %d, want death by SIGKILL: %s", point, gw.ExitCode(), gw.Stderr())
	}
}
