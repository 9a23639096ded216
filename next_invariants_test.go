package idem_test

import (
	"bytes"
	"errors"
	"slices"

	idem "github.com/mcp-idem/mcp-idem"
)

// checkEdge holds one transition against every invariant of the machine.
func checkEdge(s setting, r *idem.Record, ev idem.Event, n *idem.Record, err error) (broken []string) {
	bad := func(ok bool, why string) {
		if !ok {
			broken = append(broken, why)
		}
	}
	if err != nil {
		var te *idem.TransitionError
		bad(n == nil, "an error, and a record")
		bad(errors.As(err, &te) || errors.Is(err, idem.ErrLate), "an error of no known kind: "+err.Error())
		e, report := ev.(idem.Report)
		bad(!report || r.Expired || r.State == "" || fenced(r, e), "a report was dropped: "+err.Error())
		return broken
	}
	bad(n.Lease.Fence >= r.Lease.Fence, "the fence shrank")
	bad(!r.Expired || n.State == r.State, "a tombstone moved")
	bad(n.State != idem.StateReconciling, "RECONCILING is stored")
	_, claimed := ev.(idem.Claim)
	bad((n.Last != r.Last) == claimed, "attempts begin with a claim only")
	if claimed {
		bad(r.Granted || s.terms.Resend || !mayOrDid(r), "a claim while an earlier attempt may have applied")
		bad(!n.Granted && n.Lease.Fence == r.Lease.Fence+1 && n.State == idem.StateStarted, "a claim that is no claim")
		bad(r.State != idem.StateCommitted && r.State != idem.StateCompensating && r.State != idem.StateStarted, "a claim of what is done or under way")
		bad(r.State != idem.StateCompensated || r.Granted, "what was undone runs again")
	}
	if r.State == idem.StateCommitted && n.State == idem.StateCommitted && !n.Expired {
		bad(bytes.Equal(r.Result, n.Result), "the result of COMMITTED changed")
		bad(r.ExternalID == "" || r.ExternalID == n.ExternalID, "the external id of COMMITTED changed")
	}
	if n.State == idem.StateCommitted && r.State != idem.StateCommitted {
		bad(evidence(ev, n), "COMMITTED without evidence")
	}
	proven := n.State == idem.StateFailedRetryable || (n.State == idem.StateFailedFinal && n.Absence == idem.AbsenceProven)
	bad(!proven || !mayOrDid(n), "proven absent while an attempt may have applied")
	for _, why := range slices.Concat(checkAttempts(r, ev, n), checkReport(r, ev, n), checkAtomic(s, r, ev, n)) {
		bad(false, why)
	}
	bad(!mustAct(s, n) || n.Due() != 0 || n.RetryAt != 0, "code must act and would not look again")
	return broken
}

// mayOrDid: some attempt may have applied, or is known to have, and nothing
// closes it.
func mayOrDid(r *idem.Record) bool {
	for _, a := range r.Attempts {
		if a.Closed == "" && (a.MayApplied || a.Class == idem.ClassSuccess) {
			return true
		}
	}
	return false
}

// evidence: what may settle an operation as applied.
func evidence(ev idem.Event, n *idem.Record) bool {
	for _, a := range n.Attempts {
		if a.Class == idem.ClassSuccess && a.Closed == "" {
			return true
		}
	}
	switch e := ev.(type) {
	case idem.QueryEnded:
		return len(e.IDs) > 0
	case idem.Resolve:
		return e.Decision.Verb == idem.VerbCommitted
	case idem.Report:
		return e.Outcome.Class == idem.ClassExists
	}
	return false
}

// checkAttempts: an unresolved attempt is never dropped, and its doubt ends
// with a proof, its own report or a settled outcome.
func checkAttempts(r *idem.Record, ev idem.Event, n *idem.Record) (broken []string) {
	if _, ok := ev.(idem.Expire); ok {
		return nil
	}
	report, _ := ev.(idem.Report)
	for _, a := range r.Attempts {
		var b *idem.Attempt
		for i := range n.Attempts {
			if n.Attempts[i].N == a.N {
				b = &n.Attempts[i]
			}
		}
		if b == nil {
			if a.MayApplied || a.End == 0 {
				broken = append(broken, "an unresolved attempt was dropped")
			}
			continue
		}
		ended := b.Closed != "" || n.State == idem.StateCommitted || n.Reason == idem.ReasonLostWithProcess || report.Attempt == a.N
		if a.MayApplied && !b.MayApplied && !ended {
			broken = append(broken, "the doubt about an attempt vanished")
		}
		if a.Class == idem.ClassSuccess && b.Class != idem.ClassSuccess {
			broken = append(broken, "a success was forgotten")
		}
	}
	return broken
}

// fenced: the report is a success of an atomic attempt that is not open any
// more, and so cannot be true.
func fenced(r *idem.Record, e idem.Report) bool {
	for _, a := range r.Attempts {
		if a.N == e.Attempt {
			return a.Atomic && e.Outcome.Class == idem.ClassSuccess && a.Class != idem.ClassSuccess && (r.State != idem.StateStarted || r.Last != a.N)
		}
	}
	return false
}

// checkAtomic: the record is all that is to know about an atomic attempt. It is
// never in doubt, and once the record has moved on it has no success to come.
func checkAtomic(s setting, r *idem.Record, ev idem.Event, n *idem.Record) (broken []string) {
	bad := func(ok bool, why string) {
		if !ok {
			broken = append(broken, why)
		}
	}
	if e, ok := ev.(idem.Report); ok {
		bad(!fenced(r, e), "a success of an attempt that was fenced")
	}
	for _, a := range n.Attempts {
		if !a.Atomic {
			continue
		}
		bad(!a.MayApplied, "an atomic attempt is in doubt")
		open := n.State == idem.StateStarted && a.N == n.Last
		bad(open || a.End != 0 && (a.Class == idem.ClassSuccess || a.Closed != ""), "the record moved on and did not close an atomic attempt")
	}
	if s.atomic {
		bad(n.State != idem.StateUnknown && n.Shown(n.UpdatedAt) != idem.StateReconciling, "an atomic operation is "+string(n.State))
		bad(n.State != idem.StateNeedsReview || n.CommittedAt != 0 || n.Duplicates > 0, "a person is called for what is known")
		bad(n.Reconcile.Next == 0, "a query about an atomic operation")
	}
	return broken
}

// checkReport: evidence is never dropped silently.
func checkReport(r *idem.Record, ev idem.Event, n *idem.Record) (broken []string) {
	e, ok := ev.(idem.Report)
	if !ok {
		return nil
	}
	var before idem.Class
	for _, a := range r.Attempts {
		if a.N == e.Attempt {
			before = a.Class
		}
	}
	if e.Outcome.Class != idem.ClassSuccess || before == idem.ClassSuccess {
		return nil
	}
	kept := false
	for _, a := range n.Attempts {
		kept = kept || a.N == e.Attempt && a.Class == idem.ClassSuccess && a.Closed == ""
	}
	if !kept {
		broken = append(broken, "a success is not noted at its attempt")
	}
	switch n.State {
	case idem.StateCommitted:
	case idem.StateStarted:
		if e.Attempt == r.Last || n.Reason != idem.ReasonSuspected {
			broken = append(broken, "a success left the record STARTED")
		}
	case idem.StateNeedsReview:
		if n.Duplicates == 0 && n.Reason != idem.ReasonLateSuccess && r.CommittedAt == 0 {
			broken = append(broken, "a success led to a review that does not say why")
		}
	default:
		broken = append(broken, "a success was dropped")
	}
	return broken
}

// mustAct: nobody but code moves the record on.
func mustAct(s setting, n *idem.Record) bool {
	switch n.State {
	case idem.StateStarted, idem.StateUnknown, idem.StateFailedRetryable:
		return true
	case idem.StateCommitted, idem.StateFailedFinal, idem.StateCompensated:
		return !n.Expired
	case idem.StateNeedsReview:
		return s.terms.Query && n.Reason == idem.ReasonGaveUp
	}
	return false
}
