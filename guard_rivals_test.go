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
				left := applied
				var mu sync.Mutex
				h.world.act = func(w *world, d idem.Dispatch) idem.Outcome {
					time.Sleep(time.Millisecond) // both baselines are taken
					mu.Lock()
					if left > 0 {
						left--
						w.apply(d)
					}
					mu.Unlock()
					<-h.last.dead
					return idem.Outcome{}
				}
				g := h.guard()
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
