package idem_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// crashed leaves an operation behind whose owner was killed.
func (h *house) crashed(a idem.Ask, applied bool) idem.ID {
	h.acts(h.hang(applied))
	op := h.leave(h.guard(), a, time.Millisecond).Op
	h.kill()
	return op
}

func TestRecoverer(t *testing.T) {
	timed(t, "settles what crashed without being asked", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		done := h.crashed(step("s1"), true)
		gone := h.crashed(step("s2"), false)
		h.recovers(h.guard(), "tickets")
		time.Sleep(10 * time.Second)
		h.wantState(done, idem.StateCommitted)
		h.wantState(gone, idem.StateFailedRetryable)
		h.wantDispatches(2)
	})
	timed(t, "only of its own tenant and servers", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		tenant, server := step("s1"), step("s1")
		tenant.Tenant, server.Tool = "other", "mail/send"
		ops := []idem.ID{h.crashed(tenant, true), h.crashed(server, true)}
		h.recovers(h.guard(), "tickets")
		time.Sleep(time.Hour)
		for _, op := range ops {
			h.wantState(op, idem.StateStarted)
		}
		if h.world.lookups != 0 {
			t.Errorf("%d queries", h.world.lookups)
		}
	})
	timed(t, "a living owner gets its lease in full at a takeover", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		g1 := h.guard()
		wake := h.stall(true)
		a := h.leave(g1, step("s1"), time.Second)
		time.Sleep(25 * time.Second)
		h.recovers(h.guard(), "tickets")
		time.Sleep(20 * time.Second)
		h.wantState(a.Op, idem.StateStarted)
		time.Sleep(15 * time.Second)
		h.wantState(a.Op, idem.StateCommitted)
		wake()
	})
	timed(t, "those that come and go elsewhere do not keep it alive", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		g := h.guard()
		defer h.stall(true)()
		a := h.leave(g, step("s1"), time.Second)
		h.machine = "n"
		for range 6 {
			stop := h.recovers(h.guard(), "tickets")
			time.Sleep(5 * time.Second)
			stop()
			time.Sleep(5 * time.Second)
		}
		h.wantState(a.Op, idem.StateCommitted)
	})
	timed(t, "two of them share the work", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		var ops []idem.ID
		for i := range 30 {
			ops = append(ops, h.crashed(step(string(rune('A'+i))), i%2 == 0))
		}
		for range 2 {
			h.recovers(h.guard(), "tickets")
		}
		time.Sleep(time.Minute)
		for i, op := range ops {
			h.wantState(op, []idem.State{idem.StateCommitted, idem.StateFailedRetryable}[i%2])
		}
		h.wantEffects(15)
		h.wantDispatches(30)
	})
	for every := range 4 {
		timed(t, "what becomes visible is found at the next query "+strconv.Itoa(every), func(t *testing.T, h *house) {
			h.reconcile(time.Second)
			appears := time.Now().Add(10*time.Second + time.Duration(every)*70*time.Millisecond)
			h.world.find = func(*world, idem.Lookup) (f idem.Finding, err error) {
				if !time.Now().Before(appears) {
					f.IDs = []string{"T-1"}
				}
				return f, nil
			}
			h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous}))
			g := h.guard()
			op := h.leave(g, step("s1"), time.Millisecond).Op
			h.recovers(g, "tickets") // nobody asks any more
			time.Sleep(20 * time.Second)
			r := h.wantState(op, idem.StateCommitted)
			if d := r.SettledAt.Time().Sub(appears); d > h.rules.Query.Every+50*time.Millisecond {
				t.Errorf("settled %s after it became visible", d)
			}
		})
	}
	timed(t, "what a query found is recorded once the ledger is back", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		op := h.crashed(step("s1"), true)
		g := h.guard()
		mine := h.last
		h.world.find = func(*world, idem.Lookup) (idem.Finding, error) {
			mine.lose(errDisk)
			time.AfterFunc(5*time.Second, func() { mine.lose(nil) })
			return idem.Finding{IDs: []string{"T-1"}}, nil
		}
		h.recovers(g, "tickets")
		time.Sleep(8 * time.Second)
		if r := h.wantState(op, idem.StateCommitted); r.Reconcile.Count != 1 {
			t.Errorf("asked %d times", r.Reconcile.Count)
		}
	})
	timed(t, "what cannot be moved on does not hide the rest", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		old := h.rules.Retention
		h.rules.Retention = time.Hour
		g := h.guard()
		for i := range 100 {
			a := step(string(rune('A' + i)))
			a.Tool = "tickets/old"
			h.ask(g, a)
		}
		h.rules.Retention = old
		time.Sleep(2 * time.Hour)
		op := h.crashed(step("s1"), true)
		h.unknownTool = "tickets/old" // no longer configured
		h.recovers(h.guard(), "tickets")
		time.Sleep(10 * time.Second)
		h.wantState(op, idem.StateCommitted)
	})
}

// TestGroupsOfTheDead: an attempt whose owner was killed has ended when the
// upstream's process group has, and not before.
func TestGroupsOfTheDead(t *testing.T) {
	site := func(h *house, s idem.Site) idem.Effect {
		e := h.effect()
		e.Prepare = func(context.Context) (idem.Site, error) { return s, nil }
		return e
	}
	tests := []struct {
		name  string
		site  idem.Site
		stuck bool
		want  idem.State
		why   idem.Reason
		end   idem.EndBy
	}{
		{"ended", idem.Site{Group: idem.Group{PGID: 7, Start: 1}}, false, idem.StateFailedRetryable, "", idem.EndByGroup},
		{"cannot be ended", idem.Site{Group: idem.Group{PGID: 7, Start: 1}}, true, idem.StateNeedsReview, idem.ReasonGaveUp, ""},
		{"there is none", idem.Site{}, false, idem.StateFailedRetryable, "", idem.EndByBytes},
		{"it held the state", idem.Site{Group: idem.Group{PGID: 7, Start: 1}, Incarnation: "i1"}, false, idem.StateFailedFinal, idem.ReasonLostWithProcess, idem.EndByGroup},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.reconcile(time.Second)
			h.procs.stuck.Store(tt.stuck)
			h.rules.Process = tt.site.Incarnation != ""
			h.acts(h.hang(false))
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			op := h.guard().Do(ctx, step("s1"), site(h, tt.site)).Op
			h.kill()
			h.recovers(h.guard(), "tickets")
			time.Sleep(2 * time.Minute)
			if r := h.wantState(op, tt.want); r.Reason != tt.why || r.Attempts[0].EndBy != tt.end {
				t.Errorf("reason %q, end by %q", r.Reason, r.Attempts[0].EndBy)
			}
			h.wantDispatches(1)
		})
	}
	timed(t, "one whose end is waited for does not hold up the rest", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.procs.stuck.Store(true)
		h.procs.slow.Store(true)
		h.acts(h.hang(true))
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		h.guard().Do(ctx, step("s1"), site(h, idem.Site{Group: idem.Group{PGID: 7, Start: 1}}))
		h.kill()
		op := h.crashed(step("s2"), true)
		h.recovers(h.guard(), "tickets")
		time.Sleep(time.Minute)
		h.wantState(op, idem.StateCommitted)
	})
	timed(t, "a group that ends later settles it later", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.procs.stuck.Store(true)
		h.acts(h.hang(false))
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		op := h.guard().Do(ctx, step("s1"), site(h, idem.Site{Group: idem.Group{PGID: 7, Start: 1}})).Op
		h.kill()
		h.recovers(h.guard(), "tickets")
		time.Sleep(20 * time.Second)
		h.wantState(op, idem.StateUnknown)
		h.procs.stuck.Store(false)
		time.Sleep(10 * time.Second)
		h.wantState(op, idem.StateFailedRetryable)
	})
}

// TestPolicyOfToday: what a process left behind is judged by the policy of the
// one that takes over.
func TestPolicyOfToday(t *testing.T) {
	later := func(int, time.Duration) time.Duration { return time.Minute }
	tests := []struct {
		name     string
		resend   bool // at first
		now      func(h *house)
		want     idem.State
		why      idem.Reason
		attempts uint32
	}{
		{"idempotent before, now a write", true, func(h *house) { h.rules.Resend = false }, idem.StateNeedsReview, idem.ReasonNothingToAsk, 1},
		{"idempotent before, now a write that can be asked after", true, func(h *house) { h.rules.Resend = false; h.reconcile(time.Second) }, idem.StateCommitted, "", 1},
		{"idempotent still: its retry waits for an ask", true, func(*house) {}, idem.StateUnknown, "", 1},
		{"nothing to ask before, now a reconciler", false, func(h *house) { h.reconcile(time.Second) }, idem.StateCommitted, "", 1},
		{"nothing to ask still", false, func(*house) {}, idem.StateNeedsReview, idem.ReasonNothingToAsk, 1},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.rules.Resend, h.rules.Retry.Delay = tt.resend, later
			h.acts(ambiguous(true))
			op := h.ask(h.guard(), step("s1")).Op
			h.kill()
			tt.now(h)
			g := h.guard()
			h.recovers(g, "tickets")
			time.Sleep(30 * time.Second)
			if r := h.wantState(op, tt.want); r.Reason != tt.why || r.Last != tt.attempts {
				t.Errorf("reason %q, %d attempts", r.Reason, r.Last)
			}
			h.wantEffects(1)
		})
	}
	timed(t, "a person's matter stays one", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome { w.apply(d); return ambiguous(true)(w, d) })
		op := h.ask(h.guard(), step("s1")).Op
		h.kill()
		h.recovers(h.guard(), "tickets")
		time.Sleep(time.Minute)
		if r := h.wantState(op, idem.StateNeedsReview); r.Reason != idem.ReasonSeveralMatches || r.Duplicates != 1 || r.Reconcile.Count != 1 {
			t.Errorf("reason %s, %d duplicates, asked %d times", r.Reason, r.Duplicates, r.Reconcile.Count)
		}
	})
}
