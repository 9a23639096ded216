package idem

import "crypto/sha256"

// Report is what came of an attempt, in time or late. It is evidence: it is
// never dropped and never overwrites a settled outcome.
type Report struct {
	When
	Terms
	Attempt uint32
	Outcome Outcome
	// Superseded: the business key has a later generation, so that a success is
	// an effect too many.
	Superseded bool
}

func (e Report) apply(r *Record) error {
	if r.Expired {
		return ErrLate
	}
	if r.State == "" {
		return refuse(r, "report", "there is no record")
	}
	a := r.attempt(e.Attempt)
	if a == nil { // resolved and forgotten
		r.Attempts = append(r.Attempts, Attempt{N: e.Attempt, End: e.At})
		a = &r.Attempts[len(r.Attempts)-1]
	}
	c := e.Outcome.Class
	if a.Class == ClassSuccess || (a.Class != "" && a.Class != ClassAmbiguous && c != ClassSuccess) {
		return nil // one terminal result each
	}
	if a.Atomic && c == ClassSuccess && !r.current(a) {
		return refuse(r, "report", "the attempt was fenced")
	}
	e.end(a)
	a.Class, a.Text = c, cut(e.Outcome.Text)
	a.ExternalID = e.Outcome.ExternalID
	switch {
	case c == ClassSuccess:
		e.success(r, a)
	case c == ClassInterim:
		e.interim(r, a)
	case c == ClassExists && (!a.Atomic || r.MayHaveApplied()):
		e.exists(r, a)
	case c.definite(), a.Atomic: // without a success it was rolled back
		e.definite(r, a)
	case c == ClassReported:
		e.reported(r, a)
	default:
		a.Class = ClassAmbiguous
		e.ambiguous(r, a)
	}
	return nil
}

// end notes how it is known that the attempt cannot act any more.
func (e Report) end(a *Attempt) {
	by := e.Outcome.Ended
	switch {
	case by != "":
	case e.Outcome.Class == ClassNotSent:
		by = EndByNotSent
	case e.Outcome.Class != ClassAmbiguous || e.Outcome.Result != nil:
		by = EndByAnswer
	}
	if !e.Outcome.Sent.IsZero() {
		a.Sent = InstantOf(e.Outcome.Sent)
	}
	if a.End == 0 && by != "" {
		a.End, a.EndBy = e.At, by
	}
}

// current reports whether the record waits for just this attempt.
func (r *Record) current(a *Attempt) bool { return r.State == StateStarted && a.N == r.Last }

// open reports whether a report may move the record: its attempt is the current
// one, or the outcome is not known and no person holds it.
func (r *Record) open(a *Attempt) bool {
	return r.current(a) || r.State == StateUnknown || (r.State == StateNeedsReview && !r.parked())
}

func (e Report) success(r *Record, a *Attempt) {
	a.Closed = "" // it is stronger than any proof of absence
	switch {
	case r.State == StateStarted && a.N != r.Last: // judged when the later attempt ends
		r.Reason = ReasonSuspected
		e.keep(r)
		return
	case r.State == StateCommitted:
		e.again(r, a)
	case r.State == StateCompensating || r.State == StateCompensated:
		r.review(ReasonLateSuccess)
	case r.parked():
		if r.Reason != ReasonLateSuccess && !e.confirms(r, a) {
			r.Duplicates++
		}
		return
	case r.denied(a):
		e.keep(r)
		r.ExternalID = a.ExternalID
		r.review(ReasonLateSuccess)
		return
	case e.Superseded:
		e.keep(r)
		r.ExternalID = a.ExternalID
		r.duplicate(1, ReasonDuplicate)
	default:
		e.first(r, a)
	}
	r.Class = ClassSuccess
}

// first is a success where the outcome is not settled. Another attempt may be
// known to have applied: then the first result stays.
func (e Report) first(r *Record, a *Attempt) {
	e.keep(r)
	b := r.other(a.N)
	switch {
	case b == nil:
		r.commit(e.At, e.Terms, a.N, a.ExternalID)
	case e.same(a, b.ExternalID):
		r.ExternalID = a.ExternalID
		r.commit(e.At, e.Terms, b.N, b.ExternalID)
	default:
		r.ExternalID = b.ExternalID
		r.duplicate(1, ReasonDuplicate)
	}
}

// again is a success where one is settled: a confirmation or a duplicate.
func (e Report) again(r *Record, a *Attempt) {
	if !e.confirms(r, a) {
		r.duplicate(1, ReasonDuplicate)
		return
	}
	if r.CommittedBy == 0 {
		r.CommittedBy = a.N
	}
	if r.ExternalID == "" {
		r.ExternalID = a.ExternalID
	}
}

// confirms reports whether the attempt's success is the one that was settled.
// A query or a person may have settled it: whose it was is not known then.
func (e Report) confirms(r *Record, a *Attempt) bool {
	if a.N == r.CommittedBy || e.same(a, r.ExternalID) {
		return true
	}
	return r.CommittedBy == 0 && r.other(a.N) == nil && (r.ExternalID == "" || a.ExternalID == "")
}

// same reports whether attempt a surely had the effect that id names.
func (e Report) same(a *Attempt, id string) bool {
	return e.Resend || (id != "" && a.ExternalID == id)
}

func (e Report) definite(r *Record, a *Attempt) {
	a.MayApplied, a.Closed = false, ProofAnswer
	switch a.Class {
	case ClassNotSent:
		a.Closed = ProofNotSent
	case ClassAmbiguous:
		a.Closed = ProofFence
	}
	if !r.open(a) {
		return
	}
	if b := r.other(a.N); b != nil { // an earlier attempt did it
		r.commit(e.At, e.Terms, b.N, b.ExternalID)
		return
	}
	if r.MayHaveApplied() {
		if r.current(a) {
			r.Class, r.Text = a.Class, a.Text
			r.doubt(e.At, e.Terms, "")
		}
		return
	}
	r.Class, r.Text = a.Class, a.Text
	if e.Outcome.Lost && r.Incarnation != "" { // no later process can take it on
		r.fail(e.At, e.Terms, AbsenceProven, ReasonLostWithProcess)
		return
	}
	switch a.Class {
	case ClassRejected, ClassReported, ClassExists:
		e.keep(r)
		r.fail(e.At, e.Terms, AbsenceProven, "")
	default:
		r.retry(e.At, e.At, e.Terms)
	}
}

func (e Report) ambiguous(r *Record, a *Attempt) {
	if e.Outcome.Lost && r.Incarnation != "" && !r.State.Final() {
		r.lose(e.At, e.Terms)
		r.Text = a.Text
		return
	}
	switch {
	case r.current(a):
		r.Class, r.Text = a.Class, a.Text
		r.doubt(e.At, e.Terms, "")
	case r.State == StateUnknown:
		r.Class, r.Text = a.Class, a.Text
		if r.Reconcile.Next > e.At { // its end is known now: worth a query
			r.Reconcile.Next = e.At
		}
	}
}

func (e Report) reported(r *Record, a *Attempt) {
	if !r.open(a) {
		return
	}
	r.Class, r.Text = a.Class, a.Text
	if b := r.other(a.N); b != nil {
		a.MayApplied = false
		r.commit(e.At, e.Terms, b.N, b.ExternalID)
		return
	}
	e.keep(r)
	if e.Query { // its word is checked at once
		r.doubt(e.At, e.Terms, "")
		return
	}
	a.MayApplied = false
	if r.MayHaveApplied() {
		r.doubt(e.At, e.Terms, "")
		return
	}
	r.fail(e.At, e.Terms, AbsenceClaimed, "")
}

func (e Report) exists(r *Record, a *Attempt) {
	a.MayApplied = false
	if !r.open(a) {
		return
	}
	r.Class, r.Text = a.Class, a.Text
	if b := r.other(a.N); b != nil {
		r.commit(e.At, e.Terms, b.N, b.ExternalID)
		return
	}
	if r.MayHaveApplied() {
		r.commit(e.At, e.Terms, 0, a.ExternalID)
		r.Reconciled = true
		return
	}
	a.MayApplied = true
	r.doubt(e.At, e.Terms, "")
}

func (e Report) interim(r *Record, a *Attempt) {
	a.MayApplied, a.Closed = false, ProofAnswer
	if !r.current(a) {
		return
	}
	if b := r.other(a.N); b != nil {
		r.commit(e.At, e.Terms, b.N, b.ExternalID)
		return
	}
	if r.MayHaveApplied() {
		r.doubt(e.At, e.Terms, "")
		return
	}
	r.State, r.Reason, r.ParkedOn, r.Lease.End = StatePlanned, ReasonInputRequired, e.Outcome.ParkedOn, 0
	r.Round.Attempts-- // a person's answer is no failure
}

// keep stores the attempt's result, unless one is there: the first stays.
func (e Report) keep(r *Record) {
	if r.ResultKind == ResultNone || r.succeeded() == nil || r.succeeded().N == e.Attempt {
		r.keepResult(e.Outcome.Result, e.Outcome.Kind, e.Limit)
	}
	if e.Outcome.ExternalRequest != "" {
		r.ExternalRequest = e.Outcome.ExternalRequest
	}
}

func (r *Record) keepResult(b []byte, k ResultKind, limit int64) {
	r.dropResult()
	if k == ResultNone || b == nil {
		return
	}
	r.ResultKind, r.ResultSize = k, int64(len(b))
	if limit > 0 && r.ResultSize > limit {
		sum := sha256.Sum256(b)
		r.ResultDigest = sum[:]
		return
	}
	r.Result = b
}

func (r *Record) dropResult() {
	r.Result, r.ResultKind, r.ResultSize, r.ResultDigest = nil, ResultNone, 0, nil
}

func cut(s string) string {
	if len(s) > TextLimit {
		return s[:TextLimit]
	}
	return s
}
