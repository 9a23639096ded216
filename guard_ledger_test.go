package idem_test

import (
	"context"
	"strings"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func TestLedgerUnavailable(t *testing.T) {
	timed(t, "no claim, no dispatch", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.fail(errDisk)
		wantCode(t, h.ask(g, step("s1")), idem.CodeLedgerUnavailable)
		h.wantDispatches(0)
		h.last.fail(nil)
		wantResult(t, h.ask(g, step("s1")), first, false)
	})
	timed(t, "no look, no dispatch", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.loading = errDisk
		wantCode(t, h.ask(g, step("s1")), idem.CodeLedgerUnavailable)
		h.wantDispatches(0)
	})
}

func TestExecutedNotRecorded(t *testing.T) {
	noOutcome := func(c idem.Change, _ func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
		r := puts(c)
		return idem.Stamp{}, errDisk, r != nil && r.State != idem.StateStarted
	}
	heal := func(h *house) {
		h.last.mu.Lock()
		h.last.judge = nil
		h.last.mu.Unlock()
	}
	timed(t, "the asker gets the result, and it is recorded when the ledger heals", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.judge = noOutcome
		a := h.ask(g, step("s1"))
		wantResult(t, a, first, false)
		b := h.ask(g, step("s1"))
		if !a.NotRecorded || !b.NotRecorded || string(b.Result) != first {
			t.Errorf("not recorded: %v, %v with %s", a.NotRecorded, b.NotRecorded, b.Result)
		}
		h.wantState(a.Op, idem.StateStarted)
		time.Sleep(5 * time.Minute) // far past the lease
		heal(h)
		time.Sleep(3 * time.Second)
		c := h.ask(g, step("s1"))
		wantResult(t, c, first, true)
		if c.NotRecorded {
			t.Error("it is recorded now")
		}
		h.wantDispatches(1)
	})
	timed(t, "an effect without a result counts too", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.judge = noOutcome
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome {
			w.apply(d)
			return idem.Outcome{Class: idem.ClassSuccess}
		})
		if a := h.ask(g, step("s1")); a.Err != nil || !a.NotRecorded {
			t.Errorf("err %v, not recorded %v", a.Err, a.NotRecorded)
		}
	})
	timed(t, "an ambiguous answer is no result", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.judge = noOutcome
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous, Result: []byte("-32603"), Kind: idem.ResultError}))
		if a := h.ask(g, step("s1")); a.Err == nil || a.NotRecorded {
			t.Errorf("result %s", a.Result)
		}
	})
	timed(t, "the process dies before it can write: reconciliation", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		g := h.guard()
		h.last.judge = noOutcome
		h.ask(g, step("s1"))
		h.kill()
		wantResult(t, h.ask(h.guard(), step("s1")), `{"found":"T-1"}`, true)
		h.wantDispatches(1)
	})
}

func TestClaimOfUnknownFate(t *testing.T) {
	for _, applied := range []bool{true, false} {
		timed(t, map[bool]string{true: "applied", false: "not applied"}[applied], func(t *testing.T, h *house) {
			g := h.guard()
			cut := false
			h.last.judge = func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
				if cut || puts(c) == nil {
					return idem.Stamp{}, nil, false
				}
				cut = true
				if applied {
					if _, err := commit(); err != nil {
						t.Error(err)
					}
				}
				return idem.Stamp{}, idem.ErrCommitUnknown, true
			}
			wantResult(t, h.ask(g, step("s1")), first, false)
			h.wantDispatches(1)
		})
	}
	timed(t, "not applied, and another was faster", func(t *testing.T, h *house) {
		h.acts(slowly(10 * time.Second))
		g2 := h.guard()
		g1 := h.guard()
		way := h.last
		way.judge = func(idem.Change, func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
			way.mu.Lock()
			way.judge = nil
			way.mu.Unlock()
			h.leave(g2, step("s1"), time.Second)
			return idem.Stamp{}, idem.ErrCommitUnknown, true
		}
		wantCode(t, h.ask(g1, step("s1")), idem.CodeInProgress)
		time.Sleep(time.Minute)
		h.wantDispatches(1)
	})
	timed(t, "applied, and the ledger cannot be read at once", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.judge = func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
			h.last.mu.Lock()
			h.last.judge, h.last.loading = nil, errDisk
			h.last.mu.Unlock()
			time.AfterFunc(time.Second, func() {
				h.last.mu.Lock()
				h.last.loading = nil
				h.last.mu.Unlock()
			})
			_, _ = commit()
			return idem.Stamp{}, idem.ErrCommitUnknown, true
		}
		wantResult(t, h.ask(g, step("s1")), first, false)
		h.wantDispatches(1)
	})
	for name, c := range map[string]struct {
		applied bool
		late    time.Duration
		blind   time.Duration
	}{
		"applied, and the ledger cannot be read for long": {true, 0, 10 * time.Second},
		"applied, and not before the lease is over":       {true, 0, time.Minute},
		"applied after the ledger can be read":            {true, 16 * time.Second, 10 * time.Second},
		"not applied, and the ledger cannot be read":      {false, 0, 10 * time.Second},
	} {
		timed(t, name, func(t *testing.T, h *house) {
			other := h.guard()
			g := h.guard()
			way := h.last
			way.judge = func(change idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
				way.mu.Lock()
				way.judge, way.loading, way.broken = nil, errDisk, errDisk
				way.mu.Unlock()
				switch {
				case c.late > 0:
					go func() { time.Sleep(c.late); _, _ = commit() }()
				case c.applied:
					_, _ = commit()
				}
				return idem.Stamp{}, idem.ErrCommitUnknown, true
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = other.Recover(ctx, "default", []string{"tickets"}) }()
			begun := time.Now()
			wantCode(t, h.ask(g, step("s1")), idem.CodeLedgerUnavailable)
			if d := time.Since(begun); d > 3*time.Second {
				t.Errorf("refused after %s", d)
			}
			time.Sleep(c.blind)
			way.lose(nil)
			time.Sleep(5 * time.Second)
			h.wantDispatches(0)
			begun = time.Now()
			wantResult(t, h.ask(g, step("s1")), first, false)
			if d := time.Since(begun); d > 3*time.Second {
				t.Errorf("the next ask took %s", d)
			}
			h.wantDispatches(1)
		})
	}
	for _, applied := range []bool{true, false} {
		timed(t, "an outcome's", func(t *testing.T, h *house) {
			g := h.guard()
			cut := false
			h.last.judge = func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
				if r := puts(c); cut || r == nil || r.State != idem.StateCommitted {
					return idem.Stamp{}, nil, false
				}
				cut = true
				if applied {
					_, _ = commit()
				}
				return idem.Stamp{}, idem.ErrCommitUnknown, true
			}
			a := h.ask(g, step("s1"))
			wantResult(t, a, first, false)
			if r := h.wantState(a.Op, idem.StateCommitted); r.Duplicates != 0 {
				t.Error("its own report twice is no duplicate")
			}
		})
	}
}

// The ledger cannot be read any more when an ask looks for what its own attempt
// brought.
func TestLedgerGoesBlindAfterTheAttempt(t *testing.T) {
	blind := func(h *house, act func(*world, idem.Dispatch) idem.Outcome) (*idem.Guard, idem.Answer) {
		g, p := h.guard(), h.last
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome {
			defer func() {
				p.mu.Lock()
				p.loading = errDisk
				p.mu.Unlock()
			}()
			return act(w, d)
		})
		a := h.ask(g, step("s1"))
		return g, a
	}
	timed(t, "its success is the answer", func(t *testing.T, h *house) {
		_, a := blind(h, applies)
		wantResult(t, a, first, false)
		if r := h.wantState(a.Op, idem.StateCommitted); a.NotRecorded || a.Record == nil || a.Record.State != r.State {
			t.Errorf("not recorded: %v, record %s", a.NotRecorded, show(a.Record))
		}
	})
	timed(t, "its failure too", func(t *testing.T, h *house) {
		_, a := blind(h, ends(idem.Outcome{Class: idem.ClassRejected, Result: []byte("no"), Kind: idem.ResultError}))
		wantResult(t, a, "no", false)
		h.wantState(a.Op, idem.StateFailedFinal)
	})
	timed(t, "what is not known is not called unsent", func(t *testing.T, h *house) {
		g, a := blind(h, ambiguous(true))
		wantCode(t, a, idem.CodeUnknown)
		if a.Op == (idem.ID{}) || a.Record == nil || strings.Contains(a.Err.Text, "nothing was sent") {
			t.Errorf("op %s, text %q", a.Op, a.Err.Text)
		}
		wantCode(t, h.ask(g, step("s2")), idem.CodeLedgerUnavailable) // this one was not sent
		h.wantDispatches(1)
	})
}
