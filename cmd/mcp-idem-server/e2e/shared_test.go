package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// Two clients each start a gateway of their own on the same file: one step is
// one effect, whoever asks.
func TestTwoGatewaysOnOneFile(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), nil)
	gateways := []*rawmcp.Client{st.start(), st.start()}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { <-askInBackground(t, gateways[i%2], ticketTool, ticketArgs, ticketStep) })
	}
	wg.Wait()
	for _, gw := range gateways {
		wantTicket(t, st, settle(t, gw, ticketTool, ticketArgs, ticketStep))
	}
}

// The gateway that holds the file is killed: the other one takes over within
// moments, and settles what the first had under way.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), nil)
	holder, other := st.start(), st.start()
	must(t, st.ctl.Hold(ticketTool))
	asked := askInBackground(t, holder, ticketTool, ticketArgs, ticketStep)
	st.wait(relay.Held, ticketTool, 1)
	holder.Kill()
	<-asked
	must(t, st.ctl.Hold(""))
	begun := time.Now()
	settle(t, other, ticketTool, map[string]any{"order_id": "18", "title": "another"}, step("order-18", "open-ticket"))
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("the other one went on after %s", d)
	}
	settle(t, other, ticketTool, ticketArgs, ticketStep)
	wantTickets(t, st, 2)
}

// The gateway that holds the file is stopped: nobody else may write the file, and
// the other gateway sends nothing and says why, soon. When the holder goes on or
// dies, so does the other.
func TestHolderIsStopped(t *testing.T) {
	t.Parallel()
	for _, end := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			st := ticketStage(t, mustBuild(t, gateway), nil)
			holder, other := st.start(), st.start()
			halt(t, holder)
			for range 2 {
				var wg sync.WaitGroup
				begun := time.Now()
				for i := range 12 {
					args, meta := ticketArgs, ticketStep
					if i > 0 {
						args, meta = map[string]any{"order_id": fmt.Sprint("other-", i), "title": "x"}, step("others", fmt.Sprint(i))
					}
					wg.Go(func() {
						m := <-askInBackground(t, other, ticketTool, args, meta)
						if code := m.Tool().MetaString("mcp-idem/code"); code != "LEDGER_UNAVAILABLE" {
							t.Errorf("while the holder is stopped: %s", m.Raw)
						}
					})
				}
				wg.Wait()
				if d := time.Since(begun); d > refusedIn {
					t.Errorf("refused after %s", d)
				}
			}
			wantTickets(t, st, 0)
			holder.Signal(end)
			wantTicket(t, st, settle(t, other, ticketTool, ticketArgs, ticketStep))
		})
	}
}

// halt stops a process, and returns when all its threads have.
func halt(t *testing.T, c *rawmcp.Client) {
	t.Helper()
	c.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.Pid()))
		must(t, err)
		runs := slices.ContainsFunc(threads, func(path string) bool {
			b, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(b, []byte(") T "))
		})
		if !runs {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d does not stop", c.Pid())
		}
	}
}

// refusedIn is the two seconds that a holder is waited for, and what a busy machine
// takes.
const refusedIn = 3 * time.Second

// The holder is stopped while the other gateway's calls are on their way: whatever
// stage they are in, nothing is lost, nothing happens twice, and of what was not
// sent nobody is called, although there is nobody to ask.
func TestHolderIsStoppedAmidCalls(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("stopping processes is not for -short")
	}
	dir := t.TempDir()
	set := ticketSetting(t, nil, mustBuild(t, gateway), dir, map[string]any{"reconcile": nil, "retry": map[string]any{"max_attempts": 20, "initial": "10ms", "max": "50ms"}})
	set.lease = "30s" // else the holder, when it goes on, takes the calls for lost
	st := newStage(t, set)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	holder, other := st.start(), st.start()
	const calls = 8
	for round := range 3 {
		var asked []<-chan rawmcp.Message
		ask := func(i int) (map[string]any, map[string]any) {
			return map[string]any{"order_id": fmt.Sprint(round, "-", i), "title": "round"}, step("amid", fmt.Sprint(round, "-", i))
		}
		for i := range calls {
			args, meta := ask(i)
			asked = append(asked, askInBackground(t, other, ticketTool, args, meta))
		}
		time.Sleep(time.Duration(rng.IntN(15_000)) * time.Microsecond)
		holder.Signal(syscall.SIGSTOP)
		for _, a := range asked {
			<-a
		}
		holder.Signal(syscall.SIGCONT)
		for i := range calls {
			args, meta := ask(i)
			if m := settle(t, other, ticketTool, args, meta); m.Tool().MetaString("mcp-idem/state") != "COMMITTED" {
				t.Errorf("round %d, call %d: %s", round, i, m.Raw)
			}
		}
		wantTickets(t, st, (round+1)*calls)
	}
}

// Two gateways on one file are killed and stopped at random moments while both
// are asked for the same steps.
func TestTortureTwoGateways(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), map[string]any{"retry": map[string]any{"max_attempts": 20, "initial": "10ms", "max": "50ms"}})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	pair := []*rawmcp.Client{st.start(), st.start()}
	for round := 1; round <= 4; round++ {
		args := map[string]any{"order_id": fmt.Sprint(round), "title": "round"}
		meta := step("torture", fmt.Sprint(round))
		for range 1 + rng.IntN(3) {
			asked := []<-chan rawmcp.Message{askInBackground(t, pair[0], ticketTool, args, meta), askInBackground(t, pair[1], ticketTool, args, meta)}
			time.Sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond)
			v := rng.IntN(2)
			if rng.IntN(3) == 0 {
				pair[v].Signal(syscall.SIGSTOP)
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				pair[v].Signal(syscall.SIGCONT)
			} else {
				pair[v].Kill()
				<-asked[v]
				pair[v] = st.start()
			}
			<-asked[1-v]
		}
		settle(t, pair[rng.IntN(2)], ticketTool, args, meta)
		wantTickets(t, st, round)
	}
}

func wantTickets(t *testing.T, st *stage, want int) {
	t.Helper()
	all, err := demo.ReadTickets(st.dir)
	must(t, err)
	if len(all) != want {
		t.Fatalf("%d tickets, want %d: %+v", len(all), want, all)
	}
}
