package idem_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// slow books, and is done after d whatever its context says.
func slow(d time.Duration) work {
	return func(ctx context.Context, dis idem.Dispatch) (idem.Outcome, error) {
		time.Sleep(d)
		return books(ctx, dis)
	}
}

// TestAtomicFence: whoever moves the record on shuts the open transaction out.
func TestAtomicFence(t *testing.T) {
	const long = 2 * time.Minute
	rest := func() { time.Sleep(long + time.Second) }
	timed(t, "the owner is declared dead", func(t *testing.T, h *house) {
		e1 := h.effectOf(h.guard(), slow(long))
		h.leaveOff(h.guards[0], e1)
		h.procs.kill(h.pid)
		e2 := h.effectOf(h.guard(), books)
		wantResult(t, do(h.guards[1], step("s1"), e2), `"booked"`, false)
		rest()
		r := h.booked(idem.StateCommitted, 2)
		if a := r.Attempts[0]; a.Closed != idem.ProofFence || a.EndBy != idem.EndByFence || a.Class != "" || r.CommittedBy != 2 {
			t.Errorf("first attempt %+v", a)
		}
		h.wantDispatches(2)
	})
	timed(t, "its lease ran out", func(t *testing.T, h *house) {
		g1 := h.guard()
		p1 := h.last
		e1 := h.atomically(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			p1.fail(errDisk) // no heartbeats
			time.Sleep(long)
			p1.fail(nil)
			return books(ctx, d)
		})
		h.leaveOff(g1, e1)
		g2 := h.guard()
		h.recovers(g2, "tickets")
		e2 := h.atomically(books)
		time.Sleep(h.rules.Lease + time.Second)
		wantResult(t, do(g2, step("s1"), e2), `"booked"`, false)
		rest()
		h.booked(idem.StateCommitted, 2)
	})
	timed(t, "a lease that ran out and that nobody took", func(t *testing.T, h *house) {
		g := h.guard()
		p := h.last
		wantResult(t, do(g, step("s1"), h.atomically(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			p.fail(errDisk)
			time.Sleep(long)
			p.fail(nil)
			return books(ctx, d)
		})), `"booked"`, false)
		h.booked(idem.StateCommitted, 1)
	})
	timed(t, "the timeout passed", func(t *testing.T, h *house) {
		h.rules.Timeout = 10 * time.Second
		var stopped atomic.Bool
		e := h.effectOf(h.guard(), firstly(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			time.Sleep(h.rules.Timeout + time.Second) // hears nothing
			stopped.Store(ctx.Err() != nil)
			return books(ctx, d)
		}))
		wantResult(t, do(h.guards[0], step("s1"), e), `"booked"`, false)
		rest()
		if !stopped.Load() {
			t.Error("the fenced transaction's context goes on")
		}
		h.booked(idem.StateCommitted, 2)
	})
	timed(t, "the attempts are used up", func(t *testing.T, h *house) {
		h.rules.Retry.MaxAttempts, h.rules.Timeout = 1, time.Second
		wantCode(t, do(h.guard(), step("s1"), h.atomically(slow(long))), idem.CodeFailed)
		rest()
		if r := h.booked(idem.StateFailedFinal, 1); r.Reason != idem.ReasonRetryExhausted || r.Absence != idem.AbsenceProven {
			t.Errorf("%s, absence %s", r.Reason, r.Absence)
		}
	})
	timed(t, "a change beside it is no fence", func(t *testing.T, h *house) {
		e := h.effectOf(h.guard(), slow(time.Second))
		go do(h.guards[0], occ("call_1"), e)
		time.Sleep(time.Second / 2)
		wantResult(t, do(h.guards[0], occ("call_2"), e), `"booked"`, true) // its call id is noted
		if r := h.booked(idem.StateCommitted, 1); len(r.Aliases) != 2 {
			t.Errorf("%d aliases", len(r.Aliases))
		}
		h.wantDispatches(2)
	})
	timed(t, "an earlier attempt turns out to have applied", func(t *testing.T, h *house) {
		h.rules.Timeout = time.Second
		h.acts(slowly(20 * time.Second))
		a := h.leave(h.guard(), step("s1"), 2*time.Second)
		h.decide(a.Op, idem.VerbGrantRetry)
		h.rules.Timeout = 0
		e := h.effectOf(h.guard(), slow(time.Minute))
		wantResult(t, do(h.guards[1], step("s1"), e), `{"id":"T-1"}`, true)
		if r := h.wantState(a.Op, idem.StateCommitted); r.CommittedBy != 1 || r.Duplicates != 0 {
			t.Errorf("committed by %d, %d duplicates", r.CommittedBy, r.Duplicates)
		}
	})
}

// leaveOff starts an atomic effect and leaves.
func (h *house) leaveOff(g *idem.Guard, e idem.Effect) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	g.Do(ctx, step("s1"), e)
}

// carries finds the commit that carries an effect.
func carries(c idem.Change) bool { return len(c.Puts) == 2 && c.Puts[1].Ref.Kind == idem.KindCommand }

// TestAtomicLedgerFails: the ledger's own failures leave nothing in doubt.
func TestAtomicLedgerFails(t *testing.T) {
	unknown := errors.Join(idem.ErrCommitUnknown, errDisk)
	for name, applied := range map[string]bool{"and it was": true, "and it was not": false} {
		timed(t, "nobody knows whether it was committed, "+name, func(t *testing.T, h *house) {
			e := h.effectOf(h.guard(), books)
			lost := false
			h.last.judge = func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
				if lost || !carries(c) {
					return idem.Stamp{}, nil, false
				}
				if lost = true; applied {
					_, _ = commit()
				}
				return idem.Stamp{}, unknown, true
			}
			wantResult(t, do(h.guards[0], step("s1"), e), `"booked"`, false)
			attempts := map[bool]int{true: 1, false: 2}[applied]
			r := h.booked(idem.StateCommitted, attempts)
			h.wantDispatches(attempts)
			if first := r.Attempts[0].Closed; !applied && first != idem.ProofFence {
				t.Errorf("the first attempt is closed by %q", first)
			}
		})
	}
	timed(t, "and the ledger is gone", func(t *testing.T, h *house) {
		e := h.effectOf(h.guard(), books)
		p := h.last
		p.judge = func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
			if !carries(c) {
				return idem.Stamp{}, nil, false
			}
			_, _ = commit()
			p.lose(errDisk)
			return idem.Stamp{}, unknown, true
		}
		wantCode(t, do(h.guards[0], step("s1"), e), idem.CodeLedgerUnavailable)
		p.lose(nil)
		wantResult(t, do(h.guards[0], step("s1"), e), `"booked"`, true)
		h.booked(idem.StateCommitted, 1)
		h.wantDispatches(1)
	})
	timed(t, "it takes no commit for a moment", func(t *testing.T, h *house) {
		g := h.guard()
		p := h.last
		wantResult(t, do(g, step("s1"), h.atomically(firstly(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			p.fail(errDisk)
			time.AfterFunc(time.Second, func() { p.fail(nil) })
			return books(ctx, d)
		}))), `"booked"`, false)
		h.booked(idem.StateCommitted, 2)
	})
	timed(t, "it takes no commit for a while", func(t *testing.T, h *house) {
		h.rules.Wait = 8 * time.Second
		g := h.guard()
		p := h.last
		e := h.atomically(firstly(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			p.fail(errDisk)
			time.AfterFunc(10*time.Second, func() { p.fail(nil) })
			return books(ctx, d)
		}))
		wantCode(t, do(g, step("s1"), e), idem.CodeLedgerUnavailable)
		h.booked(idem.StateStarted, 1)
		time.Sleep(20 * time.Second)
		h.booked(idem.StateFailedRetryable, 1)
		wantResult(t, do(g, step("s1"), e), `"booked"`, false)
		h.booked(idem.StateCommitted, 2)
	})
}
