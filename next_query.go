package idem

import (
	"fmt"
	"slices"
)

// QueryStarted gives one reconciler the lease to ask the outside system.
type QueryStarted struct {
	When
	Owner    Owner
	Token    Token
	LeaseEnd Instant
}

func (e QueryStarted) apply(r *Record) error {
	if !r.askable() {
		return refuse(r, "query", "there is nothing to ask")
	}
	r.Reconcile.Count++
	r.Reconcile.Lease = Lease{Token: e.Token, Owner: e.Owner, End: e.LeaseEnd}
	return nil
}

// askable reports whether a query may still tell something: a scheduled one.
func (r *Record) askable() bool {
	if r.Reconcile.Next == 0 {
		return false
	}
	return r.State == StateUnknown || r.State == StateNeedsReview || r.State == StateFailedFinal
}

// QueryEnded is what a query brought. It counts only for the reconciler that
// holds the lease.
type QueryEnded struct {
	When
	Terms
	Token  Token
	Began  Instant // before the query left
	IDs    []string
	Result []byte
	Failed string // not empty: the outside could not be asked

	// With a baseline, what is new may be another operation's whose query looks
	// at the same: Taken are ids that such operations are known to have, and
	// Rivals counts those that may have had their effect since and name none.
	Taken  []string
	Rivals int
}

func (e QueryEnded) apply(r *Record) error {
	if r.Reconcile.Lease.Token != e.Token || !r.askable() {
		return refuse(r, "query ended", "another reconciler took over or it is settled")
	}
	r.Reconcile.Lease, r.Reconcile.Text = Lease{}, cut(e.Failed)
	if e.Failed == "" && e.Baseline && !r.Reconcile.HasBase {
		r.Reconcile.Text = "no baseline was taken before the claim"
	}
	if r.Reconcile.Text != "" {
		e.later(r)
		return nil
	}
	ids := slices.Clone(e.IDs)
	if e.Baseline {
		ids = slices.DeleteFunc(ids, func(id string) bool {
			return slices.Contains(r.Reconcile.Baseline, id) || slices.Contains(e.Taken, id)
		})
	}
	switch n := len(ids); {
	case n == 0:
		e.absent(r)
	case n <= e.Rivals:
		r.Reconcile.Text = "what was found may be another operation's effect"
		e.later(r)
	case n == e.Rivals+1:
		e.found(r, ids[0])
	default:
		r.Text = fmt.Sprintf("the query found %d matches", n)
		r.duplicate(n-e.Rivals-1, ReasonSeveralMatches)
	}
	return nil
}

func (e QueryEnded) found(r *Record, id string) {
	by := uint32(0)
	candidates := 0
	for _, a := range r.Attempts {
		if a.MayApplied {
			by = a.N
			candidates++
		}
	}
	if s := r.succeeded(); s != nil {
		by, candidates = s.N, 1
	}
	if candidates != 1 {
		by = 0
	}
	r.adopt(e.Result, e.Limit)
	r.commit(e.At, e.Terms, by, id)
	r.Reconciled = true
}

// adopt takes the result of an outcome that no attempt of its own brought. What
// a failed attempt answered says the contrary of it.
func (r *Record) adopt(result []byte, limit int64) {
	if result != nil {
		r.keepResult(result, ResultValue, limit)
	} else if r.succeeded() == nil {
		r.dropResult()
	}
}

// lastStart is when the latest attempt began.
func (r *Record) lastStart() Instant {
	if a := r.attempt(r.Last); a != nil {
		return a.Start
	}
	return r.Round.Since
}

func (e QueryEnded) absent(r *Record) {
	from, ended := r.ProofAt(e.Settle)
	proven := ended && e.Began >= from
	if s := r.succeeded(); s != nil && proven { // an answer tells more than an empty search
		e.close(r)
		r.commit(e.At, e.Terms, s.N, s.ExternalID)
		return
	}
	if r.Class == ClassReported { // the tool said so itself: nothing runs again
		if proven {
			e.close(r)
			r.fail(e.At, e.Terms, AbsenceProven, "")
			return
		}
		if ended {
			r.fail(e.At, e.Terms, AbsenceClaimed, "")
			r.Reconcile.Next = from
			return
		}
	}
	if !proven {
		e.later(r)
		return
	}
	e.close(r)
	r.retry(e.At, r.lastStart(), e.Terms)
}

// close ends the doubt about every attempt, in the commit that permits a retry.
func (e QueryEnded) close(r *Record) {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.MayApplied && a.Class != ClassSuccess {
			a.MayApplied, a.Closed = false, ProofQuery
		}
	}
}

// later plans the next query, or calls a person when it took too long.
func (e QueryEnded) later(r *Record) {
	if r.State == StateFailedFinal { // a claim that waits for its proof
		if e.At.Sub(r.SettledAt) >= e.GiveUp {
			r.Reconcile.Next = 0
			return
		}
		r.Reconcile.Next = e.At.Add(e.Every)
		return
	}
	if r.State == StateUnknown && e.At.Sub(r.UnknownSince) >= e.GiveUp {
		r.State, r.Reason = StateNeedsReview, ReasonGaveUp
	}
	if r.State == StateNeedsReview {
		r.Reconcile.Next = e.At.Add(e.slow())
		return
	}
	next := e.At.Add(e.Every)
	if from, ended := r.ProofAt(e.Settle); ended && from > e.At {
		next = min(next, from)
	}
	r.Reconcile.Next = next
}

// Hurry asks for the next query now. It changes nothing else.
type Hurry struct {
	When
	Terms
}

func (e Hurry) apply(r *Record) error {
	claimed := r.State == StateFailedFinal && r.Absence == AbsenceClaimed
	if !e.Query || r.Expired || r.parked() || (r.State != StateUnknown && r.State != StateNeedsReview && !claimed) {
		return refuse(r, "reconcile", "its outcome is known, or nothing can be asked")
	}
	r.Reconcile.Next = e.At
	return nil
}

// Reassess judges an unsettled operation that nothing is planned for by the
// policy of today.
type Reassess struct {
	When
	Terms
}

func (e Reassess) apply(r *Record) error {
	waits := r.Reconcile.Next != 0 || (e.Resend && r.RetryAt != 0)
	switch {
	case r.State == StateUnknown && !waits:
		r.doubt(e.At, e.Terms, r.Reason)
	case r.State == StateNeedsReview && r.Reason == ReasonNothingToAsk && e.Query:
		r.Reconcile.Next = e.At
	default:
		return refuse(r, "reassess", "it is settled, or something is planned")
	}
	return nil
}
