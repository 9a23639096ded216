package idem_test

import (
	"context"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func TestTimeoutThenLateSuccess(t *testing.T) {
	for _, asked := range []bool{true, false} {
		timed(t, map[bool]string{true: "with a query", false: "with nothing to ask"}[asked], func(t *testing.T, h *house) {
			if asked {
				h.reconcile(time.Hour)
				h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{}, nil } // not visible yet
			}
			h.rules.Timeout = 3 * time.Second
			h.acts(slowly(30 * time.Second))
			g := h.guard()
			code, state, why := idem.CodeNeedsReview, idem.StateNeedsReview, idem.ReasonNothingToAsk // at once
			if asked {
				code, state, why = idem.CodeUnknown, idem.StateUnknown, idem.ReasonTimeout
			}
			start := time.Now()
			a := h.ask(g, step("s1"))
			wantCode(t, a, code)
			if r := h.wantState(a.Op, state); r.Reason != why {
				t.Errorf("reason %s", r.Reason)
			}
			if d := time.Since(start); d < 3*time.Second || d > 6*time.Second {
				t.Errorf("freed after %s", d)
			}
			wantCode(t, h.ask(g, step("s1")), code)
			if r := h.record(a.Op); !r.Attempts[0].MayApplied || r.Attempts[0].End != 0 {
				t.Errorf("the attempt is closed: %+v", r.Attempts[0])
			}
			time.Sleep(30 * time.Second)
			if r := h.wantState(a.Op, idem.StateCommitted); r.CommittedBy != 1 || r.Reconciled {
				t.Errorf("committed by %d, reconciled %v", r.CommittedBy, r.Reconciled)
			}
			wantResult(t, h.ask(g, step("s1")), first, true)
			h.wantEffects(1)
			h.wantDispatches(1)
		})
	}
	timed(t, "the starter that still waits gets its own answer", func(t *testing.T, h *house) {
		h.reconcile(time.Hour)
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{}, nil }
		h.rules.Timeout = time.Second
		h.acts(slowly(2 * time.Second))
		wantResult(t, h.ask(h.guard(), step("s1")), first, false)
	})
	timed(t, "an attempt that gives up its asker, twice", func(t *testing.T, h *house) {
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome {
			id := w.apply(d)
			d.Free()
			d.Free()
			time.Sleep(time.Minute)
			return answered(id)
		})
		g := h.guard()
		wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
		time.Sleep(2 * time.Minute)
		wantResult(t, h.ask(g, step("s1")), first, true)
		h.wantDispatches(1)
	})
	for name, free := range map[string]func(idem.Dispatch){
		"given up before the timeout": func(d idem.Dispatch) { d.Free(); time.Sleep(10 * time.Second) },
		"given up after the timeout":  func(d idem.Dispatch) { time.Sleep(10 * time.Second); d.Free() },
	} {
		timed(t, name, func(t *testing.T, h *house) {
			h.rules.Timeout = 3 * time.Second
			h.acts(func(w *world, d idem.Dispatch) idem.Outcome { id := w.apply(d); free(d); return answered(id) })
			g := h.guard()
			wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
			time.Sleep(time.Minute)
			wantResult(t, h.ask(g, step("s1")), first, true)
			h.wantDispatches(1)
		})
	}
	timed(t, "the caller is freed though the ledger cannot be written", func(t *testing.T, h *house) {
		h.rules.Timeout = time.Second
		h.acts(slowly(time.Minute))
		g := h.guard()
		time.AfterFunc(500*time.Millisecond, func() { h.last.fail(errDisk) })
		start := time.Now()
		h.ask(g, step("s1"))
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("freed after %s", d)
		}
		h.last.fail(nil)
		time.Sleep(2 * time.Minute)
		wantResult(t, h.ask(g, step("s1")), first, true)
	})
}

func TestLeaving(t *testing.T) {
	timed(t, "a cancelled caller leaves its attempt behind, and it is recorded", func(t *testing.T, h *house) {
		h.acts(slowly(10 * time.Second))
		g := h.guard()
		a := h.leave(g, step("s1"), time.Second)
		wantCode(t, a, idem.CodeInProgress)
		h.wantState(a.Op, idem.StateStarted)
		time.Sleep(10 * time.Second)
		h.wantState(a.Op, idem.StateCommitted)
		wantResult(t, h.ask(g, step("s1")), first, true)
	})
	timed(t, "before the claim nothing is dispatched", func(t *testing.T, h *house) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		h.guard().Do(ctx, step("s1"), h.effect())
		h.wantDispatches(0)
	})
	timed(t, "close waits for what is under way", func(t *testing.T, h *house) {
		h.acts(slowly(5 * time.Second))
		g := h.guard()
		a := h.leave(g, step("s1"), time.Second)
		if err := g.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		h.wantState(a.Op, idem.StateCommitted)
	})
}

func TestWaitBounds(t *testing.T) {
	timed(t, "a joiner, not the starter", func(t *testing.T, h *house) {
		h.acts(slowly(20 * time.Second))
		g := h.guard()
		go func() {
			time.Sleep(time.Second)
			start := time.Now()
			wantCode(t, h.ask(g, step("s1")), idem.CodeInProgress)
			if d := time.Since(start); d != h.rules.Wait {
				t.Errorf("a joiner waited %s", d)
			}
		}()
		wantResult(t, h.ask(g, step("s1")), first, false)
	})
	timed(t, "all waits of an ask together", func(t *testing.T, h *house) {
		h.rules.Retry.MaxAttempts = 100
		h.rules.Retry.MaxElapsed = time.Hour
		h.rules.Retry.Delay = func(int, time.Duration) time.Duration { return 1500 * time.Millisecond }
		h.acts(func(*world, idem.Dispatch) idem.Outcome {
			time.Sleep(time.Minute)
			return idem.Outcome{Class: idem.ClassNotSent}
		})
		wantCode(t, h.ask(h.guard(), step("s1")), idem.CodeRetryScheduled)
		h.wantDispatches(2) // 1.5 s of 2 s are used, the next wait does not fit
	})
}
