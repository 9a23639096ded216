package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// hostsLease is the lease of a claim in front of one of several hosts.
const hostsLease = time.Second

// crew is three gateways on three hosts with one ledger in Postgres. In front of
// each is a tickets server of its own; all of these write to one storage.
type crew struct {
	t      *testing.T
	dir    string // the storage
	hosts  []*host
	stages []*stage
	gws    []*rawmcp.Client
}

// TestHosts: several hosts on one ledger. With IDEM_TORTURE their wall clocks are
// wrong by an hour, forward and back.
func TestHosts(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	s := pgtest.Start(t, pgtest.Listen(w.addr, 0))
	if w.prefix == "" {
		t.Log("hosts share this machine's addresses: network namespaces take root")
	}
	if os.Getenv("IDEM_TORTURE") != "" {
		wantSkew(t, mustBuild(t, skewedGateway))
	}
	for _, c := range []struct {
		name string
		test func(c *crew)
	}{
		{"all ask at once", askAtOnce},
		{"a long call keeps its lease", keepLease},
		{"a host dies, its effect is found", dieAfterEffect},
		{"a host dies, nothing is found", dieBeforeEffect},
		{"a gateway dies, its host knows", dieOnLivingHost},
		{"a host hangs after its effect", hangAfterEffect},
		{"a host hangs before its effect", hangBeforeEffect},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(newCrew(t, w, s))
		})
	}
}

// at is a ledger that exists.
type at string

func (a at) String() string { return string(a) }

func (a at) url(*testing.T, string) string { return string(a) }

func newCrew(t *testing.T, w *wire, s *pgtest.Server) *crew {
	t.Helper()
	c := &crew{t: t, dir: filepath.Join(t.TempDir(), "tickets")}
	must(t, os.Mkdir(c.dir, 0o700))
	ledger := at(s.URL("postgres", fmt.Sprintf("schema=crew_%08x", rand.Uint32())))
	bin := gateway
	var skews [3]time.Duration
	if os.Getenv("IDEM_TORTURE") != "" {
		bin, skews = skewedGateway, [3]time.Duration{0, time.Hour, -time.Hour}
	}
	policy := map[string]any{"wait": "300ms", "retry": map[string]any{"max_attempts": 5, "initial": "10ms"}, "reconcile": map[string]any{
		"tool": "search_tickets", "arguments": "{external_reference: $key}", "found": "[.structuredContent.items[].id]",
		"settle": "500ms", "every": "200ms", "give_up": "3s",
	}}
	for _, skew := range skews {
		h := w.host(t)
		h.skew = skew
		setting := ticketSetting(t, ledger, mustBuild(t, bin), c.dir, policy)
		setting.lease = hostsLease.String()
		st := newStage(t, setting)
		st.enter = h.enter
		c.hosts, c.stages = append(c.hosts, h), append(c.stages, st)
		c.gws = append(c.gws, launch(t, st.command()))
	}
	for _, gw := range c.gws { // all of them have found no ledger, or a new one
		_, err := gw.Initialize(deadline(t))
		must(t, err)
	}
	return c
}

func order(n int) (args, meta map[string]any) {
	id := fmt.Sprint(n)
	return map[string]any{"order_id": id, "title": "broken on arrival"}, step("order-"+id, "open-ticket")
}

// want checks how many tickets there are in the end, once nothing is on its way.
func (c *crew) want(n int) []demo.Ticket {
	c.t.Helper()
	all, err := demo.ReadTickets(c.dir)
	must(c.t, err)
	if len(all) != n {
		c.t.Fatalf("%d tickets, want %d: %+v", len(all), n, all)
	}
	return all
}

// forwarded counts the calls that have reached the servers of all hosts.
func (c *crew) forwarded() (n int) {
	c.t.Helper()
	for _, st := range c.stages {
		n += st.count(relay.Forwarded, ticketTool)
	}
	return n
}

// One order on all hosts at the same moment: one ticket, and the same answer to
// everybody.
func askAtOnce(c *crew) {
	const rounds = 5
	for n := range rounds {
		args, meta := order(n)
		var asked []<-chan rawmcp.Message
		for _, gw := range c.gws {
			asked = append(asked, askInBackground(c.t, gw, ticketTool, args, meta))
		}
		ops := map[string]bool{}
		for i, gw := range c.gws {
			<-asked[i]
			m := settle(c.t, gw, ticketTool, args, meta)
			wantCommitted(c.t, m, m.Tool().MetaBool("mcp-idem/reconciled"))
			ops[m.Tool().MetaString("mcp-idem/op")+" "+m.Tool().MetaString("mcp-idem/external_id")] = true
		}
		if len(ops) != 1 {
			c.t.Errorf("order %d: hosts were answered differently: %v", n, ops)
		}
	}
	c.want(rounds)
	if n := c.forwarded(); n != rounds {
		c.t.Errorf("%d calls for %d orders", n, rounds)
	}
}

// A call that takes several leases stays its host's, whatever the time of day is
// where others look.
func keepLease(c *crew) {
	args, meta := order(1)
	must(c.t, c.stages[0].ctl.Hold(ticketTool))
	asked := askInBackground(c.t, c.gws[0], ticketTool, args, meta)
	c.stages[0].wait(relay.Held, ticketTool, 1)
	for end := time.Now().Add(3 * hostsLease); time.Now().Before(end); {
		for _, gw := range c.gws[1:] {
			m, err := gw.Call(deadline(c.t), ticketTool, args, meta)
			must(c.t, err)
			if code := m.Tool().MetaString("mcp-idem/code"); code != "OPERATION_IN_PROGRESS" {
				c.t.Fatalf("while it is under way: %s", m.Raw)
			}
		}
	}
	must(c.t, c.stages[0].ctl.Hold(""))
	must(c.t, c.stages[0].ctl.Release())
	wantCommitted(c.t, <-asked, false)
	for _, gw := range c.gws {
		wantCommitted(c.t, settle(c.t, gw, ticketTool, args, meta), false)
	}
	c.want(1)
}

// The host dies with the effect made and nobody told. Another takes over: the
// query finds the ticket.
func dieAfterEffect(c *crew) {
	args, meta := order(1)
	must(c.t, c.stages[0].ctl.Hold(ticketTool))
	lost := askInBackground(c.t, c.gws[0], ticketTool, args, meta)
	c.stages[0].wait(relay.Held, ticketTool, 1)
	c.hosts[0].kill()
	<-lost
	m := settle(c.t, c.gws[1], ticketTool, args, meta)
	wantCommitted(c.t, m, true)
	wantReplay(c.t, c.gws[2], ticketTool, args, meta, m)
	c.want(1)
}

// The host dies and the query finds nothing. That the attempt has ended cannot be
// known elsewhere, so it is not made again: a person is asked.
func dieBeforeEffect(c *crew) {
	args, meta := order(1)
	must(c.t, c.stages[0].ctl.Drop(ticketTool))
	lost := askInBackground(c.t, c.gws[0], ticketTool, args, meta)
	c.stages[0].wait(relay.Dropped, ticketTool, 1)
	c.hosts[0].kill()
	<-lost
	for i := 1; ; i = 3 - i {
		m, err := c.gws[i].Call(deadline(c.t), ticketTool, args, meta)
		must(c.t, err)
		switch code := m.Tool().MetaString("mcp-idem/code"); code {
		case "OPERATION_IN_PROGRESS", "OUTCOME_UNKNOWN":
			continue
		case "NEEDS_REVIEW":
		default:
			c.t.Fatalf("%s", m.Raw)
		}
		break
	}
	c.want(0)
	if n := c.forwarded(); n != 0 {
		c.t.Errorf("%d calls went on", n)
	}
}

// Only the gateway dies: the next one on its host can tell, the others cannot.
// They wait for it, and the order is placed once.
func dieOnLivingHost(c *crew) {
	args, meta := order(1)
	must(c.t, c.stages[0].ctl.Drop(ticketTool))
	lost := askInBackground(c.t, c.gws[0], ticketTool, args, meta)
	c.stages[0].wait(relay.Dropped, ticketTool, 1)
	must(c.t, syscall.Kill(c.hosts[0].pid(c.stages[0].config), syscall.SIGKILL))
	<-lost
	must(c.t, c.stages[0].ctl.Drop(""))
	c.gws[0] = c.stages[0].start()
	m := settle(c.t, c.gws[1], ticketTool, args, meta)
	wantCommitted(c.t, m, false)
	wantReplay(c.t, c.gws[0], ticketTool, args, meta, m)
	c.want(1)
}

// The host hangs past its lease after the effect, and another one finds that. It
// comes back with its own answer: that confirms.
func hangAfterEffect(c *crew) {
	args, meta := order(1)
	must(c.t, c.stages[0].ctl.Hold(ticketTool))
	late := askInBackground(c.t, c.gws[0], ticketTool, args, meta)
	c.stages[0].wait(relay.Held, ticketTool, 1)
	c.hosts[0].freeze()
	m := settle(c.t, c.gws[1], ticketTool, args, meta)
	wantCommitted(c.t, m, true)
	must(c.t, c.stages[0].ctl.Hold(""))
	must(c.t, c.stages[0].ctl.Release())
	c.hosts[0].thaw()
	<-late
	c.stages[0].wait(relay.Returned, ticketTool, 1)
	time.Sleep(300 * time.Millisecond) // the report is recorded
	for _, gw := range c.gws {
		wantReplay(c.t, gw, ticketTool, args, meta, m)
	}
	c.want(1)
}

// The host hangs past its lease before its request is read. Nobody else sends
// one, and when it wakes its own outcome is the outcome.
func hangBeforeEffect(c *crew) {
	args, meta := order(1)
	must(c.t, syscall.Kill(c.hosts[0].pid("__tickets"), syscall.SIGSTOP))
	late := askInBackground(c.t, c.gws[0], ticketTool, args, meta)
	c.stages[0].wait(relay.Forwarded, ticketTool, 1)
	c.hosts[0].freeze()
	unknown := 0
	for end := time.Now().Add(2 * hostsLease); time.Now().Before(end); {
		m, err := c.gws[1].Call(deadline(c.t), ticketTool, args, meta)
		must(c.t, err)
		switch code := m.Tool().MetaString("mcp-idem/code"); code {
		case "OPERATION_IN_PROGRESS":
		case "OUTCOME_UNKNOWN":
			unknown++
		default:
			c.t.Fatalf("%s", m.Raw)
		}
	}
	if unknown == 0 {
		c.t.Error("the lease never ended")
	}
	c.want(0)
	c.hosts[0].thaw()
	<-late
	m := settle(c.t, c.gws[1], ticketTool, args, meta)
	wantCommitted(c.t, m, m.Tool().MetaBool("mcp-idem/reconciled"))
	wantReplay(c.t, c.gws[2], ticketTool, args, meta, m)
	c.want(1)
	if n := c.forwarded(); n != 1 {
		c.t.Errorf("%d calls", n)
	}
}
