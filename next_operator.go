package idem

// Verbs of an operator's decision.
const (
	VerbCommitted   = "committed"
	VerbNotApplied  = "not-applied"
	VerbCompensated = "compensated"
	VerbGrantRetry  = "grant-retry"
)

// Resolve is a person's word on an outcome.
type Resolve struct {
	When
	Terms
	Decision   Decision // Verb: committed, not-applied or compensated
	ExternalID string
	Result     []byte // raw; nil: none
}

func (e Resolve) apply(r *Record) error {
	if r.Expired {
		return refuse(r, "resolve", "the record has expired")
	}
	switch r.State {
	case StateUnknown, StateNeedsReview, StateFailedRetryable, StateFailedFinal:
	case StateCommitted, StateCompensating:
		if e.Decision.Verb != VerbCompensated {
			return refuse(r, "resolve", "the outcome is settled")
		}
	default:
		return refuse(r, "resolve", "it is under way, or undone already")
	}
	e.Decision.At = e.At
	r.Decisions = append(r.Decisions, e.Decision)
	r.Granted = false
	switch e.Decision.Verb {
	case VerbCommitted:
		r.adopt(e.Result, e.Limit)
		r.commit(e.At, e.Terms, 0, e.ExternalID)
	case VerbNotApplied:
		r.close(ProofOperator)
		r.dropResult()
		r.fail(e.At, e.Terms, AbsenceProven, ReasonOperator)
	case VerbCompensated:
		r.settle(StateCompensated, e.At, e.Terms)
	default:
		return refuse(r, "resolve", "unknown decision "+e.Decision.Verb)
	}
	r.Reason = ReasonOperator
	return nil
}

// close ends what may have applied or is known to have, on a person's word.
func (r *Record) close(by Proof) {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.MayApplied || a.Class == ClassSuccess {
			a.MayApplied, a.Closed = false, by
		}
	}
}

// Grant allows one more attempt, which the next ask dispatches.
type Grant struct {
	When
	Decision Decision
}

func (e Grant) apply(r *Record) error {
	switch r.State {
	case StateNeedsReview, StateUnknown, StateFailedFinal, StateCompensated:
	default:
		return refuse(r, "grant-retry", "it is not at rest")
	}
	if r.Expired {
		return refuse(r, "grant-retry", "the record has expired")
	}
	e.Decision.Verb, e.Decision.At = VerbGrantRetry, e.At
	r.Decisions = append(r.Decisions, e.Decision)
	r.Granted = true
	return nil
}

// Compensation mirrors how the linked compensating operation stands.
type Compensation struct {
	When
	Terms
	State State // COMPENSATING, COMPENSATED, or NEEDS_REVIEW where it cannot be told
}

func (e Compensation) apply(r *Record) error {
	from := map[State]State{StateCompensating: StateCommitted, StateCompensated: StateCompensating, StateNeedsReview: StateCompensating}
	if r.State == "" && e.State == StateCompensated { // it never started: a late forward ask finds this
		r.settle(StateCompensated, e.At, e.Terms)
		return nil
	}
	want, ok := from[e.State]
	if !ok || r.State != want || r.Expired {
		return refuse(r, "compensation", "it leads from COMMITTED over COMPENSATING")
	}
	if e.State == StateNeedsReview {
		r.review("")
		return nil
	}
	r.settle(e.State, e.At, e.Terms)
	if e.State == StateCompensating {
		r.SettledAt, r.ExpiresAt = 0, 0
	}
	return nil
}
