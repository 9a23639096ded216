package idem

// Claim takes the right to dispatch the next attempt. It is the only event
// that leads to a dispatch.
type Claim struct {
	When
	Terms
	Owner    Owner
	Group    Group
	Token    Token
	LeaseEnd Instant
	Baseline []string // what the query found before; with HasBase
	HasBase  bool
	BaseAt   Instant // before the baseline's query left
	View     ID      // the slot of all whose baselines look at the same
	Atomic   bool    // the effect commits with its outcome: see Attempt.Atomic
}

func (e Claim) apply(r *Record) error {
	fresh := r.Granted // begins another round of the schedule
	switch r.State {
	case "", StatePlanned:
	case StateFailedRetryable:
		if e.At < r.RetryAt && !r.Granted {
			return refuse(r, "claim", "the retry is not due")
		}
	case StateFailedFinal:
		over := r.Absence == AbsenceProven && e.At >= r.SettledAt.Add(e.FailureTTL)
		if !over && !r.Granted {
			return refuse(r, "claim", "the failure is final")
		}
		fresh = true
	case StateUnknown:
		resend := e.Resend && !e.Query && r.RetryAt != 0 && e.At >= r.RetryAt
		if !resend && !r.Granted {
			return refuse(r, "claim", "the outcome is unknown")
		}
	case StateNeedsReview, StateCompensated:
		if !r.Granted {
			return refuse(r, "claim", "a person decides")
		}
	default:
		return refuse(r, "claim", "it is under way or done")
	}
	if r.Expired {
		return refuse(r, "claim", "the record has expired")
	}
	if r.State == StateCompensated {
		r.close(ProofOperator) // what applied was undone
	}
	mayHave := r.MayHaveApplied()
	if fresh || r.Round.Attempts == 0 {
		r.Round = Round{Since: e.At}
	}
	r.Round.Attempts++
	r.Last++
	r.Attempts = append(r.Attempts, Attempt{N: r.Last, Owner: e.Owner, Group: e.Group, Start: e.At, MayApplied: !e.Atomic, Atomic: e.Atomic})
	r.Lease = Lease{Fence: r.Lease.Fence + 1, Token: e.Token, Owner: e.Owner, End: e.LeaseEnd}
	r.State = StateStarted
	if r.StartedAt == 0 {
		r.StartedAt = e.At
	}
	r.Reconcile.Next, r.Reconcile.Lease = 0, Lease{}
	if e.HasBase && !mayHave { // else the new one may hold an earlier attempt's effect
		r.Reconcile.Baseline, r.Reconcile.HasBase, r.Reconcile.BaseAt = e.Baseline, true, e.BaseAt
	}
	if e.HasBase {
		r.Reconcile.View = e.View
	}
	r.UnknownSince = 0
	r.SettledAt, r.ExpiresAt, r.RetryAt, r.Granted, r.ParkedOn = 0, 0, 0, false, nil
	r.Absence, r.Class, r.Reason, r.Text = AbsenceNone, "", "", ""
	r.ExternalID, r.ExternalRequest, r.CommittedBy, r.CommittedAt, r.Reconciled = "", "", 0, 0, false
	r.dropResult()
	return nil
}

// TimedOut frees the caller: the policy's timeout passed. The attempt stays
// open, and its answer counts whenever it comes; an atomic one is fenced.
type TimedOut struct {
	When
	Terms
	Attempt uint32
}

func (e TimedOut) apply(r *Record) error {
	if r.State != StateStarted || r.Last != e.Attempt {
		return refuse(r, "timeout", "this attempt is not under way")
	}
	r.unheard(e.At, e.At, e.Terms, ReasonTimeout)
	return nil
}

// OwnerLost says that a claim's owner is dead or let its lease run out. Ended
// tells how it is known that the attempt cannot act any more; empty: it is not.
type OwnerLost struct {
	When
	Terms
	Attempt uint32
	Ended   EndBy
}

func (e OwnerLost) apply(r *Record) error {
	if r.State != StateStarted || r.Last != e.Attempt {
		return refuse(r, "owner lost", "this attempt is not under way")
	}
	if err := (AttemptEnded{When: e.When, Attempt: e.Attempt, By: e.Ended}).apply(r); err != nil {
		return err
	}
	if r.Incarnation != "" && e.Ended == EndByGroup {
		r.lose(e.At, e.Terms)
		return nil
	}
	r.Class = ClassAmbiguous
	r.unheard(e.At, r.lastStart(), e.Terms, ReasonOwnerLost)
	return nil
}

// AttemptEnded says that an attempt of which nothing was heard cannot act any
// more.
type AttemptEnded struct {
	When
	Attempt uint32
	By      EndBy
}

func (e AttemptEnded) apply(r *Record) error {
	a := r.attempt(e.Attempt)
	if a == nil {
		return refuse(r, "attempt ended", "there is no such attempt")
	}
	if a.End == 0 && e.By != "" {
		a.End, a.EndBy = e.At, e.By
	}
	return nil
}

// ProcessLost ends an unsettled operation whose effect lived in an upstream
// process that has ended (state: process).
type ProcessLost struct {
	When
	Terms
}

func (e ProcessLost) apply(r *Record) error {
	if r.Incarnation == "" || r.State.Final() {
		return refuse(r, "process lost", "its state is durable or it is settled")
	}
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.End == 0 {
			a.End, a.EndBy = e.At, EndByGroup
		}
	}
	r.lose(e.At, e.Terms)
	return nil
}

func (r *Record) lose(at Instant, t Terms) {
	r.fail(at, t, AbsenceNone, ReasonLostWithProcess)
	r.Class, r.Granted = ClassAmbiguous, false
	for i := range r.Attempts {
		r.Attempts[i].MayApplied = false
	}
}

// Expire shrinks a final record to a tombstone: what it was stays, what it
// carried goes.
type Expire struct{ When }

func (e Expire) apply(r *Record) error {
	if !r.State.Final() || r.ExpiresAt == 0 || e.At < r.ExpiresAt || r.Expired {
		return refuse(r, "expire", "it is not final or not old enough")
	}
	r.Expired, r.Granted = true, false
	r.Args, r.Attempts, r.Aliases, r.Decisions, r.ReplacedArgs = nil, nil, nil, nil, nil
	r.Text, r.Reconcile, r.Lease = "", Reconcile{}, Lease{Fence: r.Lease.Fence}
	r.dropResult()
	return nil
}

// Prolong keeps a final record whole for longer.
type Prolong struct {
	When
	Until Instant
}

func (e Prolong) apply(r *Record) error {
	if !r.State.Final() || r.Expired {
		return refuse(r, "prolong", "it is not final, or has expired")
	}
	r.ExpiresAt = max(r.ExpiresAt, e.Until)
	return nil
}
