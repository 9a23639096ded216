package idem_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// reports says that it failed, and applies or not.
func reports(apply bool) func(*world, idem.Dispatch) idem.Outcome {
	return func(w *world, d idem.Dispatch) idem.Outcome {
		if apply {
			w.apply(d)
		}
		return idem.Outcome{Class: idem.ClassReported, Result: []byte("isError"), Kind: idem.ResultValue, Text: "failed"}
	}
}

func TestReported(t *testing.T) {
	timed(t, "found: it is done", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(reports(true))
		g := h.guard()
		wantResult(t, h.ask(g, step("s1")), `{"found":"T-1"}`, true)
		h.wantDispatches(1)
	})
	timed(t, "found without a result: the tool's failure is not replayed", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{IDs: []string{"T-1"}}, nil }
		h.acts(reports(true))
		a := h.ask(h.guard(), step("s1"))
		if r := h.wantState(a.Op, idem.StateCommitted); len(r.Result) != 0 || len(a.Result) != 0 {
			t.Errorf("result %s", r.Result)
		}
	})
	timed(t, "absent: its own answer now, proven after settle", func(t *testing.T, h *house) {
		h.reconcile(5 * time.Second)
		h.acts(reports(false))
		g := h.guard()
		h.recovers(g, "tickets")
		start := time.Now()
		a := h.ask(g, step("s1"))
		wantResult(t, a, "isError", false)
		if d := time.Since(start); d > time.Second {
			t.Errorf("the asker waited %s", d)
		}
		if r := h.wantState(a.Op, idem.StateFailedFinal); r.Absence != idem.AbsenceClaimed {
			t.Errorf("absence %s", r.Absence)
		}
		time.Sleep(7 * time.Second)
		if r := h.wantState(a.Op, idem.StateFailedFinal); r.Absence != idem.AbsenceProven || r.MayHaveApplied() {
			t.Errorf("absence %s after settle", r.Absence)
		}
		wantResult(t, h.ask(g, step("s1")), "isError", true)
		h.wantDispatches(1)
	})
	timed(t, "absent, and then the truth comes late", func(t *testing.T, h *house) {
		h.reconcile(5 * time.Second)
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome {
			time.AfterFunc(3*time.Second, func() { w.apply(d) })
			return reports(false)(w, d)
		})
		g := h.guard()
		h.recovers(g, "tickets")
		a := h.ask(g, step("s1"))
		wantResult(t, a, "isError", false)
		time.Sleep(7 * time.Second)
		h.wantState(a.Op, idem.StateCommitted)
		wantResult(t, h.ask(g, step("s1")), `{"found":"T-1"}`, true)
		h.wantEffects(1)
	})
	timed(t, "nothing to ask: claimed, never retried", func(t *testing.T, h *house) {
		h.acts(reports(false), applies)
		g := h.guard()
		a := h.ask(g, step("s1"))
		time.Sleep(24 * time.Hour)
		wantResult(t, h.ask(g, step("s1")), "isError", true)
		if r := h.record(a.Op); r.Absence != idem.AbsenceClaimed {
			t.Errorf("absence %s", r.Absence)
		}
		h.wantDispatches(1)
	})
}

func TestQueries(t *testing.T) {
	timed(t, "exists at first is reconciled", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome { w.apply(d); return idem.Outcome{Class: idem.ClassExists} })
		wantResult(t, h.ask(h.guard(), step("s1")), `{"found":"T-1"}`, true)
	})
	timed(t, "several matches need a person", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome {
			w.apply(d)
			w.apply(d)
			return idem.Outcome{Class: idem.ClassAmbiguous}
		})
		a := h.ask(h.guard(), step("s1"))
		wantCode(t, a, idem.CodeNeedsReview)
		if r := h.record(a.Op); r.Reason != idem.ReasonSeveralMatches || r.Duplicates != 1 {
			t.Errorf("reason %s, %d duplicates", r.Reason, r.Duplicates)
		}
	})
	timed(t, "one id twice is one match", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{IDs: []string{"A", "A"}}, nil }
		h.acts(ambiguous(true))
		h.wantState(h.ask(h.guard(), step("s1")).Op, idem.StateCommitted)
	})
	timed(t, "an attempt whose end is not known is never proven absent", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous}), applies)
		g := h.guard()
		h.recovers(g, "tickets")
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeUnknown)
		time.Sleep(2 * time.Minute)
		if r := h.wantState(a.Op, idem.StateNeedsReview); r.Reason != idem.ReasonGaveUp {
			t.Errorf("reason %s", r.Reason)
		}
		h.wantDispatches(1)
	})
	timed(t, "given up, it is asked slowly, and may be settled yet", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		var up atomic.Bool
		h.world.find = func(w *world, _ idem.Lookup) (idem.Finding, error) {
			if !up.Load() {
				return idem.Finding{}, errDown
			}
			return idem.Finding{IDs: []string{"T-1"}, Result: []byte("found late")}, nil
		}
		h.acts(ambiguous(true))
		g := h.guard()
		h.recovers(g, "tickets")
		a := h.ask(g, step("s1"))
		time.Sleep(2 * time.Minute)
		h.wantState(a.Op, idem.StateNeedsReview)
		wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
		before := h.record(a.Op).Reconcile.Count
		time.Sleep(10 * time.Minute)
		if n := h.record(a.Op).Reconcile.Count - before; n < 8 || n > 11 {
			t.Errorf("asked %d times in 10 minutes, want once a minute", n)
		}
		up.Store(true)
		time.Sleep(2 * time.Minute)
		wantResult(t, h.ask(g, step("s1")), "found late", true)
		h.wantDispatches(1)
	})
	timed(t, "give_up begins anew with another attempt", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.rules.Query.Every, h.rules.Query.GiveUp, h.rules.FailureTTL = 10*time.Second, 10*time.Minute, time.Minute
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous, Ended: idem.EndByAnswer}), ends(idem.Outcome{Class: idem.ClassRejected}), ends(idem.Outcome{Class: idem.ClassAmbiguous}))
		g := h.guard()
		h.recovers(g, "tickets")
		wantCode(t, h.ask(g, step("s1")), idem.CodeFailed)
		time.Sleep(20 * time.Minute)
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeUnknown)
		time.Sleep(9 * time.Minute)
		h.wantState(a.Op, idem.StateUnknown)
		time.Sleep(2 * time.Minute)
		h.wantState(a.Op, idem.StateNeedsReview)
	})
	timed(t, "a reconciler that panics could not be asked", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { panic("boom") }
		h.acts(ambiguous(false))
		wantCode(t, h.ask(h.guard(), step("s1")), idem.CodeUnknown)
		h.wantDispatches(1)
	})
}

// rows answers a query by content: it cannot tell equal rows apart.
func rows(w *world, _ idem.Lookup) (idem.Finding, error) {
	var f idem.Finding
	for i := range w.count() {
		f.IDs = append(f.IDs, "T-"+strconv.Itoa(i+1))
	}
	return f, nil
}

func TestBaseline(t *testing.T) {
	insert := func(h *house) *idem.Guard {
		h.reconcile(time.Second)
		h.rules.Query.Baseline = true
		h.world.find = rows
		return h.guard()
	}
	timed(t, "a third identical insert is not settled by the first two", func(t *testing.T, h *house) {
		g := insert(h)
		h.ask(g, step("s1"))
		h.ask(g, step("s2"))
		h.acts(ambiguous(false), applies)
		a := h.ask(g, step("s3"))
		wantResult(t, a, `{"id":"T-3"}`, false)
		h.wantEffects(3)
		h.wantDispatches(4)
	})
	timed(t, "and is settled by its own", func(t *testing.T, h *house) {
		g := insert(h)
		h.ask(g, step("s1"))
		h.acts(ambiguous(true))
		a := h.ask(g, step("s2"))
		if r := h.wantState(a.Op, idem.StateCommitted); r.ExternalID != "T-2" {
			t.Errorf("external id %s", r.ExternalID)
		}
		h.wantEffects(2)
	})
	for name, act := range map[string]func(*world, idem.Dispatch) idem.Outcome{
		"success": applies, "proven failure": ends(idem.Outcome{Class: idem.ClassRejected}), "query": ambiguous(true),
	} {
		timed(t, "it is dropped once it has served: "+name, func(t *testing.T, h *house) {
			g := insert(h)
			h.ask(g, step("s1"))
			h.acts(act)
			if r := h.record(h.ask(g, step("s2")).Op); !r.State.Final() || r.Reconcile.HasBase || r.Reconcile.Baseline != nil {
				t.Errorf("%s keeps %v", r.State, r.Reconcile.Baseline)
			}
		})
	}
	timed(t, "no baseline, no dispatch", func(t *testing.T, h *house) {
		g := insert(h)
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{}, errDown }
		wantCode(t, h.ask(g, step("s1")), idem.CodeFailed)
		h.wantDispatches(0)
		if n := len(h.list(idem.Query{})); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
	timed(t, "two new ones", func(t *testing.T, h *house) {
		g := insert(h)
		h.ask(g, step("s1"))
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome { w.apply(d); return ambiguous(true)(w, d) })
		a := h.ask(g, step("s2"))
		wantCode(t, a, idem.CodeNeedsReview)
		if r := h.record(a.Op); r.Reason != idem.ReasonSeveralMatches {
			t.Errorf("reason %s", r.Reason)
		}
	})
	timed(t, "of a granted attempt does not hide what the one before did", func(t *testing.T, h *house) {
		g := insert(h)
		var sees atomic.Bool
		h.world.find = func(w *world, l idem.Lookup) (idem.Finding, error) {
			if !sees.Load() && l.Record.Last > 0 {
				return idem.Finding{}, errDown
			}
			return rows(w, l)
		}
		h.acts(ambiguous(true))
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeUnknown)
		h.decide(a.Op, idem.VerbGrantRetry)
		sees.Store(true)
		h.acts(ambiguous(false))
		b := h.ask(g, step("s1"))
		if r := h.wantState(b.Op, idem.StateCommitted); r.ExternalID != "T-1" {
			t.Errorf("external id %s", r.ExternalID)
		}
		h.wantEffects(1)
		h.wantDispatches(2)
	})
}
