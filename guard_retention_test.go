package idem_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// passes lets time pass, and the recoverer see to what is due then.
func (h *house) passes(g *idem.Guard, d time.Duration) {
	time.Sleep(d)
	stop := h.recovers(g, "tickets")
	time.Sleep(10 * time.Second)
	stop()
}

func TestTombstones(t *testing.T) {
	named := map[string]func(h *house) idem.Ask{
		"step":                   func(*house) idem.Ask { return step("s1") },
		"host key":               func(*house) idem.Ask { a := step(""); a.HostKey = "k"; return a },
		"generic key":            func(*house) idem.Ask { a := step(""); a.Generic = "k"; return a },
		"business key":           func(h *house) idem.Ask { h.byOrder(); return step("") },
		"undelivered occurrence": func(*house) idem.Ask { return occ("call-1") },
	}
	for name, ask := range named {
		timed(t, name, func(t *testing.T, h *house) {
			a := ask(h)
			g := h.guard()
			op := h.ask(g, a).Op
			h.passes(g, h.rules.Retention-time.Hour)
			wantResult(t, h.ask(g, a), first, true)
			h.passes(g, 2*time.Hour)
			wantCode(t, h.ask(g, a), idem.CodeExpired)
			if r := h.wantState(op, idem.StateCommitted); !r.Expired || r.Args != nil || r.Result != nil || r.Attempts != nil {
				t.Errorf("a fat tombstone: %+v", r)
			}
			h.passes(g, 1000*24*time.Hour)
			wantCode(t, h.ask(g, a), idem.CodeExpired)
			h.wantDispatches(1)
		})
	}
	timed(t, "of what nobody can mean again there is none", func(t *testing.T, h *house) {
		g := h.guard()
		a := occ()
		a.Task = ""
		h.ask(g, a)
		h.passes(g, h.rules.Retention+time.Hour)
		if n := len(h.list(idem.Query{})); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
	timed(t, "what is not settled never expires", func(t *testing.T, h *house) {
		h.acts(ambiguous(true))
		g := h.guard()
		op := h.ask(g, step("s1")).Op
		h.passes(g, 3*h.rules.Retention)
		h.wantState(op, idem.StateNeedsReview)
		wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
	})
	timed(t, "a report after expiry is told to the observer", func(t *testing.T, h *house) {
		h.rules.Timeout, h.rules.Lease = time.Second, 240*time.Hour
		h.acts(slowly(2 * h.rules.Retention))
		g := h.guard()
		op := h.leave(g, step("s1"), time.Minute).Op
		h.decide(op, idem.VerbCommitted)
		h.passes(g, h.rules.Retention+time.Hour)
		time.Sleep(2 * h.rules.Retention)
		if h.seen.count("late_report") != 1 {
			t.Errorf("late reports told: %d", h.seen.count("late_report"))
		}
		wantCode(t, h.ask(g, step("s1")), idem.CodeExpired)
	})
}

// TestPollingAgent: a thousand delivered occurrences leave a bounded number of
// rows, and the next one is still the next.
func TestPollingAgent(t *testing.T) {
	timed(t, "deleted, and counted on", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		var aliases []idem.Ref
		for i := range 1000 {
			for _, id := range h.call(g, on(c, occ("call-"+strconv.Itoa(i)))).Record.Aliases {
				aliases = append(aliases, idem.Ref{Kind: idem.KindAlias, ID: id})
			}
			if i%100 == 0 {
				time.Sleep(time.Minute)
			}
		}
		c.Heard()
		h.passes(g, h.rules.OccurrenceRetention+time.Hour)
		h.wantEffects(1000)
		if n := len(h.list(idem.Query{})); n != 0 {
			t.Errorf("%d operations are left", n)
		}
		for _, a := range aliases { // every row that the calls made
			s, err := h.store.Load(context.Background(), a)
			if err != nil || len(s.Rows) != 0 {
				t.Fatalf("alias row %v is left, err %v", a, err)
			}
		}
		a := h.call(g, on(c, occ()))
		if a.Err != nil || a.Replayed || a.Record.Occurrence != 1001 {
			t.Errorf("occurrence %d, replayed %v, err %v", a.Record.Occurrence, a.Replayed, a.Err)
		}
		s, err := h.store.Load(context.Background(), idem.Ref{Kind: idem.KindSlot, ID: a.Record.Slot})
		if err != nil {
			t.Fatal(err)
		}
		if slot, _ := s.Slot(a.Record.Slot); slot.Floor != 1000 || slot.N != 1001 {
			t.Errorf("slot %+v", slot)
		}
		a = h.call(g, inRun("r2", on(c, occ()))) // what is gone is not replayed; what is left is
		if a.Record.Occurrence != 1001 || !a.Replayed {
			t.Errorf("a new run met occurrence %d", a.Record.Occurrence)
		}
	})
	timed(t, "an old alias that a later call took over stays", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ("call_0")))
		c.Heard()
		h.passes(g, h.rules.OccurrenceRetention-time.Hour)
		h.call(g, on(c, occ("call_0")))
		c.Heard()
		h.passes(g, 2*time.Hour)
		wantResult(t, h.call(g, on(g.Conn(), occ("call_0"))), second, true)
	})
}
