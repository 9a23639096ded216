package idem_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// work is a tool's function that writes into the ledger's own database.
type work func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error)

// bookRef is a row of the tool's own, which the ledger does not know: each
// transaction that commits puts it once, so that its version counts effects.
func bookRef(op idem.ID) idem.Ref { return idem.Ref{Kind: idem.KindCommand, ID: op} }

// atomically makes work an effect in the ledger of the latest guard.
func (h *house) atomically(do work) idem.Effect { return h.atomicallyIn(h.last, do) }

func (h *house) atomicallyIn(p *process, do work) idem.Effect {
	return idem.Effect{Atomic: func(ctx context.Context, d idem.Dispatch, decide idem.Decide) error {
		h.world.mu.Lock()
		h.world.keys = append(h.world.keys, d.Key)
		h.world.mu.Unlock()
		c, err := decide(do(ctx, d))
		if err != nil {
			return err
		}
		c.Puts = append(c.Puts, idem.Row{Ref: bookRef(d.Record.Op), Command: &idem.CommandRow{Operation: d.Record.Op}})
		_, err = p.Commit(ctx, c)
		return err
	}}
}

// books is a tool that always succeeds.
func books(context.Context, idem.Dispatch) (idem.Outcome, error) {
	return idem.Outcome{Result: []byte(`"booked"`), Kind: idem.ResultValue}, nil
}

// firstly does one thing in the first call and books from then on.
func firstly(do work) work {
	var calls atomic.Int32
	return func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
		if calls.Add(1) == 1 {
			return do(ctx, d)
		}
		return books(ctx, d)
	}
}

// bookings counts the effects of an operation.
func (h *house) bookings(op idem.ID) int {
	h.t.Helper()
	snap, err := h.store.Load(context.Background(), bookRef(op))
	if err != nil {
		h.t.Fatal(err)
	}
	return int(snap.Row(bookRef(op)).Version)
}

// booked judges the only operation there is: its state, and that there is one
// effect if it is COMMITTED and none if it is not.
func (h *house) booked(s idem.State, attempts int) *idem.Record {
	h.t.Helper()
	all := h.list(idem.Query{})
	if len(all) != 1 {
		h.t.Fatalf("%d operations", len(all))
	}
	r := h.wantState(all[0].Op, s)
	want := 0
	if s == idem.StateCommitted {
		want = 1
	}
	if got := h.bookings(r.Op); got != want {
		h.t.Errorf("%s with %d effects", s, got)
	}
	if len(r.Attempts) != attempts {
		h.t.Errorf("%d attempts, want %d: %s", len(r.Attempts), attempts, show(r))
	}
	for _, a := range r.Attempts {
		if !a.Atomic || a.MayApplied {
			h.t.Errorf("attempt %+v", a)
		}
	}
	if n := h.world.lookups; n != 0 {
		h.t.Errorf("%d queries", n)
	}
	return r
}

func do(g *idem.Guard, a idem.Ask, e idem.Effect) idem.Answer {
	return g.Do(context.Background(), a, e)
}

func TestAtomic(t *testing.T) {
	timed(t, "effect and record in the second commit", func(t *testing.T, h *house) {
		g := h.guard()
		e := h.atomically(books)
		wantResult(t, do(g, step("s1"), e), `"booked"`, false)
		if n := h.last.commits.Load(); n != 2 {
			t.Errorf("%d commits", n)
		}
		wantResult(t, do(g, step("s1"), e), `"booked"`, true)
		other := step("s1")
		other.Args = []byte(`{"order":"o2"}`)
		wantCode(t, do(g, other, e), idem.CodeMismatch)
		h.booked(idem.StateCommitted, 1)
		h.wantDispatches(1)
	})
	timed(t, "joiners get the one outcome", func(t *testing.T, h *house) {
		g := h.guard()
		e := h.atomically(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			time.Sleep(time.Second)
			return books(ctx, d)
		})
		answers := make(chan idem.Answer, 5)
		for range cap(answers) {
			go func() { answers <- do(g, occ(), e) }()
		}
		for range cap(answers) {
			if a := <-answers; a.Err != nil || string(a.Result) != `"booked"` {
				t.Errorf("answer %s, %v", a.Result, a.Err)
			}
		}
		h.booked(idem.StateCommitted, 1)
		h.wantDispatches(1)
	})
	timed(t, "a reconciler is not asked", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		h.rules.Query.Baseline = true
		wantResult(t, do(h.guard(), step("s1"), h.atomically(firstly(func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{Class: idem.ClassAmbiguous}, nil
		}))), `"booked"`, false)
		h.booked(idem.StateCommitted, 2)
	})
	timed(t, "the asker's leaving does not reach it", func(t *testing.T, h *house) {
		ctx, cancel := context.WithCancel(context.Background())
		h.guard().Do(ctx, step("s1"), h.atomically(func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			cancel()
			time.Sleep(time.Minute)
			if ctx.Err() != nil {
				return idem.Outcome{}, ctx.Err()
			}
			return books(ctx, d)
		}))
		if err := h.guards[0].Close(context.Background()); err != nil { // waits
			t.Error(err)
		}
		h.booked(idem.StateCommitted, 1)
	})
	timed(t, "heartbeats keep the lease", func(t *testing.T, h *house) {
		e := h.effectOf(h.guard(), func(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
			time.Sleep(5 * time.Minute)
			return books(ctx, d)
		})
		h.recovers(h.guard(), "tickets")
		wantResult(t, do(h.guards[0], step("s1"), e), `"booked"`, false)
		h.booked(idem.StateCommitted, 1)
		h.wantDispatches(1)
	})
	timed(t, "an effect of another ledger ends", func(t *testing.T, h *house) {
		e := h.effectOf(h.guard(), books)
		h.store = memstore.New(memstore.Config{})
		wantCode(t, do(h.guard(), step("s1"), e), idem.CodeFailed)
		h.booked(idem.StateFailedFinal, 1)
		h.wantDispatches(1)
	})
}

// effectOf is atomically for a guard that has just been made.
func (h *house) effectOf(_ *idem.Guard, do work) idem.Effect { return h.atomically(do) }

// TestAtomicFailures: whatever the function does, it was rolled back.
func TestAtomicFailures(t *testing.T) {
	refusal := errors.New("out of stock")
	for _, tt := range []struct {
		name     string
		do       work
		want     idem.State
		attempts int
		class    idem.Class
		closed   idem.Proof // of the first attempt
	}{
		{"an error is final", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{}, refusal
		}, idem.StateFailedFinal, 1, idem.ClassRejected, idem.ProofAnswer},
		{"an error beats success", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{Class: idem.ClassSuccess, Result: []byte(`"booked"`), Kind: idem.ResultValue}, refusal
		}, idem.StateFailedFinal, 1, idem.ClassRejected, idem.ProofAnswer},
		{"the tool's own answer", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{Class: idem.ClassReported, Result: []byte("isError"), Kind: idem.ResultValue}, nil
		}, idem.StateFailedFinal, 1, idem.ClassReported, idem.ProofAnswer},
		{"it is there already", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{Class: idem.ClassExists}, refusal
		}, idem.StateFailedFinal, 1, idem.ClassExists, idem.ProofAnswer},
		{"an error to try again after", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{Class: idem.ClassThrottled, RetryAfter: time.Second}, refusal
		}, idem.StateCommitted, 2, idem.ClassSuccess, idem.ProofAnswer},
		{"a doubtful outcome", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			return idem.Outcome{Class: idem.ClassAmbiguous}, nil
		}, idem.StateCommitted, 2, idem.ClassSuccess, idem.ProofFence},
		{"a panic", func(context.Context, idem.Dispatch) (idem.Outcome, error) {
			panic("the tool")
		}, idem.StateCommitted, 2, idem.ClassSuccess, idem.ProofFence},
	} {
		timed(t, tt.name, func(t *testing.T, h *house) {
			a := do(h.guard(), step("s1"), h.atomically(firstly(tt.do)))
			r := h.booked(tt.want, tt.attempts)
			if r.Class != tt.class || r.Attempts[0].Closed != tt.closed {
				t.Errorf("class %s, want %s; closed by %s, want %s", r.Class, tt.class, r.Attempts[0].Closed, tt.closed)
			}
			if tt.want == idem.StateFailedFinal && (r.Absence != idem.AbsenceProven || a.NotRecorded) {
				t.Errorf("absence %s, not recorded %v", r.Absence, a.NotRecorded)
			}
			if want := map[idem.Class]string{idem.ClassSuccess: `"booked"`, idem.ClassReported: "isError"}[tt.class]; string(a.Result) != want || (a.Err == nil) != (want != "") {
				t.Errorf("answer %s, %v", a.Result, a.Err)
			}
		})
	}
	timed(t, "a final one ends after failure_ttl", func(t *testing.T, h *house) {
		g := h.guard()
		e := h.atomically(firstly(func(context.Context, idem.Dispatch) (idem.Outcome, error) { return idem.Outcome{}, refusal }))
		a := do(g, step("s1"), e)
		wantCode(t, a, idem.CodeFailed)
		wantCode(t, do(g, step("s1"), e), idem.CodeFailed)
		time.Sleep(h.rules.FailureTTL)
		wantResult(t, do(g, step("s1"), e), `"booked"`, false)
		h.booked(idem.StateCommitted, 2)
	})
	timed(t, "the guard's end is none of the tool's", func(t *testing.T, h *house) {
		g := h.guard()
		h.leaveOff(g, h.atomically(func(ctx context.Context, _ idem.Dispatch) (idem.Outcome, error) {
			<-ctx.Done()
			return idem.Outcome{}, ctx.Err()
		}))
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.Close(gone)
		time.Sleep(time.Second)
		h.booked(idem.StateFailedRetryable, 1)
	})
}
