package idem_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// The rows of cases from practice that the protocol alone decides.

func TestCase25AbortAfterDispatchIsNotFailed(t *testing.T) {
	timed(t, "", func(t *testing.T, h *house) {
		h.acts(slowly(time.Minute))
		a := h.leave(h.guard(), step("s1"), time.Second)
		h.wantState(a.Op, idem.StateStarted)
		time.Sleep(2 * time.Minute)
		h.wantState(a.Op, idem.StateCommitted)
		h.wantEffects(1)
	})
	timed(t, "the abort reaches the upstream", func(t *testing.T, h *house) {
		h.acts(ambiguous(true))
		a := h.ask(h.guard(), step("s1"))
		if r := h.record(a.Op); r.State == idem.StateFailedFinal || !r.MayHaveApplied() {
			t.Errorf("state %s", r.State)
		}
	})
}

func TestCase47KeyIsTheSameASecondLater(t *testing.T) {
	timed(t, "", func(t *testing.T, h *house) {
		g := h.guard()
		a := h.ask(g, step("s1"))
		time.Sleep(time.Second)
		h.kill()
		b := h.ask(h.guard(), step("s1"))
		if a.Op != b.Op || a.Op.String() != h.world.keys[0] {
			t.Errorf("%s, then %s; sent %v", a.Op, b.Op, h.world.keys)
		}
		h.wantEffects(1)
	})
}

func TestCase65NoSweeperLicensesASecondRun(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 48 * time.Hour, 721 * time.Hour, 10000 * time.Hour} {
		timed(t, d.String(), func(t *testing.T, h *house) {
			h.reconcile(time.Second)
			op := h.crashed(step("s1"), true)
			time.Sleep(d)
			g := h.guard()
			wantResult(t, h.ask(g, step("s1")), `{"found":"T-1"}`, true)
			h.wantState(op, idem.StateCommitted)
			h.wantEffects(1)
			h.wantDispatches(1)
		})
		timed(t, d.String()+", nothing to ask", func(t *testing.T, h *house) {
			h.crashed(step("s1"), true)
			time.Sleep(d)
			wantCode(t, h.ask(h.guard(), step("s1")), idem.CodeNeedsReview)
			h.wantDispatches(1)
		})
	}
}

func TestCase67KilledBetweenClaimAndDispatch(t *testing.T) {
	timed(t, "a claim on disk is reconciled before it runs", func(t *testing.T, h *house) {
		h.reconcile(5 * time.Second)
		h.crashed(step("s1"), false)
		start := time.Now()
		h.rules.Wait = time.Minute
		wantResult(t, h.ask(h.guard(), step("s1")), first, false)
		if d := time.Since(start); d < 5*time.Second {
			t.Errorf("it ran again after %s, before settle", d)
		}
		h.wantEffects(1)
	})
	timed(t, "PLANNED may run", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassInterim, Result: []byte("?"), Kind: idem.ResultValue}), applies)
		h.ask(h.guard(), step("s1"))
		h.kill()
		wantResult(t, h.ask(h.guard(), step("s1")), first, false)
		h.wantEffects(1)
	})
}

func TestCase70ExpiredSaysSo(t *testing.T) {
	timed(t, "", func(t *testing.T, h *house) {
		g := h.guard()
		h.ask(g, step("s1"))
		h.passes(g, h.rules.Retention+time.Hour)
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeExpired)
		other := step("s1")
		other.Args = []byte(`{}`)
		wantCode(t, h.ask(g, other), idem.CodeMismatch) // the tombstone still binds the key
		h.wantEffects(1)
	})
}

func TestCase72NothingLiveIsEvicted(t *testing.T) {
	timed(t, "", func(t *testing.T, h *house) {
		g := h.guard()
		h.acts(ambiguous(true))
		unknown := h.ask(g, step("unknown"))
		for i := range 2000 {
			h.ask(g, step(fmt.Sprint(i)))
		}
		h.passes(g, h.rules.Retention-time.Hour)
		for i := range 2000 {
			if a := h.ask(g, step(fmt.Sprint(i))); a.Err != nil || !a.Replayed {
				t.Fatalf("step %d: replayed %v, err %v", i, a.Replayed, a.Err)
			}
		}
		h.wantState(unknown.Op, idem.StateNeedsReview)
		h.wantEffects(2001)
		if n := h.guard().Close(context.Background()); n != nil {
			t.Error(n)
		}
	})
}
