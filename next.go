package idem

import (
	"errors"
	"fmt"
	"time"
)

// Event is something that happened to an operation. The types that implement
// it are the only ways a record changes.
type Event interface {
	// apply changes a private copy of the record, or says why it cannot.
	apply(r *Record) error
	at() Instant
}

// Next is the one transition function: it returns what the record becomes, and
// leaves the given one as it is. It is pure: clock, jitter and ids come with
// the event. A *TransitionError says that the event does not fit the state;
// then nothing changes.
func Next(r *Record, ev Event) (*Record, error) {
	n := r.Clone()
	if err := ev.apply(n); err != nil {
		return nil, err
	}
	n.UpdatedAt = ev.at()
	n.fence(ev.at())
	n.trim()
	return n, nil
}

// TransitionError says that an event does not fit the state of a record.
type TransitionError struct {
	State State // empty: there was no record
	Event string
	Why   string
}

func (e *TransitionError) Error() string {
	from := string(e.State)
	if from == "" {
		from = "no record"
	}
	return fmt.Sprintf("idem: %s does not fit %s: %s", e.Event, from, e.Why)
}

// ErrLate: a report for a record that has expired. The record stays; log and
// count it.
var ErrLate = errors.New("idem: a report came after the record expired")

func refuse(r *Record, event, why string) error {
	return &TransitionError{State: r.State, Event: event, Why: why}
}

// When is the moment of an event on the ledger's clock.
type When struct{ At Instant }

func (w When) at() Instant { return w.At }

// Terms are what the policy says where a transition depends on it.
type Terms struct {
	Query       bool // a reconciler exists
	Baseline    bool // and needs one
	Settle      time.Duration
	Every       time.Duration
	GiveUp      time.Duration
	Resend      bool // an ambiguous attempt may be sent again under the same key
	MaxAttempts int
	MaxElapsed  time.Duration
	Backoff     time.Duration // chosen for the next attempt, jitter included
	Floored     bool          // Backoff is what the upstream asked for
	FailureTTL  time.Duration
	Retention   time.Duration
	Limit       int64 // most bytes of a result that are kept; 0: all
}

// slow is how often an operation is asked after once a person was called.
func (t Terms) slow() time.Duration { return max(10*t.Every, time.Minute) }

// TermsOf takes what transitions need from a tool's rules. attempts is how
// many the round has had, floor what the upstream asked for.
func TermsOf(r Rules, occurrence bool, attempts int, floor time.Duration) Terms {
	t := Terms{Resend: r.Resend, MaxAttempts: r.Retry.MaxAttempts, MaxElapsed: r.Retry.MaxElapsed, FailureTTL: r.FailureTTL,
		Retention: r.Retention, Limit: r.ResultLimit, Floored: floor > 0}
	if occurrence {
		t.Retention = r.OccurrenceRetention
	}
	if q := r.Query; q != nil {
		t.Query, t.Baseline, t.Settle, t.Every, t.GiveUp = true, q.Baseline, q.Settle, q.Every, q.GiveUp
	}
	if r.Retry.Delay != nil {
		t.Backoff = r.Retry.Delay(attempts, floor)
	}
	return t
}

// commit settles the record as applied. by is the attempt, 0 where a query or a
// person said so.
func (r *Record) commit(at Instant, t Terms, by uint32, externalID string) {
	r.settle(StateCommitted, at, t)
	r.CommittedAt, r.CommittedBy, r.Absence, r.Reason = at, by, AbsenceNone, ""
	if externalID != "" {
		r.ExternalID = externalID
	}
	for i := range r.Attempts {
		r.Attempts[i].MayApplied = false
	}
	r.Reconcile.Baseline, r.Reconcile.HasBase = nil, false // it may be large, and has served
}

// fail settles the record as not applied and pointless to repeat.
func (r *Record) fail(at Instant, t Terms, a Absence, why Reason) {
	r.settle(StateFailedFinal, at, t)
	r.Absence, r.Reason = a, why
	if a == AbsenceProven {
		r.Reconcile.Baseline, r.Reconcile.HasBase = nil, false
	}
}

func (r *Record) settle(s State, at Instant, t Terms) {
	r.State, r.SettledAt, r.ExpiresAt = s, at, at.Add(t.Retention)
	r.RetryAt, r.Lease.End = 0, 0
	r.Granted = r.Granted && s == StateFailedFinal // a failure does not use it up
	r.Reconcile.Next, r.Reconcile.Lease = 0, Lease{}
}

// retry follows a proof that no attempt applied: another attempt if the
// schedule has one left. until is when the elapsed time ends that counts: what
// finding out takes is not spent on attempts.
func (r *Record) retry(at, until Instant, t Terms) {
	used := until.Sub(r.Round.Since)
	late := t.MaxElapsed > 0 && (used > t.MaxElapsed || (!t.Floored && used+t.Backoff > t.MaxElapsed))
	if int(r.Round.Attempts) >= t.MaxAttempts || late {
		r.fail(at, t, AbsenceProven, ReasonRetryExhausted)
		return
	}
	r.settle(StateFailedRetryable, at, t)
	r.SettledAt, r.ExpiresAt, r.Absence, r.Reason = 0, 0, AbsenceProven, ""
	r.RetryAt = at.Add(t.Backoff)
}

// doubt is where an outcome that nobody knows leads.
func (r *Record) doubt(at Instant, t Terms, why Reason) {
	r.Lease.End, r.Absence, r.Reason = 0, AbsenceNone, why
	r.SettledAt, r.ExpiresAt, r.RetryAt = 0, 0, 0
	if r.UnknownSince == 0 {
		r.UnknownSince = at
	}
	switch {
	case t.Resend && r.succeeded() != nil: // what it may have done more is the same effect
		s := r.succeeded()
		r.commit(at, t, s.N, s.ExternalID)
	case t.Query:
		r.State, r.Reconcile.Next = StateUnknown, at
	case t.Resend && int(r.Round.Attempts) < t.MaxAttempts:
		r.State, r.RetryAt = StateUnknown, at.Add(t.Backoff)
	case t.Resend:
		r.review(ReasonRetryExhausted)
	case r.succeeded() != nil:
		r.review(ReasonSuspected)
	default:
		r.review(ReasonNothingToAsk)
	}
}

// unheard is where an attempt leads of which nothing was heard. An atomic one
// has not applied and is fenced by this very commit. until is as in retry.
func (r *Record) unheard(at, until Instant, t Terms, why Reason) {
	a, b := r.attempt(r.Last), r.succeeded()
	switch {
	case a == nil || !a.Atomic || (b == nil && r.MayHaveApplied()):
		r.doubt(at, t, why)
	case b != nil: // an earlier attempt did it
		r.commit(at, t, b.N, b.ExternalID)
	default:
		r.retry(at, until, t)
		if r.State == StateFailedRetryable {
			r.Reason = why
		}
	}
}

// fence closes atomic attempts that the record has moved on from: their outcome
// needs a version that is over.
func (r *Record) fence(at Instant) {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if !a.Atomic || a.Class == ClassSuccess || r.current(a) {
			continue
		}
		if a.End == 0 {
			a.End, a.EndBy = at, EndByFence
		}
		if a.Closed == "" {
			a.Closed = ProofFence
		}
	}
}

// review calls a person. What was granted before is granted no longer.
func (r *Record) review(why Reason) {
	r.State, r.Reason, r.RetryAt, r.Lease.End, r.Granted = StateNeedsReview, why, 0, 0, false
	r.SettledAt, r.ExpiresAt = 0, 0
	r.Reconcile.Next, r.Reconcile.Lease = 0, Lease{}
}

// duplicate parks a record of which more than one effect is known.
func (r *Record) duplicate(n int, why Reason) {
	r.Duplicates += uint32(n)
	r.review(why)
}

// parked reports whether only a person may move the record on: an effect is
// known, and it is not known what to make of it.
func (r *Record) parked() bool {
	return r.State == StateNeedsReview && (r.Duplicates > 0 || r.Reason == ReasonLateSuccess || r.CommittedAt != 0)
}

// denied reports whether the last word on an attempt's outcome is an operator's
// and says that there is no effect to keep.
func (r *Record) denied(a *Attempt) bool {
	for i := len(r.Decisions) - 1; i >= 0; i-- {
		if r.Decisions[i].At < a.Start { // it was about earlier attempts
			return false
		}
		switch r.Decisions[i].Verb {
		case VerbNotApplied, VerbCompensated:
			return true
		case VerbCommitted, VerbGrantRetry:
			return false
		}
	}
	return false
}

// succeeded finds an attempt that is known to have applied; nil: none.
func (r *Record) succeeded() *Attempt { return r.other(0) }

// other finds an attempt besides the n-th that is known to have applied, and
// whose effect nobody has undone or denied.
func (r *Record) other(n uint32) *Attempt {
	for i := range r.Attempts {
		if b := &r.Attempts[i]; b.N != n && b.Class == ClassSuccess && b.Closed == "" {
			return b
		}
	}
	return nil
}

// ProofAt is the moment from which a query that finds nothing proves absence:
// settle after the last proven end of all attempts that may have applied. ok is
// false while one of them may still act.
func (r *Record) ProofAt(settle time.Duration) (from Instant, ok bool) {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if !a.MayApplied {
			continue
		}
		if a.End == 0 {
			return 0, false
		}
		from = max(from, a.End.Add(settle))
	}
	return from, true
}

// keptAttempts is how many resolved attempts a record remembers.
const keptAttempts = 16

// trim forgets the oldest resolved attempts; what may still have applied or
// still act is never forgotten.
func (r *Record) trim() {
	for i := 0; len(r.Attempts) > keptAttempts && i < len(r.Attempts); {
		if a := r.Attempts[i]; a.N != r.Last && a.End != 0 && !a.MayApplied && a.Class != ClassSuccess {
			r.Attempts = append(r.Attempts[:i], r.Attempts[i+1:]...)
		} else {
			i++
		}
	}
}
