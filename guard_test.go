package idem_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func TestReplay(t *testing.T) {
	h := newHouse(t)
	g := h.guard()
	wantResult(t, h.ask(g, step("s1")), `{"id":"T-1"}`, false)
	wantResult(t, h.ask(g, step("s1")), `{"id":"T-1"}`, true)
	h.procs.kill(h.pid)
	wantResult(t, h.ask(h.guard(), step("s1")), `{"id":"T-1"}`, true)
	h.wantEffects(1)
}

func TestMismatchIsRefusedBeforeDispatch(t *testing.T) {
	h := newHouse(t)
	g := h.guard()
	h.ask(g, step("s1"))
	other := step("s1")
	other.Args = []byte(`{"order":"o2"}`)
	wantCode(t, h.ask(g, other), idem.CodeMismatch)
	h.wantDispatches(1)
}

func TestOneEffectFor200ConcurrentAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.world.act = func(w *world, d idem.Dispatch) idem.Outcome {
			id := w.apply(d)
			time.Sleep(300 * time.Millisecond)
			return answered(id)
		}
		guards := []*idem.Guard{h.guard(), h.guard()}
		var wg sync.WaitGroup
		var mu sync.Mutex
		firsts := 0
		for i := range 200 {
			wg.Go(func() {
				a := h.ask(guards[i%2], step("s1"))
				if a.Err != nil {
					wantCode(t, a, idem.CodeInProgress)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if !a.Replayed {
					firsts++
				}
				wantResult(t, a, `{"id":"T-1"}`, a.Replayed)
			})
		}
		wg.Wait()
		if firsts != 1 {
			t.Errorf("%d answers are no replays, want 1", firsts)
		}
		h.wantEffects(1)
		h.wantDispatches(1)
	})
}

// ambiguous applies or not, and loses the answer; the attempt has ended.
func ambiguous(apply bool) func(*world, idem.Dispatch) idem.Outcome {
	return func(w *world, d idem.Dispatch) idem.Outcome {
		if apply {
			w.apply(d)
		}
		w.mu.Lock()
		w.act = nil
		w.mu.Unlock()
		return idem.Outcome{Class: idem.ClassAmbiguous, Ended: idem.EndByGroup, Text: "connection reset"}
	}
}

func TestLostResponse(t *testing.T) {
	t.Run("found by asking", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			h.reconcile(time.Second)
			h.world.act = ambiguous(true)
			a := h.ask(h.guard(), step("s1"))
			wantResult(t, a, `{"found":"T-1"}`, true)
			if r := h.wantState(a.Op, idem.StateCommitted); !r.Reconciled || r.ExternalID != "T-1" {
				t.Errorf("reconciled %v, external id %q", r.Reconciled, r.ExternalID)
			}
			h.wantDispatches(1)
		})
	})
	t.Run("absent is believed after settle only, then one retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			h.reconcile(time.Second)
			h.world.act = ambiguous(false)
			start := time.Now()
			a := h.ask(h.guard(), step("s1"))
			wantResult(t, a, `{"id":"T-1"}`, false)
			if d := time.Since(start); d < time.Second {
				t.Errorf("retried %s after the attempt's end, before settle was over", d)
			}
			h.wantEffects(1)
			h.wantDispatches(2)
			if h.world.keys[0] != h.world.keys[1] {
				t.Errorf("two attempts, two keys: %v", h.world.keys)
			}
		})
	})
	t.Run("nothing to ask", func(t *testing.T) {
		h := newHouse(t)
		h.world.act = ambiguous(true)
		g := h.guard()
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeNeedsReview)
		wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
		h.wantState(a.Op, idem.StateNeedsReview)
		h.wantDispatches(1)
	})
	t.Run("a failed query is not an empty one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			h.reconcile(100 * time.Millisecond)
			h.world.act = ambiguous(true)
			h.world.find = func(w *world, l idem.Lookup) (idem.Finding, error) { return idem.Finding{}, errDown }
			g := h.guard()
			a := h.ask(g, step("s1"))
			wantCode(t, a, idem.CodeUnknown)
			h.wantState(a.Op, idem.StateUnknown)
			h.world.mu.Lock()
			h.world.find = nil
			h.world.mu.Unlock()
			wantResult(t, h.ask(g, step("s1")), `{"found":"T-1"}`, true)
			h.wantDispatches(1)
		})
	})
}

func TestCrashedOwner(t *testing.T) {
	for _, applied := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			h.reconcile(time.Second)
			h.world.act = h.hang(applied)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			a := h.guard().Do(ctx, step("s1"), h.effect())
			h.wantState(a.Op, idem.StateStarted)
			h.kill()
			b := h.ask(h.guard(), step("s1"))
			if applied {
				wantResult(t, b, `{"found":"T-1"}`, true)
				h.wantDispatches(1)
			} else {
				wantResult(t, b, `{"id":"T-1"}`, false)
				h.wantDispatches(2)
			}
			h.wantEffects(1)
		})
	}
}
