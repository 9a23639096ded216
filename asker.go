package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// asker carries one ask through resolve, claim, wait and answer.
type asker struct {
	g      *Guard
	q      *question
	effect Effect
	asked  time.Time
	limit  time.Time // of waits for others
	mine   *flight   // the attempt that this ask started, the last one if several
	bound  ID        // the operation it met or began; it stays with that one
}

func (w *asker) run(ctx context.Context) Answer {
	for {
		v, now, err := w.resolve(ctx)
		if ctx.Err() != nil {
			return w.gone(ctx, v)
		}
		if err != nil {
			return w.blind(err)
		}
		if v.refuse != nil {
			return Answer{Err: v.refuse}
		}
		if v.begin == nil && w.bound != v.op {
			w.bound = v.op
			w.join(v)
		}
		if a, done := w.step(ctx, v, now); done {
			return a
		}
	}
}

// resolve loads what identity needs, from one snapshot.
func (w *asker) resolve(ctx context.Context) (verdict, Instant, error) {
	if w.bound != (ID{}) && w.q.source != SourceBusiness { // a business key may move on to another generation
		s, err := w.g.cfg.Store.Load(ctx, opRef(w.bound))
		if r := s.Operation(w.bound); r != nil || err != nil {
			return verdict{op: w.bound, record: r}, s.Now, err
		}
		w.bound = ID{} // it was retired meanwhile
	}
	q := w.q
	skip := q.ask.Conn.skip(q.aliases)
	refs := make([]Ref, 0, 8)
	var snap Snapshot
	var delivered *Delivered
	if q.source == SourceOccurrence {
		delivered = q.ask.Conn.delivered(w.g.marks, q.delivery) // before the snapshot: then no mark is missed between the two
	}
	for {
		v := q.resolve(snap, refs, delivered, skip)
		if v.want == nil {
			return v, snap.Now, nil
		}
		for _, r := range v.want {
			if !slices.Contains(refs, r) {
				refs = append(refs, r)
			}
		}
		var err error
		if snap, err = w.g.cfg.Store.Load(ctx, refs...); err != nil {
			return verdict{}, 0, err
		}
	}
}

// blind answers when the ledger cannot be read. What this ask's own attempt
// brought is still at hand; else all that is certain is whether it made one.
func (w *asker) blind(err error) Answer {
	if w.mine == nil {
		return unavailableAnswer(err)
	}
	if a, ok := w.mine.answer(); ok {
		return a
	}
	return Answer{Record: w.mine.claimed, Op: w.mine.op, Err: &Error{Code: CodeUnknown, Err: err,
		Text: "It was sent, and the ledger cannot be read, so its outcome is not known. Nothing more is sent until it is."}}
}

// join notes the call ids by which this ask may come again. Where a repeat is
// found without them they are not needed.
func (w *asker) join(v verdict) {
	if w.q.source != SourceOccurrence || w.q.rules.Repeat == RepeatReplay || w.q.rules.Repeat == RepeatRefuse {
		return
	}
	for _, a := range w.q.aliases {
		if !slices.Contains(v.record.Aliases, a) {
			w.g.wg.Go(func() { w.g.alias(v.op, a) })
		}
	}
}

// step does what the operation's state asks for: answer, or move it on and look
// again.
func (w *asker) step(ctx context.Context, v verdict, now Instant) (Answer, bool) {
	r := v.record
	switch {
	case r.Expired:
		return w.refusal(v, CodeExpired, "This was asked for before, and its record has expired. It will not run again."), true
	case r.Granted, r.State == "", r.State == StatePlanned:
		return w.claim(ctx, v)
	}
	switch r.State {
	case StateCommitted:
		return w.result(v), true
	case StateFailedFinal:
		if r.Absence == AbsenceProven && now >= r.SettledAt.Add(w.q.rules.FailureTTL) && !(w.mine != nil && w.mine.op == v.op) {
			return w.claim(ctx, v)
		}
		return w.result(v), true
	case StateFailedRetryable:
		return w.retry(ctx, v, now)
	case StateStarted:
		return w.underWay(ctx, v, now)
	case StateUnknown:
		if r.RetryAt != 0 && w.q.rules.Resend && w.q.rules.Query == nil {
			return w.retry(ctx, v, now)
		}
		return w.unknown(ctx, v, now)
	case StateNeedsReview:
		return w.refusal(v, CodeNeedsReview, reviewText(w.g.cfg.Command, v.op, r)), true
	}
	return w.refusal(v, CodeCompensated, "This was done and has been undone, or is being undone. It will not run again."), true
}

const inProgressText = "It is under way already; its outcome is not known yet. The same request gets it when it is there."

func reviewText(command string, op ID, r *Record) string {
	why := "Whether it was applied is not known and cannot be found out by asking."
	if a := r.attempt(r.Last); a != nil && a.End == 0 && a.Class == "" {
		why += " Its own answer still counts if it comes."
	}
	switch r.Reason {
	case ReasonDuplicate, ReasonSeveralMatches:
		why = "More than one effect of it is known."
	case ReasonGaveUp:
		why = "Whether it was applied could not be found out in time."
	case ReasonLateSuccess:
		why = "It succeeded after a person had decided about it."
	case ReasonRetryExhausted:
		why = "Whether it was applied is not known, and the attempts are used up."
	}
	return fmt.Sprintf("%s A person has to decide; nothing will be sent until then. For the operator: %s ops resolve %s --as committed|not-applied --reason TEXT", why, command, op)
}

// retry runs the next attempt when it is due within the wait.
func (w *asker) retry(ctx context.Context, v verdict, now Instant) (Answer, bool) {
	pause := v.record.RetryAt.Sub(now)
	if pause > max(0, time.Until(w.limit)) {
		fate := "It was not applied."
		if v.record.State == StateUnknown {
			fate = "Whether it was applied is not known."
		}
		a := w.refusal(v, CodeRetryScheduled, fmt.Sprintf(fate+" The next attempt is not due before %s; code alone decides about it.", v.record.RetryAt.Time().Format(time.RFC3339)))
		a.Err.RetryAt = v.record.RetryAt
		return a, true
	}
	if pause > 0 && !sleep(ctx, pause) {
		return w.gone(ctx, v), true
	}
	return w.claim(ctx, v)
}

// underWay waits for an attempt of somebody else.
func (w *asker) underWay(ctx context.Context, v verdict, now Instant) (Answer, bool) {
	r := v.record
	if f := w.g.flight(v.op, r.Last); f != nil {
		if a, ok := f.unrecorded(false); ok {
			return a, true
		}
	} else if owner := r.Lease.Owner; r.Lease.End <= now || w.g.cfg.Processes.Dead(owner) {
		if _, err := w.g.lost(ctx, v.op, r); err != nil && ctx.Err() == nil {
			return w.blind(err), true
		}
		return Answer{}, false
	}
	if !w.watch(ctx, v, min(time.Until(w.limit), max(r.Lease.End.Sub(now), time.Second))) && (ctx.Err() != nil || !time.Now().Before(w.limit)) {
		if ctx.Err() != nil {
			return w.gone(ctx, v), true
		}
		if f := w.g.flight(v.op, r.Last); f != nil {
			if a, ok := f.unrecorded(true); ok {
				return a, true
			}
		}
		return w.refusal(v, CodeInProgress, inProgressText), true
	}
	return Answer{}, false
}

// unknown waits for a query to settle the outcome, and makes it when it is due.
func (w *asker) unknown(ctx context.Context, v verdict, now Instant) (Answer, bool) {
	r := v.record
	pause := time.Until(w.limit)
	if due := r.Due(); due != 0 {
		if due <= now || w.g.abandoned(r, now) {
			w.g.query(v.op)
		} else {
			pause = min(pause, due.Sub(now))
		}
	}
	if w.watch(ctx, v, pause) {
		return Answer{}, false
	}
	if ctx.Err() != nil {
		return w.gone(ctx, v), true
	}
	if time.Now().Before(w.limit) {
		return Answer{}, false
	}
	return w.refusal(v, CodeUnknown, "Whether it was applied is not known yet; the outside system is being asked. Nothing is sent until that is settled."), true
}

// watch waits for the operation's next version, at most d. It reports whether
// it came.
func (w *asker) watch(ctx context.Context, v verdict, d time.Duration) bool {
	if d <= 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return w.g.cfg.Store.Watch(ctx, v.op, v.record.Version) == nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// gone answers an asker that does not wait any longer. Nobody reads it.
func (w *asker) gone(ctx context.Context, v verdict) Answer {
	return w.refusal(v, CodeInProgress, "The wait was given up before an outcome was known.", context.Cause(ctx))
}

func (w *asker) refusal(v verdict, c Code, text string, cause ...error) Answer {
	a := Answer{Record: v.record, Op: v.op, Err: &Error{Code: c, Text: text, Err: errors.Join(cause...)}}
	if v.record != nil && v.record.State == "" {
		a.Record = nil
	}
	return a
}

// result is the settled outcome: the tool's own answer, or that it failed
// without one.
func (w *asker) result(v verdict) Answer {
	r := v.record
	mine := w.mine != nil && w.mine.op == v.op && r.CommittedBy == w.mine.attempt && !r.Reconciled
	if r.State == StateFailedFinal {
		mine = w.mine != nil && w.mine.op == v.op && w.mine.attempt == r.Last
	}
	a := Answer{Record: r, Op: v.op, Result: r.Result, Kind: r.ResultKind, Replayed: !mine}
	if mine && r.Result == nil { // too large to keep, and still at hand
		a.Result = w.mine.result()
	}
	if r.State == StateFailedFinal && a.Result == nil {
		a.Err = &Error{Code: CodeFailed, Text: failedText(r)}
	}
	a.deliver = func() func(error) { return w.deliver(v) }
	return a
}

func failedText(r *Record) string {
	t := "It was not applied, and it will not be attempted again."
	switch r.Reason {
	case ReasonRetryExhausted:
		t = "It was not applied: every attempt that the policy allows has failed."
	case ReasonLostWithProcess:
		t = "The upstream's process ended, and what it held is gone with it. Nothing is sent again by itself."
	case ReasonOperator:
		t = "A person decided that it was not applied. Nothing is sent again by itself."
	}
	if r.Text != "" && (r.Class == ClassReported || r.Class == ClassRejected) { // the tool's own last word
		t += " It said: " + r.Text
	}
	return t
}

// deliver marks the outcome as handed over to this ask's run.
func (w *asker) deliver(v verdict) (done func(error)) {
	k := mark{row: w.q.delivery, n: v.record.Occurrence}
	if w.q.source != SourceOccurrence || v.record.Slot != w.q.slot {
		k = mark{}
	}
	if time.Since(w.asked) > w.g.cfg.ClientTimeout {
		return func(error) {}
	}
	if c := w.q.ask.Conn; c != nil {
		if len(w.q.ask.Aliases) > 0 {
			w.q.twins()
		}
		return c.hand(k, w.q.aliases)
	}
	if k.n > 0 {
		w.g.marks.deliver([]mark{k})
	}
	return func(error) {}
}
