package idem_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// Two equal steps are under way with one baseline when the process dies. How
// many of them were applied is all that the outside can tell.
func TestTwinsDoNotSettleEachOtherByTheirBaselines(t *testing.T) {
	for applied, want := range [][]idem.State{
		0: {idem.StateCommitted, idem.StateCommitted}, // both absent, both run again
		1: {idem.StateNeedsReview, idem.StateNeedsReview},
		2: {idem.StateCommitted, idem.StateCommitted},
	} {
		t.Run(fmt.Sprint(applied, " applied"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				h.reconcile(time.Second)
				h.rules.Query.Baseline, h.rules.Query.GiveUp = true, 5*time.Second
				h.world.find = func(w *world, _ idem.Lookup) (idem.Finding, error) { return idem.Finding{IDs: w.ids()}, nil }
				g := h.guard()
				left, dead := applied, h.last.dead
				var mu sync.Mutex
				h.world.act = func(w *world, d idem.Dispatch) idem.Outcome {
					time.Sleep(time.Millisecond) // both baselines are taken
					mu.Lock()
					if left > 0 {
						left--
						w.apply(d)
					}
					mu.Unlock()
					<-dead
					return idem.Outcome{}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var ops [2]idem.ID
				var wg sync.WaitGroup
				for i := range ops {
					wg.Go(func() { ops[i] = g.Do(ctx, step(fmt.Sprint("s", i)), h.effect()).Op })
				}
				wg.Wait()
				h.kill()
				h.world.mu.Lock()
				h.world.act = nil
				h.world.mu.Unlock()
				g = h.guard()
				for range 20 {
					for i := range ops {
						h.ask(g, step(fmt.Sprint("s", i)))
					}
					time.Sleep(time.Second)
				}
				for i, op := range ops {
					h.wantState(op, want[i])
				}
				h.wantEffects(max(applied, len(ops)*(1-applied)))
				if a, b := h.record(ops[0]), h.record(ops[1]); a.State == idem.StateCommitted && a.ExternalID == b.ExternalID {
					t.Errorf("both were settled by %s", a.ExternalID)
				}
			})
		})
	}
}

// ids are those of all effects, whoever made them.
func (w *world) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for i := range w.effects {
		ids = append(ids, fmt.Sprintf("T-%d", i+1))
	}
	return ids
}

// alike makes every query look at everything, under the name that view gives.
func (h *house) alike(view func(idem.Lookup) string) {
	h.reconcile(time.Second)
	h.rules.Query.Baseline, h.rules.Query.GiveUp = true, 5*time.Second
	h.world.find = func(w *world, l idem.Lookup) (idem.Finding, error) {
		return idem.Finding{IDs: w.ids(), View: view(l)}, nil
	}
}

func oneView(idem.Lookup) string { return "list {}" }

// nameless applies, and its answer does not say what it made.
func nameless(w *world, d idem.Dispatch) idem.Outcome {
	w.apply(d)
	return idem.Outcome{Class: idem.ClassSuccess, Result: []byte("ok"), Kind: idem.ResultValue}
}

func other() idem.Ask {
	a := with(`{"order":"o2"}`)
	a.Task, a.Step = "t2", "s9"
	return a
}

// An operation dies under way while one of other arguments, in another task,
// succeeds, and a query for the one finds what the other made.
func TestRivalsOfOneView(t *testing.T) {
	tests := []struct {
		name    string
		applied bool // the one that died
		rival   func(*world, idem.Dispatch) idem.Outcome
		want    idem.State
		effects int
	}{
		{"died before, the other's id is known", false, applies, idem.StateCommitted, 2},
		{"died after, the other's id is known", true, applies, idem.StateCommitted, 2},
		{"died before, the other's id is not known", false, nameless, idem.StateNeedsReview, 1},
		{"died after, the other's id is not known", true, nameless, idem.StateCommitted, 2},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.alike(oneView)
			g := h.guard()
			h.acts(h.hang(tt.applied))
			op := h.leave(g, step("s1"), time.Second).Op
			h.acts(tt.rival)
			rival := h.wantState(h.ask(g, other()).Op, idem.StateCommitted)
			h.acts(applies)
			h.kill()
			g = h.guard()
			for range 10 {
				h.ask(g, step("s1"))
				time.Sleep(time.Second)
			}
			r := h.wantState(op, tt.want)
			if r.State == idem.StateCommitted && r.ExternalID == rival.ExternalID {
				t.Errorf("settled by %s, which is the other's", r.ExternalID)
			}
			h.wantEffects(tt.effects)
		})
	}
}

// Of two operations that died under way one was applied. They are rivals where
// their queries look at the same.
func TestWhoseViewsAreOne(t *testing.T) {
	ask := func(f func(*idem.Ask)) idem.Ask {
		a := other()
		f(&a)
		return a
	}
	tests := []struct {
		name   string
		view   func(idem.Lookup) string
		rival  idem.Ask
		rivals bool
	}{
		{"one view", oneView, other(), true},
		{"two views", func(l idem.Lookup) string { return string(l.Record.Args) }, other(), false},
		{"another tool of the server", oneView, ask(func(a *idem.Ask) { a.Tool = "tickets/clone" }), true},
		{"another server", oneView, ask(func(a *idem.Ask) { a.Tool = "mail/send" }), false},
		{"another tenant", oneView, ask(func(a *idem.Ask) { a.Tenant = "other" }), false},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.alike(tt.view)
			g := h.guard()
			h.acts(h.hang(false))
			h.leave(g, tt.rival, time.Second)
			h.acts(h.hang(true))
			op := h.leave(g, step("s1"), time.Second).Op
			h.kill()
			a := h.ask(h.guard(), step("s1"))
			if tt.rivals {
				wantCode(t, a, idem.CodeUnknown)
				h.wantState(op, idem.StateUnknown)
			} else if r := h.wantState(op, idem.StateCommitted); r.ExternalID != "T-1" {
				t.Errorf("settled by %q", r.ExternalID)
			}
			h.wantDispatches(2)
		})
	}
}

func TestSettledOperationsAreNoRivals(t *testing.T) {
	timed(t, "a third insert right after two fast ones", func(t *testing.T, h *house) {
		h.alike(oneView)
		g := h.guard()
		h.acts(nameless, nameless, ambiguous(true))
		h.ask(g, step("s1"))
		h.ask(g, step("s2"))
		if r := h.wantState(h.ask(g, step("s3")).Op, idem.StateCommitted); r.ExternalID != "T-3" {
			t.Errorf("settled by %q", r.ExternalID)
		}
		h.wantEffects(3)
	})
	timed(t, "a thousand leave a short list", func(t *testing.T, h *house) {
		h.alike(oneView)
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{}, nil }
		g := h.guard()
		var last *idem.Record
		for i := range 1000 {
			a := with(fmt.Sprintf(`{"order":"o%d"}`, i))
			a.Task, a.Step = fmt.Sprint("t", i), "s"
			if last = h.ask(g, a).Record; last == nil || last.State != idem.StateCommitted {
				t.Fatalf("order %d: %s", i, show(last))
			}
			time.Sleep(time.Second)
		}
		s, err := h.store.Load(context.Background(), idem.Ref{Kind: idem.KindSlot, ID: last.Reconcile.View})
		if err != nil {
			t.Fatal(err)
		}
		slot, _ := s.Slot(last.Reconcile.View)
		if n := len(slot.Open); n == 0 || n > 80 {
			t.Errorf("%d operations are kept as rivals", n)
		}
	})
	timed(t, "but one that succeeded between a baseline and its claim is", func(t *testing.T, h *house) {
		h.alike(oneView)
		fast := h.guard()
		for i := range 15 {
			h.ask(fast, step(fmt.Sprint("before", i)))
			time.Sleep(time.Millisecond)
		}
		slow, way := h.guard(), h.last
		way.judge = func(c idem.Change, _ func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
			if r := puts(c); r != nil && r.State == idem.StateStarted {
				time.Sleep(5 * time.Second) // the baseline is taken, the claim is on its way
			}
			return idem.Stamp{}, nil, false
		}
		h.world.act = func(w *world, d idem.Dispatch) idem.Outcome {
			if d.Record.Step == "s1" {
				<-way.dead
				return idem.Outcome{}
			}
			return applies(w, d)
		}
		op := make(chan idem.ID)
		go func() { op <- h.leave(slow, step("s1"), 20*time.Second).Op }()
		time.Sleep(time.Second)
		h.ask(fast, step("between"))
		time.Sleep(time.Millisecond)
		h.ask(fast, step("makes the list short"))
		id := <-op
		h.kill()
		h.acts(applies)
		h.ask(fast, step("s1"))
		if r := h.wantState(id, idem.StateCommitted); r.ExternalID != "T-18" {
			t.Errorf("settled by %q", r.ExternalID)
		}
		h.wantEffects(18)
	})
}
