package idem_test

import (
	"sync"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// stall applies, and answers when told to; meanwhile its guard's heartbeats do
// not reach the ledger, as when the process is stopped.
func (h *house) stall(apply bool) (wake func()) {
	woken, p := make(chan struct{}), h.last
	h.acts(func(w *world, d idem.Dispatch) idem.Outcome {
		id := "T-stalled"
		if apply {
			id = w.apply(d)
		}
		w.mu.Lock()
		w.act = nil
		w.mu.Unlock()
		p.fail(errDisk)
		<-woken
		p.fail(nil)
		return answered(id)
	})
	return sync.OnceFunc(func() { close(woken) })
}

func TestTakeover(t *testing.T) {
	timed(t, "after the lease only, by asking only; the owner's success confirms", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		g1 := h.guard()
		wake := h.stall(true)
		a := h.leave(g1, step("s1"), time.Second)
		g2 := h.guard()
		wantCode(t, h.ask(g2, step("s1")), idem.CodeInProgress)
		time.Sleep(20 * time.Second)
		wantCode(t, h.ask(g2, step("s1")), idem.CodeInProgress)
		if n := h.world.lookups; n != 0 {
			t.Errorf("%d queries before the lease was over", n)
		}
		time.Sleep(10 * time.Second)
		wantResult(t, h.ask(g2, step("s1")), `{"found":"T-1"}`, true)
		wake()
		time.Sleep(5 * time.Second)
		if r := h.wantState(a.Op, idem.StateCommitted); r.Duplicates != 0 || string(r.Result) != `{"found":"T-1"}` || r.Attempts[0].Class != idem.ClassSuccess {
			t.Errorf("%d duplicates, result %s, attempt %+v", r.Duplicates, r.Result, r.Attempts[0])
		}
		h.wantDispatches(1)
	})
	timed(t, "absence is not believed while the owner lives", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		g1 := h.guard()
		wake := h.stall(false)
		defer wake()
		h.leave(g1, step("s1"), time.Second)
		g2 := h.guard()
		time.Sleep(40 * time.Second)
		wantCode(t, h.ask(g2, step("s1")), idem.CodeUnknown)
		h.wantDispatches(1)
	})
	timed(t, "heartbeats keep the lease", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(slowly(5 * time.Minute))
		a := h.leave(h.guard(), step("s1"), time.Second)
		g2 := h.guard()
		h.recovers(g2, "tickets")
		time.Sleep(4 * time.Minute)
		wantCode(t, h.ask(g2, step("s1")), idem.CodeInProgress)
		time.Sleep(2 * time.Minute)
		h.wantState(a.Op, idem.StateCommitted)
	})
	timed(t, "one that was renewed since the look is not taken", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(slowly(20 * time.Second))
		a := h.leave(h.guard(), step("s1"), time.Second)
		g2 := h.guard()
		looked := false
		h.last.stale = func(s idem.Snapshot) {
			if r := s.Operation(a.Op); r != nil && !looked {
				r.Lease.End, looked = s.Now, true
			}
		}
		h.leave(g2, step("s1"), time.Second)
		h.wantState(a.Op, idem.StateStarted)
		time.Sleep(time.Minute)
		h.wantState(a.Op, idem.StateCommitted)
	})
	timed(t, "a dead owner's is over at once", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(h.hang(true))
		h.leave(h.guard(), step("s1"), time.Millisecond)
		h.kill()
		start := time.Now()
		wantResult(t, h.ask(h.guard(), step("s1")), `{"found":"T-1"}`, true)
		if d := time.Since(start); d > time.Second {
			t.Errorf("taken over after %s", d)
		}
	})
}

func TestClaimTooOldToDispatch(t *testing.T) {
	timed(t, "its lease ran out on the way", func(t *testing.T, h *house) {
		g := h.guard()
		h.last.judge = func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
			if r := puts(c); r == nil || r.State != idem.StateStarted {
				return idem.Stamp{}, nil, false
			}
			s, err := commit()
			time.Sleep(25 * time.Second) // less than the lease: the margin counts
			return s, err, true
		}
		wantCode(t, h.ask(g, step("s1")), idem.CodeRetryScheduled)
		h.wantDispatches(0)
		for _, r := range h.list(idem.Query{}) {
			if r.State != idem.StateFailedRetryable || r.Attempts[0].Closed != idem.ProofNotSent {
				t.Errorf("state %s, attempt %+v", r.State, r.Attempts[0])
			}
		}
	})
}

func TestClockJumpAuthorisesNothing(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, 100 * 24 * time.Hour, -100 * 24 * time.Hour} {
		timed(t, jump.String(), func(t *testing.T, h *house) {
			var mu sync.Mutex
			var off time.Duration
			h.store = memstore.New(memstore.Config{Now: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(off).Round(0)
			}})
			h.reconcile(time.Second)
			h.world.find = func(*world, idem.Lookup) (idem.Finding, error) { return idem.Finding{}, nil } // it would be believed
			g := h.guard()
			h.ask(g, step("done"))
			h.acts(slowly(time.Minute))
			a := h.leave(g, step("s1"), time.Second)
			mu.Lock()
			off = jump
			mu.Unlock()
			g2 := h.guard()
			h.recovers(g2, "tickets")
			h.ask(g2, step("s1"))
			h.ask(g2, step("done"))
			time.Sleep(time.Minute)
			h.ask(g2, step("s1"))
			h.wantDispatches(2)
			if jump < 24*time.Hour {
				h.wantState(a.Op, idem.StateCommitted)
			}
		})
	}
}
