package idem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func (h *house) operator() idem.Operator {
	return idem.Operator{Store: h.store, Policy: rules{all: h.rules}}
}

// decide is a person's word.
func (h *house) decide(op idem.ID, verb string) *idem.Record {
	h.t.Helper()
	r, err := h.operator().Decide(context.Background(), idem.Command{Op: op, Verb: verb, Reason: "looked"})
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func TestDecisions(t *testing.T) {
	review := func(h *house) (*idem.Guard, idem.ID) {
		h.acts(ambiguous(true), applies)
		g := h.guard()
		return g, h.ask(g, step("s1")).Op
	}
	ctx := context.Background()
	timed(t, "a reason is required", func(t *testing.T, h *house) {
		_, op := review(h)
		if _, err := h.operator().Decide(ctx, idem.Command{Op: op, Verb: idem.VerbCommitted}); err == nil {
			t.Error("decided without a reason")
		}
		h.wantState(op, idem.StateNeedsReview)
	})
	timed(t, "on the version that was seen", func(t *testing.T, h *house) {
		_, op := review(h)
		v := h.record(op).Version
		d := idem.Command{Op: op, Verb: idem.VerbCommitted, Reason: "r", Saw: v - 1}
		if _, err := h.operator().Decide(ctx, d); !errors.Is(err, idem.ErrStale) {
			t.Errorf("err %v, want ErrStale", err)
		}
		d.Saw = v
		if r, err := h.operator().Decide(ctx, d); err != nil || r.Decisions[0].Saw != v {
			t.Errorf("%v, err %v", r, err)
		}
	})
	timed(t, "a command decides once", func(t *testing.T, h *house) {
		_, op := review(h)
		d := idem.Command{ID: "c1", Op: op, Verb: idem.VerbCommitted, Reason: "r", ExternalID: "T-1", Result: []byte("person")}
		a, err := h.operator().Decide(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		d.Saw = a.Version - 1 // as it was when it was first sent
		if b, err := h.operator().Decide(ctx, d); err != nil || b.Version != a.Version || len(b.Decisions) != 1 {
			t.Errorf("again: %v, err %v", b, err)
		}
		d.Verb = idem.VerbNotApplied
		if _, err := h.operator().Decide(ctx, d); !errors.Is(err, idem.ErrCommandUsed) {
			t.Errorf("err %v, want ErrCommandUsed", err)
		}
	})
	timed(t, "committed: replays return what the person said", func(t *testing.T, h *house) {
		g, op := review(h)
		if _, err := h.operator().Decide(ctx, idem.Command{Op: op, Verb: idem.VerbCommitted, Reason: "r", Result: []byte("person")}); err != nil {
			t.Fatal(err)
		}
		wantResult(t, h.ask(g, step("s1")), "person", true)
		h.wantDispatches(1)
	})
	timed(t, "committed: what a failed attempt answered is not replayed", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassRejected, Result: []byte(`{"code":-32602}`), Kind: idem.ResultError}))
		g := h.guard()
		h.decide(h.ask(g, step("s1")).Op, idem.VerbCommitted)
		if a := h.ask(g, step("s1")); a.Err != nil || a.Result != nil || a.Kind != idem.ResultNone || a.Record.State != idem.StateCommitted {
			t.Errorf("result %s of kind %d, err %v", a.Result, a.Kind, a.Err)
		}
		h.wantDispatches(1)
	})
	timed(t, "not applied: nothing runs before failure_ttl", func(t *testing.T, h *house) {
		g, op := review(h)
		h.decide(op, idem.VerbNotApplied)
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeFailed)
		if r := h.record(op); r.Absence != idem.AbsenceProven || r.Attempts[0].Closed != idem.ProofOperator {
			t.Errorf("absence %s, closed %s", r.Absence, r.Attempts[0].Closed)
		}
		h.wantDispatches(1)
	})
	timed(t, "a grant is used once, and each is in the history", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous}))
		g := h.guard()
		op := h.ask(g, step("s1")).Op
		for n := 2; n <= 3; n++ {
			h.decide(op, idem.VerbGrantRetry)
			wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
			wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
			h.wantDispatches(n)
		}
		h.decide(op, idem.VerbCommitted)
		var verbs []string
		for _, d := range h.record(op).Decisions {
			verbs = append(verbs, d.Verb)
		}
		if len(verbs) != 3 || verbs[0] != idem.VerbGrantRetry || verbs[2] != idem.VerbCommitted {
			t.Errorf("history %v", verbs)
		}
	})
	timed(t, "a grant outlives the failure it waits behind", func(t *testing.T, h *house) {
		h.reconcile(5 * time.Second)
		h.acts(ends(idem.Outcome{Class: idem.ClassReported, Result: []byte("no"), Kind: idem.ResultValue}), applies)
		g := h.guard()
		op := h.ask(g, step("s1")).Op
		h.decide(op, idem.VerbGrantRetry)
		h.recovers(g, "tickets")
		time.Sleep(7 * time.Second)
		if r := h.wantState(op, idem.StateFailedFinal); r.Absence != idem.AbsenceProven {
			t.Errorf("absence %s", r.Absence)
		}
		wantResult(t, h.ask(g, step("s1")), first, false)
	})
	timed(t, "an occurrence that was granted is met again", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassRejected}), applies)
		g := h.guard()
		c := g.Conn()
		op := h.call(g, on(c, occ())).Op
		c.Heard()
		h.decide(op, idem.VerbGrantRetry)
		if a := h.call(g, on(c, occ())); a.Op != op {
			t.Errorf("the grant of %s was passed over by %s", op, a.Op)
		}
	})
	timed(t, "unknown operation, unknown verb", func(t *testing.T, h *house) {
		_, op := review(h)
		if _, err := h.operator().Decide(ctx, idem.Command{Verb: idem.VerbCommitted, Reason: "r"}); !errors.Is(err, idem.ErrNoOperation) {
			t.Errorf("err %v", err)
		}
		if _, err := h.operator().Decide(ctx, idem.Command{Op: op, Verb: "forget", Reason: "r"}); err == nil {
			t.Error("decided to forget")
		}
	})
	timed(t, "hurry: an operator asks for a query", func(t *testing.T, h *house) {
		_, op := review(h)
		if _, err := h.operator().Hurry(ctx, op); err == nil {
			t.Error("there is nothing to ask")
		}
		h.reconcile(0)
		if _, err := h.operator().Hurry(ctx, op); err != nil {
			t.Fatal(err)
		}
		g := h.guard()
		defer h.recovers(g, "tickets")()
		time.Sleep(5 * time.Second)
		wantResult(t, h.ask(g, step("s1")), `{"found":"T-1"}`, true)
	})
}
