package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// byOrder makes the order the business key.
func (h *house) byOrder() {
	h.rules.Key = func(args []byte) (string, error) {
		var a struct{ Order *string }
		if err := json.Unmarshal(args, &a); err != nil || a.Order == nil || *a.Order == "" {
			return "", errors.New("the policy's key .order is empty")
		}
		return *a.Order, nil
	}
}

func with(args string) idem.Ask {
	a := step("")
	a.Args = []byte(args)
	return a
}

func TestBusinessKey(t *testing.T) {
	timed(t, "the same order, whoever asks and in what words", func(t *testing.T, h *house) {
		h.byOrder()
		h.rules.Bind = []idem.Path{{"order"}, {"price"}}
		g := h.guard()
		h.ask(g, with(`{"order":"1","price":2,"note":"a"}`))
		a := with(`{"note":"b","price":2.0,"order":"1"}`)
		a.Task, a.Step, a.HostKey = "t9", "s9", "h9"
		wantResult(t, h.ask(g, a), first, true)
		wantCode(t, h.ask(g, with(`{"order":"1","price":3}`)), idem.CodeMismatch)
		h.wantDispatches(1)
	})
	timed(t, "without bind all but ignore must be equal", func(t *testing.T, h *house) {
		h.byOrder()
		h.rules.Ignore = []idem.Path{{"at"}}
		g := h.guard()
		h.ask(g, with(`{"order":"1","at":1}`))
		wantResult(t, h.ask(g, with(`{"order":"1","at":2}`)), first, true)
		wantCode(t, h.ask(g, with(`{"order":"1","at":1,"x":1}`)), idem.CodeMismatch)
	})
	for _, bad := range []string{`{}`, `{"order":null}`, `{"order":""}`, `{"order":7}`, `{"order":"1","order":"1"}`} {
		timed(t, "no key in "+bad, func(t *testing.T, h *house) {
			h.byOrder()
			wantCode(t, h.ask(h.guard(), with(bad)), idem.CodeInvalidArguments)
			h.wantDispatches(0)
		})
	}
}

func TestGenerations(t *testing.T) {
	const bad, good = `{"order":"1","priority":"bad"}`, `{"order":"1","priority":"good"}`
	tests := []struct {
		name string
		ends idem.Outcome
		verb string // of an operator
		want bool   // other arguments begin a generation
	}{
		{name: "proven", ends: idem.Outcome{Class: idem.ClassRejected, Result: []byte("no"), Kind: idem.ResultError}, want: true},
		{name: "claimed only", ends: idem.Outcome{Class: idem.ClassReported, Result: []byte("no"), Kind: idem.ResultValue}},
		{name: "unknown", ends: idem.Outcome{Class: idem.ClassAmbiguous}},
		{name: "applied", ends: answered("T-9")},
		{name: "unknown, then granted", ends: idem.Outcome{Class: idem.ClassAmbiguous}, verb: idem.VerbGrantRetry, want: true},
		{name: "unknown, then not applied", ends: idem.Outcome{Class: idem.ClassAmbiguous}, verb: idem.VerbNotApplied, want: true},
		{name: "unknown, then compensated", ends: idem.Outcome{Class: idem.ClassAmbiguous}, verb: idem.VerbCompensated},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.byOrder()
			h.acts(ends(tt.ends), applies)
			g := h.guard()
			a := h.ask(g, with(bad))
			if tt.verb != "" {
				h.decide(a.Op, tt.verb)
			}
			b := h.ask(g, with(good))
			if !tt.want {
				wantCode(t, b, idem.CodeMismatch)
				h.wantDispatches(1)
				return
			}
			wantResult(t, b, first, false)
			if b.Record.Generation != 2 || b.Op == a.Op {
				t.Errorf("generation %d, op %s after %s", b.Record.Generation, b.Op, a.Op)
			}
			wantResult(t, h.ask(g, with(good)), first, true)
			wantCode(t, h.ask(g, with(bad)), idem.CodeMismatch)
			if h.record(a.Op).Granted {
				t.Error("the grant was not used up")
			}
			h.wantDispatches(2)
		})
	}
	timed(t, "steps stay strict", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassRejected}), applies)
		g := h.guard()
		h.ask(g, step("s1"))
		other := step("s1")
		other.Args = []byte(good)
		wantCode(t, h.ask(g, other), idem.CodeMismatch)
	})
	timed(t, "a granted one after COMPENSATED is no duplicate", func(t *testing.T, h *house) {
		h.byOrder()
		g := h.guard()
		a := h.ask(g, with(good))
		h.decide(a.Op, idem.VerbCompensated)
		wantCode(t, h.ask(g, with(good)), idem.CodeCompensated)
		h.decide(a.Op, idem.VerbGrantRetry)
		wantResult(t, h.ask(g, with(good)), second, false)
		if r := h.wantState(a.Op, idem.StateCommitted); r.ExternalID != "T-2" || r.Duplicates != 0 {
			t.Errorf("external id %s, %d duplicates", r.ExternalID, r.Duplicates)
		}
		time.Sleep(time.Second)
		wantResult(t, h.ask(g, with(good)), second, true)
	})
}

// An ask that may claim the current generation and one whose other arguments may
// begin the next meet at the same moment.
func TestClaimAndNextGenerationRace(t *testing.T) {
	const same, changed = `{"order":"1","priority":"bad"}`, `{"order":"1","priority":"good"}`
	free := map[string]func(h *house, op idem.ID){
		"failure_ttl is over": func(h *house, _ idem.ID) { time.Sleep(h.rules.FailureTTL) },
		"granted":             func(h *house, op idem.ID) { h.decide(op, idem.VerbGrantRetry) },
	}
	for name, frees := range free {
		for _, order := range [][2]string{{same, changed}, {changed, same}} {
			timed(t, name+", first "+order[0], func(t *testing.T, h *house) {
				h.byOrder()
				h.acts(ends(idem.Outcome{Class: idem.ClassRejected, Result: []byte("no"), Kind: idem.ResultError}), slowly(10*time.Second))
				g := h.guard()
				frees(h, h.ask(g, with(same)).Op)
				hold, e := make(chan struct{}), h.effect()
				e.Prepare = func(context.Context) (idem.Site, error) { <-hold; return idem.Site{}, nil }
				var wg sync.WaitGroup
				var held, fast idem.Answer
				wg.Go(func() { held = g.Do(context.Background(), with(order[0]), e) })
				synctest.Wait() // it has decided, and not claimed
				wg.Go(func() { fast = h.ask(g, with(order[1])) })
				synctest.Wait()
				close(hold)
				wg.Wait()
				wantResult(t, fast, first, false)
				wantCode(t, held, idem.CodeMismatch)
				h.wantEffects(1)
				h.wantDispatches(2)
			})
		}
	}
}

func TestLateSuccessOfAnEarlierGeneration(t *testing.T) {
	const bad, good = `{"order":"1","priority":"bad"}`, `{"order":"1","priority":"good"}`
	tests := []struct {
		verb string
		why  idem.Reason
		dups uint32
	}{
		{idem.VerbGrantRetry, idem.ReasonDuplicate, 1},
		{idem.VerbNotApplied, idem.ReasonLateSuccess, 0}, // against a person's word
	}
	for _, tt := range tests {
		timed(t, tt.verb, func(t *testing.T, h *house) {
			h.byOrder()
			h.rules.Timeout = time.Second
			h.acts(slowly(time.Hour), applies)
			g := h.guard()
			a := h.ask(g, with(bad))
			wantCode(t, a, idem.CodeNeedsReview)
			h.decide(a.Op, tt.verb)
			b := h.ask(g, with(good))
			wantResult(t, b, second, false)
			time.Sleep(2 * time.Hour)
			if r := h.wantState(a.Op, idem.StateNeedsReview); r.Reason != tt.why || r.Duplicates != tt.dups || r.ExternalID != "T-1" {
				t.Errorf("reason %s, %d duplicates, external id %q", r.Reason, r.Duplicates, r.ExternalID)
			}
			h.wantState(b.Op, idem.StateCommitted)
			wantResult(t, h.ask(g, with(good)), second, true)
			h.wantDispatches(2)
		})
	}
	timed(t, "the latest one's is no duplicate", func(t *testing.T, h *house) {
		h.byOrder()
		h.rules.Timeout = time.Second
		h.acts(ends(idem.Outcome{Class: idem.ClassRejected}), slowly(time.Hour))
		g := h.guard()
		h.ask(g, with(bad))
		a := h.ask(g, with(good))
		wantCode(t, a, idem.CodeNeedsReview)
		time.Sleep(2 * time.Hour)
		if r := h.wantState(a.Op, idem.StateCommitted); r.Generation != 2 {
			t.Errorf("generation %d", r.Generation)
		}
	})
	timed(t, "the only one's is no duplicate", func(t *testing.T, h *house) {
		h.byOrder()
		h.rules.Timeout = time.Second
		h.acts(slowly(time.Hour))
		a := h.ask(h.guard(), with(bad))
		h.decide(a.Op, idem.VerbGrantRetry)
		time.Sleep(2 * time.Hour)
		h.wantState(a.Op, idem.StateCommitted)
	})
}
