package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/mcp-idem/mcp-idem/internal/crash"
)

// Decide turns what the tool's function returned into the Change that has to
// commit with its effect. A failed attempt has none, and the error says why the
// transaction is to be rolled back. A transaction that the store runs anew is
// decided anew.
//
// An attempt failed if there is an error, or the outcome's class is no success.
// It was rolled back, so it was not applied: ClassNotSent, ClassThrottled and
// ClassAmbiguous are worth another attempt, ClassInterim waits for input, the
// others are final. Without a class an error is ClassRejected, or ClassNotSent if
// the attempt's context had ended. Beside an error only Class, Text and RetryAfter
// count.
type Decide func(o Outcome, err error) (Change, error)

// errNoSuccess rolls a transaction back whose outcome says that it failed.
var errNoSuccess = errors.New("idem: the outcome is no success")

// holds reports whether the record still waits for this attempt, and needs it.
func (f *flight) holds(r *Record) bool {
	return r != nil && r.State == StateStarted && r.Last == f.attempt && r.Lease.Token == f.token && r.succeeded() == nil
}

// transact makes an atomic attempt, anew when the record was changed beside it.
// What it returns is still to be recorded, unless it is a success: the ledger
// has that already.
func (f *flight) transact(e Effect) Outcome {
	rec := f.claimed
	for {
		out, next, err := f.try(e, rec)
		switch {
		case err == nil:
			next.Version = rec.Version + 1
			f.mu.Lock()
			f.recorded = next
			f.mu.Unlock()
			f.g.observe(Observation{What: "transition", Op: f.op, From: rec.State, Record: next})
			return out
		case out.Class != "" && out.Class != ClassSuccess:
			return out
		case errors.Is(err, ErrCommitUnknown): // the next version of the record tells, whoever makes it
			return Outcome{Class: ClassAmbiguous, Text: err.Error()}
		case !errors.As(err, new(*Conflict)):
			return Outcome{Class: ClassNotSent, Text: fmt.Sprintf("the transaction was rolled back: %v", err)}
		}
		ctx, cancel := context.WithTimeout(f.ctx, recordTimeout)
		s, err := f.g.cfg.Store.Load(ctx, opRef(f.op))
		cancel()
		r := s.Operation(f.op)
		switch {
		case err != nil:
			return Outcome{Class: ClassNotSent, Text: fmt.Sprintf("the transaction was rolled back: %v", err)}
		case !f.holds(r):
			return Outcome{Class: ClassNotSent, Text: "the transaction was rolled back: the record had moved on"}
		case r.Version == rec.Version:
			return Outcome{Class: ClassRejected, Text: "the effect's transaction is not one of this guard's ledger"}
		}
		rec = r
	}
}

// try makes one transaction on the record as it stands. next is what it becomes.
func (f *flight) try(e Effect, rec *Record) (out Outcome, next *Record, err error) {
	decide := func(o Outcome, err error) (Change, error) {
		out, next = f.judge(o, err), nil
		if out.Class != ClassSuccess {
			return Change{}, cmp.Or(err, errNoSuccess)
		}
		now, err := f.g.cfg.Store.Clock(f.ctx)
		if err != nil {
			return Change{}, err
		}
		ev := Report{When: When{now}, Terms: f.g.terms(rec, f.rules, 0), Attempt: f.attempt, Outcome: out}
		if next, err = Next(rec, ev); err != nil {
			return Change{}, err
		}
		c := Change{Needs: []Need{{Ref: opRef(f.op), Version: rec.Version}}, Puts: []Row{{Ref: opRef(f.op), Operation: next}}}
		f.g.cfg.Random(c.ID[:])
		crash.At("decided")
		return c, nil
	}
	err = e.Atomic(f.ctx, f.dispatch(rec), decide)
	if err == nil && next == nil {
		err = errors.New("idem: Effect.Atomic committed without a decision")
	}
	return out, next, err
}

// judge gives the outcome of the tool's function its class.
func (f *flight) judge(o Outcome, err error) Outcome {
	if err == nil {
		o.Class = cmp.Or(o.Class, ClassSuccess)
		return o
	}
	o = Outcome{Class: o.Class, Text: cmp.Or(o.Text, err.Error()), RetryAfter: o.RetryAfter}
	switch {
	case o.Class != "" && o.Class != ClassSuccess:
	case f.ctx.Err() != nil:
		o.Class = ClassNotSent
	default:
		o.Class = ClassRejected
	}
	return o
}

// unsettled answers for an atomic attempt while the ledger does not say what
// became of it.
func (f *flight) unsettled() Answer {
	return Answer{Record: f.claimed, Op: f.op, Err: &Error{Code: CodeLedgerUnavailable,
		Text: "The ledger cannot be written or read. Either this was done and is recorded, or nothing was done; the same request gets the truth when the ledger is back."}}
}
