package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
)

// Processes are killed at random moments while a step is asked for; then it is
// settled. IDEM_TORTURE=10m makes it go on for so long; else a few rounds run.
func TestTortureKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	for _, l := range ledgers() {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			killAtRandomMoments(t, l)
		})
	}
}

func killAtRandomMoments(t *testing.T, l ledger) {
	st := ticketStageOn(t, l, mustBuild(t, gateway), map[string]any{"retry": map[string]any{"max_attempts": 20, "initial": "10ms", "max": "50ms"}})
	rounds, end := 4, time.Now()
	if s := os.Getenv("IDEM_TORTURE"); s != "" {
		d, err := time.ParseDuration(s)
		must(t, err)
		end = end.Add(d)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	for round := 1; round <= rounds || time.Now().Before(end); round++ {
		args := map[string]any{"order_id": fmt.Sprint(round), "title": "round"}
		meta := step("torture", fmt.Sprint(round))
		gw := st.start()
		for range 1 + rng.IntN(3) {
			asked := askInBackground(t, gw, ticketTool, args, meta)
			time.Sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond)
			v := []victim{killGateway, killUpstream, killBoth}[rng.IntN(3)]
			gw = st.kill(v, gw)
			if v != killUpstream {
				<-asked
			}
		}
		m := settle(t, gw, ticketTool, args, meta)
		all, err := demo.ReadTickets(st.dir)
		must(t, err)
		if len(all) != round {
			t.Fatalf("round %d: %d tickets", round, len(all))
		}
		if id := m.Tool().MetaString("mcp-idem/external_id"); id != all[round-1].ID {
			t.Fatalf("round %d: the answer names %q, the ticket is %s", round, id, all[round-1].ID)
		}
		gw.Close(3 * time.Second)
	}
}
