package e2e

import (
	"fmt"
	"testing"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// victim is who is killed while the effect is made and its answer held.
type victim string

const (
	killGateway  victim = "gateway"
	killUpstream victim = "upstream"
	killBoth     victim = "both"
)

// realCase is a server with the policies under which it is guarded.
type realCase struct {
	name     string
	server   npm.Server
	policies []map[string]any
}

func realCases() []realCase {
	var all []realCase
	for _, s := range npm.All() {
		all = append(all, realCase{s.Name, s, s.Policy("1s")})
	}
	byKey, policies := npm.SQLiteByKey()
	return append(all, realCase{"db by business key", byKey, policies})
}

// window is one kill: who dies in front of which server, with which ledger.
type window struct {
	realCase
	victim victim
	ledger ledger
}

func (w window) String() string {
	if w.ledger == (postgres{}) {
		return fmt.Sprintf("postgres/%s/%s", w.name, w.victim)
	}
	return fmt.Sprintf("%s/%s", w.name, w.victim)
}

// stage is the window's stage. The orphan of a gateway killed alone lives on: its
// end must be made certain before its storage is believed.
func (w window) stage(t *testing.T) *stage {
	t.Helper()
	return realStageOn(t, w.ledger, w.server, w.policies, w.victim == killGateway)
}

// windows are all servers with all victims, and one victim of each with the
// ledger in Postgres; turn is the first one's.
func windows(turn int) []window {
	var all []window
	for i, c := range realCases() {
		victims := []victim{killGateway, killUpstream, killBoth}
		for _, v := range victims {
			all = append(all, window{c, v, bolt{}})
		}
		all = append(all, window{c, victims[(i+turn)%len(victims)], postgres{}})
	}
	return all
}

// The dangerous window: the effect is in the server's storage, its answer has
// not come, and SIGKILL ends the gateway, the upstream or both. The same step
// asked again is settled by asking the server, and replays from then on.
func TestKilledBetweenEffectAndRecord(t *testing.T) {
	t.Parallel()
	for _, w := range windows(0) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			st := w.stage(t)
			gw := st.start()
			must(t, st.ctl.Hold(w.server.Tool))
			args, meta := w.server.Arguments(st.dir), step("order-17", "ship")
			lost := askInBackground(t, gw, w.server.Tool, args, meta)
			st.wait(relay.Held, w.server.Tool, 1)
			must(t, st.ctl.Hold(""))
			gw = st.kill(w.victim, gw)

			m := settle(t, gw, w.server.Tool, args, meta)
			wantCommitted(t, m, true)
			wantReplay(t, gw, w.server.Tool, args, meta, m)
			st.wantOnce(w.server)
			<-lost
			first := st.started(1)
			gone(t, "the first relay", first.Pid)
			gone(t, "the first server", first.Server)
		})
	}
}

// The process dies before the server saw the request: absence is proven, the
// call is made again, and that is the one effect.
func TestKilledBeforeTheEffect(t *testing.T) {
	t.Parallel()
	for _, w := range windows(1) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			st := w.stage(t)
			gw := st.start()
			must(t, st.ctl.Drop(w.server.Tool))
			args, meta := w.server.Arguments(st.dir), step("order-17", "ship")
			lost := askInBackground(t, gw, w.server.Tool, args, meta)
			st.wait(relay.Dropped, w.server.Tool, 1)
			must(t, st.ctl.Drop(""))
			gw = st.kill(w.victim, gw)

			m := settle(t, gw, w.server.Tool, args, meta)
			wantCommitted(t, m, false)
			wantReplay(t, gw, w.server.Tool, args, meta, m)
			st.wantOnce(w.server)
			<-lost
		})
	}
}

// kill ends who is named, and returns a client of the gateway that then runs.
func (st *stage) kill(v victim, gw *rawmcp.Client) *rawmcp.Client {
	st.t.Helper()
	switch v {
	case killGateway:
		gw.Kill()
	case killUpstream:
		st.killServers()
		return gw
	case killBoth:
		gw.Kill()
		st.killServers()
	}
	return st.start()
}

// wantOnce checks that one call of the tool reached the server, and one effect
// stands in its own storage.
func (st *stage) wantOnce(s npm.Server) {
	st.t.Helper()
	if n := st.count(relay.Forwarded, s.Tool); n != 1 {
		st.t.Errorf("%d calls reached the server, want 1", n)
	}
	wantEffects(st.t, s, needServers(st.t), st.dir, 1)
}
