package e2e

import (
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

// The dangerous window: the effect is in the server's storage, its answer has
// not come, and SIGKILL ends the gateway, the upstream or both. The same step
// asked again is settled by asking the server, and replays from then on.
func TestKilledBetweenEffectAndRecord(t *testing.T) {
	t.Parallel()
	for _, c := range realCases() {
		for _, v := range []victim{killGateway, killUpstream, killBoth} {
			t.Run(c.name+"/"+string(v), func(t *testing.T) {
				t.Parallel()
				// The orphan of a gateway killed alone lives on: its end must be
				// made certain before its storage is believed.
				st := realStage(t, c.server, c.policies, v == killGateway)
				gw := st.start()
				must(t, st.ctl.Hold(c.server.Tool))
				args, meta := c.server.Arguments(st.dir), step("order-17", "ship")
				lost := askInBackground(t, gw, c.server.Tool, args, meta)
				st.wait(relay.Held, c.server.Tool, 1)
				must(t, st.ctl.Hold(""))
				gw = st.kill(v, gw)

				m := settle(t, gw, c.server.Tool, args, meta)
				wantCommitted(t, m, true)
				wantReplay(t, gw, c.server.Tool, args, meta, m)
				st.wantOnce(c.server)
				if v != killUpstream {
					<-lost
				}
				first := st.started(1)
				gone(t, "the first relay", first.Pid)
				gone(t, "the first server", first.Server)
			})
		}
	}
}

// The process dies before the server saw the request: absence is proven, the
// call is made again, and that is the one effect.
func TestKilledBeforeTheEffect(t *testing.T) {
	t.Parallel()
	for _, c := range realCases() {
		for _, v := range []victim{killGateway, killUpstream, killBoth} {
			t.Run(c.name+"/"+string(v), func(t *testing.T) {
				t.Parallel()
				st := realStage(t, c.server, c.policies, v == killGateway)
				gw := st.start()
				must(t, st.ctl.Drop(c.server.Tool))
				args, meta := c.server.Arguments(st.dir), step("order-17", "ship")
				lost := askInBackground(t, gw, c.server.Tool, args, meta)
				st.wait(relay.Dropped, c.server.Tool, 1)
				must(t, st.ctl.Drop(""))
				gw = st.kill(v, gw)

				m := settle(t, gw, c.server.Tool, args, meta)
				wantCommitted(t, m, false)
				wantReplay(t, gw, c.server.Tool, args, meta, m)
				st.wantOnce(c.server)
				if v != killUpstream {
					<-lost
				}
			})
		}
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
