package e2e

import (
	"testing"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// Three steps make the same INSERT. The third dies before it applies: the rows
// of the first two were there at its baseline, and do not settle it.
func TestThirdIdenticalInsertIsNotSettledByTheFirstTwo(t *testing.T) {
	t.Parallel()
	s := npm.SQLite()
	st := realStage(t, s, s.Policy("1s"), false)
	gw := st.start()
	args := s.Arguments(st.dir)
	for _, name := range []string{"first", "second"} {
		wantCommitted(t, settle(t, gw, s.Tool, args, step("import", name)), false)
	}
	must(t, st.ctl.Drop(s.Tool))
	lost := askInBackground(t, gw, s.Tool, args, step("import", "third"))
	st.wait(relay.Dropped, s.Tool, 1)
	must(t, st.ctl.Drop(""))
	gw = st.kill(killBoth, gw)
	<-lost

	m := settle(t, gw, s.Tool, args, step("import", "third"))
	wantCommitted(t, m, false)
	wantReplay(t, gw, s.Tool, args, step("import", "third"), m)
	wantEffects(t, s, needServers(t), st.dir, 3)
}

// The same, but the third applied: its own row settles it.
func TestThirdIdenticalInsertIsSettledByItsOwnRow(t *testing.T) {
	t.Parallel()
	s := npm.SQLite()
	st := realStage(t, s, s.Policy("1s"), false)
	gw := st.start()
	args := s.Arguments(st.dir)
	for _, name := range []string{"first", "second"} {
		wantCommitted(t, settle(t, gw, s.Tool, args, step("import", name)), false)
	}
	must(t, st.ctl.Hold(s.Tool))
	lost := askInBackground(t, gw, s.Tool, args, step("import", "third"))
	st.wait(relay.Held, s.Tool, 1)
	must(t, st.ctl.Hold(""))
	gw = st.kill(killBoth, gw)
	<-lost

	m := settle(t, gw, s.Tool, args, step("import", "third"))
	wantCommitted(t, m, true)
	if id := m.Tool().MetaString("mcp-idem/external_id"); id != "3" {
		t.Errorf("settled by row %q, want 3: %s", id, m.Raw)
	}
	wantEffects(t, s, needServers(t), st.dir, 3)
}
